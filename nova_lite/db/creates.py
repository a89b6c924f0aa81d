"""All that a create reads from the database, and how a repeated create request is recognised.

`load` reads a snapshot for each request of a transaction, and refuses nothing. A missing row is None or absent from
its mapping, and an error of the network backend or of a security group is kept as a value. So the validation reports
the errors of a request in a fixed order. Values that several requests need are read once.

The uuids of instances are derived from the request id or the idempotency key. So a repeated request finds the
instances of the first one, and two that run at the same time cannot both insert them.
"""

from __future__ import annotations

import base64
import functools
import json
import uuid
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from oslo_config import cfg

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.ids import derived_id
from nova_lite.db.core import actions, quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import KeyPair
from nova_lite.db.hosts import compute_nodes, services
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.db.servers import flavors, instances, keypairs
from nova_lite.db.upkeep import purge
from nova_lite.db.volume import cinder, volumes
from nova_lite.image import image_devices
from nova_lite.image.snapshots import DEVICES
from nova_lite.network.driver import NetworkBackend
from nova_lite.objects import (
    BlockDevice,
    CreateRequest,
    CreateResult,
    Flavor,
    Image,
    NetworkRequest,
    Volume,
    VolumeSnapshot,
)
from nova_lite.objects.block_device import root_volume
from nova_lite.objects.security_group import DEFAULT

_NAMESPACE = uuid.UUID("6d1f4f2e-4e0b-4b52-9d0c-3f1f2c8a7a10")

#: Key in an instance's ``system_metadata``: the fingerprint of the request that came with the idempotency key.
FINGERPRINT = "idempotency_fingerprint"


class IncomingCreate(NamedTuple):
    """A create request.

    ``seed``: the text that uuids are derived from, the same for each try of one request. ``resolution``: the reply of a
    remote network service about the request's networks, else None.
    """

    context: RequestContext
    request: CreateRequest
    project_id: str
    seed: str
    resolution: Any = None


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


class CreateSnapshot(NamedTuple):
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


def incoming_create(context: RequestContext, request: CreateRequest) -> IncomingCreate:
    seed = str(context.request_id)
    if request.idempotency_key is not None:
        seed = json.dumps([context.project_id, context.user_id, request.idempotency_key])
    return IncomingCreate(context, request, context.project_id or "", seed)


def instance_uuid(seed: str, index: int) -> str:
    return derived_id(_NAMESPACE, f"{seed}/{index}")


def reservation_id(seed: str) -> str:
    """Return an id in Nova's form, ``r-`` and eight letters or digits."""
    return "r-" + base64.b32encode(uuid.UUID(derived_id(_NAMESPACE, seed)).bytes).decode()[:8].lower()


def was_accepted(uow: UnitOfWork, create: IncomingCreate) -> bool:
    return bool(instances.of_request(uow, instance_uuid(create.seed, 0), create.project_id))


def load(
    uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, creates: Sequence[IncomingCreate]
) -> list[CreateSnapshot | CreateResult]:
    """Return the snapshot of each create, or the result of a create that was accepted before.

    Raises `Forbidden` for a create without a project, `IdempotencyKeyReused` for a key of another or a purged server.
    """
    earlier = _find_earlier(uow, creates)
    new = [create for create in creates if create.seed not in earlier]
    users = {(create.project_id, create.context.user_id) for create in new}
    limits = quotas.limits_of_several(uow, conf, users) if users else {}
    store = builtin_networks.Store(uow, projects={project_id for project_id, _ in users})
    return [
        earlier[create.seed]
        if create.seed in earlier
        else _snapshot(uow, network, store, create, limits[create.project_id, create.context.user_id])
        for create in creates
    ]


def _find_earlier(uow: UnitOfWork, creates: Sequence[IncomingCreate]) -> dict[str, CreateResult]:
    """Return the results of creates that were accepted before, by seed."""
    first_uuids: dict[str, IncomingCreate] = {}
    for create in creates:
        if not create.project_id:
            raise exceptions.Forbidden("A server belongs to a project; this token is for none.")
        first_uuids[instance_uuid(create.seed, 0)] = create
    projects = instances.projects_of(uow, list(first_uuids))
    earlier = {}
    for first_uuid, create in first_uuids.items():
        if projects.get(first_uuid) == create.project_id:
            earlier[create.seed] = _earlier_result(uow, create, first_uuid)
        elif create.request.idempotency_key is not None and purge.purged(uow, [first_uuid]):
            raise exceptions.IdempotencyKeyReused(
                "The server that was made with this Idempotency-Key was deleted, long ago: take a new key for a new "
                "server."
            )
    return earlier


def _earlier_result(uow: UnitOfWork, create: IncomingCreate, first_uuid: str) -> CreateResult:
    """Return the instances of the first try. Raises `IdempotencyKeyReused` if the key came with another request."""
    rows = instances.of_request(uow, first_uuid, create.project_id)
    result = CreateResult(reservation_id=rows[0].reservation_id, instances=instances.to_objects(uow, rows))
    if create.request.idempotency_key is not None:
        if rows[0].system_metadata.get(FINGERPRINT, create.request.fingerprint) != create.request.fingerprint:
            raise exceptions.IdempotencyKeyReused()
        same_call = actions.find_by_request(uow, create.context.request_id, operations.CREATE.kind, rows[0].uuid)
        result.earlier = same_call is None
    return result


def _snapshot(
    uow: UnitOfWork,
    network: NetworkBackend,
    store: builtin_networks.Store,
    create: IncomingCreate,
    limits: quotas.QuotaBounds,
) -> CreateSnapshot:
    context, request = create.context, create.request
    flavor = uow.once(
        ("flavor", request.flavor_id),
        lambda: flavors.find(uow, context, request.flavor_id),
        _view(context),
        lambda found: found is not None and found.is_public,
    )
    disk_images, boot_volumes = _disk_sources(uow, context, request)
    zone = request.availability_zone
    return CreateSnapshot(
        flavor=flavor,
        images=disk_images,
        volumes=boot_volumes,
        key=keypairs.find(uow, context.user_id or "", request.key_name) if request.key_name else None,
        limits=limits,
        security_groups=_security_groups(uow, network, create),
        zone_exists=zone is None or uow.once(("zone", zone), lambda: services.zone_exists(uow, zone)),
        unknown_host=_unknown_host(uow, request),
        networks=_networks(uow, network, store, create),
    )


def _view(context: RequestContext) -> Hashable:
    """Return a value that is equal for contexts which see the same flavors, images and networks."""
    return context.project_id, context.is_admin


def _disk_sources(
    uow: UnitOfWork, context: RequestContext, request: CreateRequest
) -> tuple[Mapping[str, Image], BootVolumes]:
    """Return images that the server's disks are made of, by id, and the volumes that it may boot from."""
    root = root_volume(request.block_devices) if request.block_devices else None
    found: Mapping[str, Image] = request.images
    if not found:
        image_ids = [request.image_ref] if root is None and request.image_ref else []
        image_ids += [device.image_id for device in request.block_devices if device.image_id]
        found = _images(uow, context, image_ids)
    image = found.get(request.image_ref)
    if root is None and image is not None and DEVICES in image.properties:
        root = image_devices.boot_device(image)
    if root is None:
        return found, NO_VOLUMES
    boot_volumes = _boot_volumes(uow, context, request, root)
    source = boot_volumes.by_id.get(root.volume_id or root.snapshot_id or "")
    if source is not None and source.image is not None and not request.images:
        part_ids = [image_id for _, image_id in source.image.boot_parts()]
        found = {**found, **_images(uow, context, part_ids)}
    return found, boot_volumes


def _images(uow: UnitOfWork, context: RequestContext, image_ids: Sequence[str]) -> Mapping[str, Image]:
    found: dict[str, Image] = {}
    for image_id in image_ids:
        loaded: dict[str, Image] = uow.once(
            ("image", image_id),
            functools.partial(images.with_boot_parts, uow, context, image_id),
            _view(context),
            lambda parts: {part.visibility for part in parts.values()} == {"public"},
        )
        found |= loaded
    return found


def _boot_volumes(uow: UnitOfWork, context: RequestContext, request: CreateRequest, root: BlockDevice) -> BootVolumes:
    if cinder.is_backend(uow):
        return BootVolumes(request.volumes, are_complete=False)
    try:
        if root.volume_id is not None:
            return BootVolumes({root.volume_id: volumes.get(uow, context, root.volume_id)})
        if root.snapshot_id is not None:
            return BootVolumes({root.snapshot_id: volumes.get_snapshot(uow, context, root.snapshot_id)})
    except (exceptions.VolumeNotFound, exceptions.SnapshotNotFound):
        return NO_VOLUMES  # complete, so the validation refuses the request
    return NO_VOLUMES


def _security_groups(
    uow: UnitOfWork, network: NetworkBackend, create: IncomingCreate
) -> SecurityGroups | exceptions.NovaLiteException:
    """Return the groups. Groups of our own are locked, so that they exist until the transaction ends."""
    if network.has_remote_ports:
        return SecurityGroups(create.resolution.group_names or [DEFAULT], create.resolution.security_groups)
    try:
        return SecurityGroups(security_groups.named(uow, create.project_id, create.request.security_groups), [])
    except exceptions.NovaLiteException as error:
        return error


def _unknown_host(uow: UnitOfWork, request: CreateRequest) -> str | None:
    """Return the first host or node that the request names and that does not exist."""
    places = [(request.forced_host, request.forced_node)]
    if request.requested_destination is not None:
        places.append((request.requested_destination.host, request.requested_destination.node))
    for host, node in places:
        if (host or node) and not compute_nodes.exists(uow, host, node):
            return host or node
    return None


def _networks(
    uow: UnitOfWork, network: NetworkBackend, store: builtin_networks.Store, create: IncomingCreate
) -> list[NetworkRequest] | exceptions.NovaLiteException:
    context, requested = create.context, create.request.networks
    resolve = functools.partial(network.resolve, store, context, requested, create.resolution)
    try:
        if isinstance(requested, str) and not network.remote:
            return uow.once(("networks", requested), resolve, _view(context), lambda found: False)
        return resolve()
    except exceptions.NovaLiteException as error:
        return error
