"""Accepting a create: check everything that can be checked now, then write instances, actions and quota at once."""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from oslo_config import cfg

from nova_lite import exception, operations, states
from nova_lite.conductor.db import (
    actions,
    compute_nodes,
    flavors,
    images,
    instances,
    keypairs,
    networks,
    purge,
    quotas,
    server_groups,
    services,
)
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.conductor.db.models import Instance, InstanceTag, KeyPair
from nova_lite.context import RequestContext
from nova_lite.network.driver import NetworkBackend, NetworkCall, Verb
from nova_lite.objects import (
    CreateRequest,
    CreateResult,
    Flavor,
    Image,
    NetworkRequest,
    RequestedDestination,
    security_group,
)
from nova_lite.objects import Instance as InstanceObject

GIB = 1024**3

#: Instance uuids are made from the request id, so that a repeated request cannot create anything twice.
_NAMESPACE = uuid.UUID("6d1f4f2e-4e0b-4b52-9d0c-3f1f2c8a7a10")

#: In an instance's ``system_metadata``: the fingerprint of the request whose idempotency key it was made with.
_FINGERPRINT = "idempotency_fingerprint"


class Create:
    """The RPC method `create_instances`."""

    def __init__(self, db: Database, conf: cfg.ConfigOpts, network: NetworkBackend) -> None:
        self.db = db
        self.conf = conf
        self.network = network

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Write ``request.min_count`` to ``max_count`` instances, as many as the quota allows, or refuse all of it; the
        same request id or idempotency key again returns the same instances."""
        answer = None
        if self.network.remote and context.project_id:
            answer = self.network.call(NetworkCall(verb=Verb.RESOLVE, context=context, networks=request.networks))
        arguments = (self.conf, self.network, context, request, answer)
        return self.db.write_once_more(create_instances, *arguments)


def create_instances(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    network: NetworkBackend,
    context: RequestContext,
    request: CreateRequest,
    answer: Any,
) -> CreateResult:
    if not context.project_id:
        raise exception.Forbidden("A server belongs to a project; this token is for none.")
    seed = _seed(context, request)
    repeated = instances.of_request(uow, _instance_uuid(seed, 0), context.project_id)
    if repeated:
        return _again(uow, context, request, repeated)
    if request.idempotency_key is not None and purge.purged(uow, [_instance_uuid(seed, 0)]):
        raise exception.IdempotencyKeyReused(
            "The server that was made with this Idempotency-Key was deleted, long ago: take a new key for a new server."
        )
    flavor = _flavor(uow, context, request)
    image, boot_images = find_images(uow, context, request.image_ref, request.images, flavor)
    key = None if request.key_name is None else keypairs.find(uow, context.user_id or "", request.key_name)
    if request.key_name is not None and key is None:
        raise exception.KeypairUnavailable()
    limits = quotas.limits_of(uow, conf, context.project_id, context.user_id)
    check_limits(limits.both, request.metadata, request.injected_files)
    _check_security_groups(request, context.project_id)
    _check_placement(uow, request)
    requested_networks = network.resolve(networks.Store(uow), context, request.networks, answer)
    _check_count_against_networks(request, requested_networks)
    count = _take_quota(uow, conf, context, request, flavor, limits)

    rows = []
    for index in range(count):
        row = _instance(uow, context, request, flavor, image, key, index, count, seed)
        if request.idempotency_key is not None:
            row.system_metadata = {**row.system_metadata, _FINGERPRINT: request.fingerprint}
        row.boot_images = msgspec.to_builtins(boot_images)
        row.request = _build_data(request, requested_networks)
        uow.session.add(row)
        rows.append(row)
    uow.session.flush()
    if group := _group(request):
        server_groups.join(uow, conf, context, group, [row.uuid for row in rows])
    for row in rows:
        action = actions.open_action(uow, conf, context, row, operations.CREATE.kind, {"tried": []})
        action.step = operations.SCHEDULE
    uow.session.flush()
    return _result(rows, [instances.created(row) for row in rows])


def _result(rows: Sequence[Instance], told: list[InstanceObject]) -> CreateResult:
    return CreateResult(reservation_id=rows[0].reservation_id, instances=told)


def _again(uow: UnitOfWork, context: RequestContext, request: CreateRequest, rows: Sequence[Instance]) -> CreateResult:
    """What was created the first time, unless its key was for something else then."""
    result = _result(rows, instances.to_objects(uow, rows))
    if request.idempotency_key is not None:
        if rows[0].system_metadata.get(_FINGERPRINT, request.fingerprint) != request.fingerprint:
            raise exception.IdempotencyKeyReused()
        same_call = actions.find_by_request(uow, context.request_id, operations.CREATE.kind, rows[0].uuid)
        result.earlier = same_call is None
    return result


def _seed(context: RequestContext, request: CreateRequest) -> str:
    """What instances' uuids are made from: the same for each try of one request."""
    if request.idempotency_key is None:
        return str(context.request_id)
    return json.dumps([context.project_id, context.user_id, request.idempotency_key])


def _instance_uuid(seed: str, index: int) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{seed}/{index}"))


def _reservation_id(seed: str) -> str:
    """In the form of Nova's, ``r-`` and eight letters or digits: 2**40 of them."""
    return "r-" + base64.b32encode(uuid.uuid5(_NAMESPACE, seed).bytes).decode()[:8].lower()


def _flavor(uow: UnitOfWork, context: RequestContext, request: CreateRequest) -> Flavor:
    try:
        flavor = flavors.get(uow, context, request.flavor_id)
    except exception.FlavorNotFound as error:
        raise exception.FlavorUnavailable(flavor_id=request.flavor_id) from error
    if flavor.disabled:
        raise exception.FlavorUnavailable(flavor_id=request.flavor_id)
    return flavor


def find_images(
    uow: UnitOfWork, context: RequestContext, image_ref: str, described: Mapping[str, Image], flavor: Flavor | None
) -> tuple[Image | None, dict[str, Image]]:
    """The image, and by id its kernel and ramdisk; None for a request without one. ``described``: by id, where the API
    knows them (Glance). Raises a 400 unless a server of this flavor (None: of any) can boot from it."""
    if not image_ref:
        return None, {}
    image = _visible_image(uow, context, described, image_ref)
    if image is None:
        raise exception.ImageUnavailable()
    if image.status != "active":
        raise exception.ImageNotActive(image_id=image.id)
    boot_images = {}
    for part, part_id in image.boot_parts():
        found = _visible_image(uow, context, described, part_id)
        if found is None:
            raise exception.InvalidInput(reason=f"image {image.id} names a {part} {part_id} that does not exist")
        boot_images[part_id] = found
    if flavor is not None:
        check_flavor_fits(image, flavor)
    return image, boot_images


def check_flavor_fits(image: Image, flavor: Flavor) -> None:
    if image.min_ram > flavor.memory_mb:
        raise exception.FlavorMemoryTooSmall(flavor_mb=flavor.memory_mb, image_mb=image.min_ram)
    needed_gb = max(image.min_disk, -(-image.size // GIB))
    if flavor.root_gb and needed_gb > flavor.root_gb:
        raise exception.FlavorDiskTooSmall(flavor_size=flavor.root_gb, image_min_disk=needed_gb)


def _visible_image(
    uow: UnitOfWork, context: RequestContext, described: Mapping[str, Image], image_id: str
) -> Image | None:
    if described:
        return described.get(image_id)
    try:
        return images.get(uow, context, image_id)
    except exception.ImageNotFound:
        return None


def check_limits(limits: Mapping[str, int], metadata: Mapping[str, str], injected_files: Mapping[str, str]) -> None:
    """Limits that count within one request. ``injected_files``: path to base64."""

    def over(resource: str, value: int) -> bool:
        return 0 <= limits[resource] < value

    if over("metadata_items", len(metadata)):
        raise exception.MetadataLimitExceeded(allowed=limits["metadata_items"])
    if over("injected_files", len(injected_files)):
        raise exception.InjectedFileLimitExceeded(reason="Maximum number of injected files exceeded")
    for path, content in injected_files.items():
        if over("injected_file_path_length", len(path)):
            raise exception.InjectedFileLimitExceeded(reason=f"Injected file path too long: {path[:64]}...")
        if over("injected_file_content_bytes", len(content) * 3 // 4):
            raise exception.InjectedFileLimitExceeded(reason=f"Injected file content too long: {path}")


def _check_security_groups(request: CreateRequest, project_id: str) -> None:
    """A project has one security group, ``default``."""
    for name in request.security_groups:
        if not security_group.is_default(name, project_id):
            raise exception.SecurityGroupUnavailable(name=name)


def _check_placement(uow: UnitOfWork, request: CreateRequest) -> None:
    """Zone, host and node have to exist; whether they have room is the scheduler's to say."""
    if request.availability_zone is not None and not services.zone_exists(uow, request.availability_zone):
        raise exception.AvailabilityZoneUnavailable()
    for wanted in (
        RequestedDestination(host=request.forced_host, node=request.forced_node),
        request.requested_destination or RequestedDestination(),
    ):
        if (wanted.host or wanted.node) and not compute_nodes.exists(uow, wanted.host, wanted.node):
            raise exception.ComputeHostUnknown(host=wanted.host or wanted.node)


def _group(request: CreateRequest) -> str:
    """The server group that the hints ask for; empty for none."""
    hint = request.scheduler_hints.get("group", "")
    return hint if isinstance(hint, str) else next(iter(hint), "")


def _check_count_against_networks(request: CreateRequest, requested: list[NetworkRequest]) -> None:
    if request.max_count == 1:
        return
    if any(network.port_id for network in requested):
        raise exception.InvalidInput(reason="Unable to launch multiple instances with a single configured port ID")
    if any(network.fixed_ip for network in requested):
        raise exception.InvalidInput(reason="max_count cannot be greater than 1 if an fixed_ip is specified.")


def _take_quota(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    request: CreateRequest,
    flavor: Flavor,
    limits: quotas.Bounds,
) -> int:
    """Take quota for as many instances as there is room for, at least ``min_count``; returns how many."""
    each = {"instances": 1, "cores": flavor.vcpus, "ram": flavor.memory_mb}
    project_id, user_id = context.project_id or "", context.user_id
    count = request.min_count
    if request.max_count > count:
        count = max(count, quotas.room(uow, conf, project_id, user_id, each, request.max_count))
    amounts = {resource: amount * count for resource, amount in each.items()}
    quotas.take(uow, conf, project_id, amounts, user_id, limits)
    return count


def _instance(
    uow: UnitOfWork,
    context: RequestContext,
    request: CreateRequest,
    flavor: Flavor,
    image: Image | None,
    key: KeyPair | None,
    index: int,
    count: int,
    seed: str,
) -> Instance:
    suffix = f"-{index + 1}" if count > 1 else ""
    instance_uuid = _instance_uuid(seed, index)
    return Instance(
        uuid=instance_uuid,
        project_id=context.project_id,
        user_id=context.user_id,
        display_name=request.name[: 255 - len(suffix)] + suffix,
        display_description=request.description,
        hostname=_requested_hostname(request, suffix) or hostname(request.name, suffix, instance_uuid),
        reservation_id=_reservation_id(seed),
        launch_index=index,
        vm_state=states.BUILDING,
        task_state=states.SCHEDULING,
        requested_availability_zone=request.availability_zone,
        availability_zone=request.availability_zone,
        image_ref=request.image_ref,
        kernel_id=(image and image.kernel_id) or "",
        ramdisk_id=(image and image.ramdisk_id) or "",
        flavorid=flavor.flavorid,
        flavor=msgspec.to_builtins(flavor),
        image=None if image is None else msgspec.to_builtins(image),
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=flavor.disk_gb,
        key_name=None if key is None else key.name,
        key_data=None if key is None else key.public_key,
        user_data=request.user_data,
        config_drive=request.config_drive or (image is not None and _wants_config_drive(image)),
        auto_disk_config=request.auto_disk_config,
        access_ip_v4=request.access_ip_v4,
        access_ip_v6=request.access_ip_v6,
        metadata_=request.metadata,
        system_metadata={} if image is None else image_metadata(image),
        security_groups=[security_group.DEFAULT],
        scheduler_hints=request.scheduler_hints,
        tags=[InstanceTag(tag=tag) for tag in dict.fromkeys(request.tags)],
        created_at=uow.now,
        updated_at=uow.now,
    )


def image_metadata(image: Image) -> dict[str, str]:
    """What an instance remembers of its image, in its system metadata."""
    return {f"image_{name}": str(value)[:255] for name, value in image.properties.items()}


def _wants_config_drive(image: Image) -> bool:
    return image.properties.get("img_config_drive") == "mandatory"


def _build_data(request: CreateRequest, requested_networks: list[NetworkRequest]) -> dict[str, Any]:
    """What only the build needs; emptied as soon as the build has ended, because some of it is secret."""
    data: dict[str, Any] = msgspec.to_builtins(
        {
            "networks": requested_networks,
            "forced_host": request.forced_host,
            "forced_node": request.forced_node,
            "requested_destination": request.requested_destination,
            "injected_files": request.injected_files,
            "admin_password": request.admin_password,
        }
    )
    return data


def _requested_hostname(request: CreateRequest, suffix: str) -> str | None:
    """What the user asked for, which may be a fully qualified name, is kept as it is."""
    return request.hostname[: 255 - len(suffix)] + suffix if request.hostname else None


def hostname(name: str, suffix: str, instance_uuid: str) -> str:
    """A legal host name from a display name: letters, digits, dashes, at most 63; ``server-<uuid>`` if none is left."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower().replace("_", "-").replace(" ", "-"))
    plain = plain.strip("-")[: 63 - len(suffix)].strip("-")
    return plain + suffix if plain else f"server-{instance_uuid}"[:63]
