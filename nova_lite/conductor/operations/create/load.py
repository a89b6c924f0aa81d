"""First pass of a create: read everything that the requests refer to.

The pass refuses nothing. A missing row is None or absent from its mapping, and an error of the network backend or of
a security group is kept as a value. So `validate` reports the errors of a request in a fixed order.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations import boot_images
from nova_lite.conductor.operations.create import image_devices
from nova_lite.conductor.operations.create.incoming import IncomingCreate
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import KeyPair
from nova_lite.db.hosts import compute_nodes, services
from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.db.servers import flavors, keypairs
from nova_lite.db.volume import cinder, volumes
from nova_lite.image.snapshots import DEVICES
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import BlockDevice, CreateRequest, Flavor, Image, NetworkRequest, Volume, VolumeSnapshot
from nova_lite.objects.block_device import root_volume
from nova_lite.objects.security_group import DEFAULT


class SecurityGroups(NamedTuple):
    """The security groups of a server. ``ids`` is empty for the built-in network service, which goes by names."""

    names: list[str]
    ids: list[str]


class BootVolumes(NamedTuple):
    """Volumes and snapshots that a server may boot from, by id.

    ``are_complete``: a missing one does not exist. That is not known of Cinder's, which only the API has read.
    """

    by_id: Mapping[str, Volume | VolumeSnapshot]
    are_complete: bool = True


NO_VOLUMES = BootVolumes({})


class Snapshot(NamedTuple):
    """The part of the database that one create request refers to, as the transaction sees it.

    ``images``: by id, images of the server's disks with their kernels and ramdisks. ``unknown_host``: the first host or
    node that the request names and that does not exist.
    """

    flavor: Flavor | None
    images: Mapping[str, Image]
    volumes: BootVolumes
    key: KeyPair | None
    limits: quotas.QuotaBounds
    security_groups: SecurityGroups | exceptions.NovaLiteException
    zone_exists: bool
    unknown_host: str | None
    networks: list[NetworkRequest] | exceptions.NovaLiteException


class Loader:
    """Loads the snapshots of the creates of one transaction. Values that several of them need are read once."""

    def __init__(
        self, uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, creates: Sequence[IncomingCreate]
    ) -> None:
        self._uow = uow
        self._network = network
        users: set[tuple[str, str | None]] = set()
        projects: set[str] = set()
        for create in creates:
            users.add((create.project_id, create.context.user_id))
            projects.add(create.project_id)
        self._limits = quotas.limits_of_several(uow, conf, users) if users else {}
        self._store = builtin_networks.Store(uow, projects=projects)
        self._cache: dict[Hashable, Any] = {}

    def load(self, create: IncomingCreate) -> Snapshot:
        context, request = create.context, create.request
        flavor = self._flavor(context, request.flavor_id)
        images, boot_volumes = self._disk_sources(context, request)
        return Snapshot(
            flavor=flavor,
            images=images,
            volumes=boot_volumes,
            key=keypairs.find(self._uow, context.user_id or "", request.key_name) if request.key_name else None,
            limits=self._limits[create.project_id, context.user_id],
            security_groups=self._security_groups(create),
            zone_exists=request.availability_zone is None or self._zone_exists(request.availability_zone),
            unknown_host=self._unknown_host(request),
            networks=self._networks(create),
        )

    def _cached(self, key: Hashable, context: RequestContext) -> Any:
        """Return a value of `_add_to_cache` that the context's project may see, else None."""
        return self._cache.get((key, None)) or self._cache.get((key, context.project_id, context.is_admin))

    def _add_to_cache(self, key: Hashable, context: RequestContext, value: Any, is_public: bool) -> None:
        """Cache a value for later creates: of all projects if it is public, else of the same project."""
        self._cache[(key, None) if is_public else (key, context.project_id, context.is_admin)] = value

    def _flavor(self, context: RequestContext, flavor_id: str) -> Flavor | None:
        key = ("flavor", flavor_id)
        flavor: Flavor | None = self._cached(key, context)
        if flavor is None:
            try:
                flavor = flavors.get(self._uow, context, flavor_id)
            except exceptions.FlavorNotFound:
                return None
            self._add_to_cache(key, context, flavor, flavor.is_public)
        return flavor

    def _disk_sources(self, context: RequestContext, request: CreateRequest) -> tuple[Mapping[str, Image], BootVolumes]:
        """Return images that the server's disks are made of, by id, and the volumes that it may boot from."""
        root = root_volume(request.block_devices) if request.block_devices else None
        images: Mapping[str, Image] = request.images
        if not images:
            image_ids = [request.image_ref] if root is None and request.image_ref else []
            for device in request.block_devices:
                if device.image_id:
                    image_ids.append(device.image_id)
            images = self._images(context, image_ids)
        image = images.get(request.image_ref)
        if root is None and image is not None and DEVICES in image.properties:
            root = image_devices.boot_device(image)
        if root is None:
            return images, NO_VOLUMES
        boot_volumes = self._boot_volumes(context, request, root)
        source = boot_volumes.by_id.get(root.volume_id or root.snapshot_id or "")
        if source is not None and source.image is not None and not request.images:
            part_ids = [image_id for _, image_id in source.image.boot_parts()]
            images = {**images, **self._images(context, part_ids)}
        return images, boot_volumes

    def _images(self, context: RequestContext, image_ids: Sequence[str]) -> Mapping[str, Image]:
        images: dict[str, Image] = {}
        for image_id in image_ids:
            key = ("image", image_id)
            loaded: dict[str, Image] | None = self._cached(key, context)
            if loaded is None:
                loaded = boot_images.read(self._uow, context, image_id)
                is_public = True
                for image in loaded.values():
                    is_public = is_public and image.visibility == "public"
                self._add_to_cache(key, context, loaded, is_public and bool(loaded))
            images |= loaded
        return images

    def _boot_volumes(self, context: RequestContext, request: CreateRequest, root: BlockDevice) -> BootVolumes:
        if cinder.is_backend(self._uow):
            return BootVolumes(request.volumes, are_complete=False)
        try:
            if root.volume_id is not None:
                return BootVolumes({root.volume_id: volumes.get(self._uow, context, root.volume_id)})
            if root.snapshot_id is not None:
                return BootVolumes({root.snapshot_id: volumes.get_snapshot(self._uow, context, root.snapshot_id)})
        except (exceptions.VolumeNotFound, exceptions.SnapshotNotFound):
            return NO_VOLUMES  # complete, so the validation refuses the request
        return NO_VOLUMES

    def _security_groups(self, create: IncomingCreate) -> SecurityGroups | exceptions.NovaLiteException:
        """Return the groups. Groups of our own are locked, so that they exist until the transaction ends."""
        if self._network.has_remote_ports:
            return SecurityGroups(create.resolution.group_names or [DEFAULT], create.resolution.security_groups)
        try:
            names = security_groups.named(self._uow, create.project_id, create.request.security_groups)
        except exceptions.NovaLiteException as error:
            return error
        return SecurityGroups(names, [])

    def _zone_exists(self, zone: str) -> bool:
        key = ("zone", zone)
        if key not in self._cache:
            self._cache[key] = services.zone_exists(self._uow, zone)
        return bool(self._cache[key])

    def _unknown_host(self, request: CreateRequest) -> str | None:
        """Return the first host or node that the request names and that does not exist."""
        places = [(request.forced_host, request.forced_node)]
        if request.requested_destination is not None:
            places.append((request.requested_destination.host, request.requested_destination.node))
        for host, node in places:
            if (host or node) and not compute_nodes.exists(self._uow, host, node):
                return host or node
        return None

    def _networks(self, create: IncomingCreate) -> list[NetworkRequest] | exceptions.NovaLiteException:
        context, requested = create.context, create.request.networks
        is_shared = isinstance(requested, str) and not self._network.remote
        key = ("networks", requested if is_shared else None)
        resolved: list[NetworkRequest] | None = self._cached(key, context) if is_shared else None
        if resolved is None:
            try:
                resolved = self._network.resolve(self._store, context, requested, create.resolution)
            except exceptions.NovaLiteException as error:
                return error
            if is_shared:
                self._add_to_cache(key, context, resolved, is_public=False)
        return resolved
