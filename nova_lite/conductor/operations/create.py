"""Accepting a create: check everything that can be checked now, then write instances, actions and quota at once."""

from __future__ import annotations

import base64
import collections
import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite import hardware, operations
from nova_lite.base import exceptions
from nova_lite.base.batching import MOST, Batcher
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.dispatcher import ActionDispatcher
from nova_lite.conductor.engine.placement_request import PlacementRequest, placement_request_of
from nova_lite.conductor.operations import block_devices, image_devices, volume_sources
from nova_lite.db import (
    actions,
    compute_nodes,
    fixed_ips,
    flavors,
    instances,
    keypairs,
    networks,
    purge,
    quotas,
    security_groups,
    server_groups,
    services,
)
from nova_lite.db.engine import Database, UnitOfWork, translate
from nova_lite.db.models import Instance, InstanceAction, InstanceTag, KeyPair
from nova_lite.network.driver import NetworkBackend, NetworkCall, Verb
from nova_lite.objects import (
    CreateRequest,
    CreateResult,
    Creation,
    Flavor,
    Image,
    NetworkRequest,
    RequestedDestination,
)
from nova_lite.objects import Instance as InstanceObject
from nova_lite.objects.security_group import DEFAULT
from nova_lite.operations import states

LOG = logging.getLogger(__name__)

GIB = 1024**3

#: Instance uuids are made from the request id, so that a repeated request cannot create anything twice.
_NAMESPACE = uuid.UUID("6d1f4f2e-4e0b-4b52-9d0c-3f1f2c8a7a10")

#: In an instance's ``system_metadata``: the fingerprint of the request whose idempotency key it was made with.
_FINGERPRINT = "idempotency_fingerprint"


class _Asked(NamedTuple):
    """A create; ``answer``: what the network service says of its networks."""

    context: RequestContext
    request: CreateRequest
    answer: Any


class CreateEndpoints:
    """The RPC methods `create_instances` and `create_instances_together`."""

    def __init__(
        self, db: Database, conf: cfg.ConfigOpts, network: NetworkBackend, drives: ActionDispatcher | None = None
    ) -> None:
        """``drives``: who drives what was accepted; None: whoever is nudged."""
        self.db = db
        self.conf = conf
        self.network = network
        self.drives = drives
        self._line: Batcher[list[_Asked], list[CreateResult | Exception]] = Batcher(self._accept_all, writes=True)

    def create_instances(self, context: RequestContext, request: CreateRequest) -> CreateResult:
        """Write ``request.min_count`` to ``max_count`` instances, as many as the quota allows, or refuse all of it; the
        same request id or idempotency key again returns the same instances."""
        answer = None
        if self.network.remote and context.project_id:
            call = NetworkCall(verb=Verb.RESOLVE, context=context, networks=request.networks)
            call.security_groups = request.security_groups
            try:
                answer = self.network.call(call)
            except exceptions.NovaLiteException:
                # Of a repeated request the first one may have taken what there is only once: a port.
                if not self.db.read(_was_accepted, context, request):
                    raise
        asked = _Asked(context, request, answer)
        # Many servers in one request would have all others wait for them.
        (accepted,) = self._line.ask([asked]) if request.max_count == 1 else [self._accept_one(asked)]
        if isinstance(accepted, Exception):
            raise accepted
        return accepted

    def create_instances_together(self, context: RequestContext, creates: list[Creation]) -> list[CreateResult | None]:
        if self.network.remote:
            return [None] * len(creates)
        asked = [_Asked(RequestContext.from_rpc(each.context), each.request, None) for each in creates]
        return [None if isinstance(each, Exception) else each for each in self._line.ask(asked)]

    def _accept_all(self, messages: list[list[_Asked]]) -> list[list[CreateResult | Exception]]:
        """What each of these messages asks for. Each is as large as a transaction may be; together they may be more."""
        everything = [each for asked in messages for each in asked]
        parts = [everything[start : start + MOST] for start in range(0, len(everything), MOST)]
        accepted = iter([result for part in parts for result in self._accept(part)])
        return [[next(accepted) for _ in asked] for asked in messages]

    def _accept(self, asked: list[_Asked]) -> list[CreateResult | Exception]:
        """Those that came together, by one transaction. If any of them cannot be, each by its own: what is refused may
        have been only because of another one that is refused, too."""
        seeds = {_seed(each.context, each.request) for each in asked}
        if len(asked) > 1 and len(seeds) == len(asked):  # one that came twice finds what it made the first time
            # In one order everywhere, as the transaction locks the counters of several projects.
            order = sorted(range(len(asked)), key=lambda index: asked[index].context.project_id or "")
            try:
                accepted = self.db.write(self._create_instances, [asked[index] for index in order])
            except Exception as error:
                if isinstance(translate(error), exceptions.DatabaseUnavailable):
                    raise
                LOG.info("Creates that came together are accepted one by one: %s", " ".join(str(error).split()))
            else:
                self._drive([each for _, wanted in accepted for each in wanted])
                results = {index: result for index, (result, _) in zip(order, accepted, strict=True)}
                return [results[index] for index in range(len(asked))]
        return [self._accept_one(each) for each in asked]

    def _accept_one(self, asked: _Asked) -> CreateResult | Exception:
        try:
            ((result, wanted),) = self.db.write_once_more(self._create_instances, [asked])
        except Exception as error:
            return error
        self._drive(wanted)
        return result

    def _create_instances(
        self, uow: UnitOfWork, asked: list[_Asked]
    ) -> list[tuple[CreateResult, list[PlacementRequest]]]:
        drive = self.drives is not None and self.drives.started
        return create_instances(uow, self.conf, self.network, asked, drive)

    def _drive(self, wanted: list[PlacementRequest]) -> None:
        if wanted and self.drives is not None:
            self.drives.add(wanted)


def create_instances(
    uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, asked: list[_Asked], drive: bool = False
) -> list[tuple[CreateResult, list[PlacementRequest]]]:
    """What was created of each, and (``drive``) what its maker has to drive from now on, which is leased. All or
    none."""
    done = _earlier(uow, asked)
    plans = _plans(uow, conf, network, {each: one for each, one in enumerate(asked) if each not in done})
    counts = _take_quota(uow, conf, network, plans)
    rows = {each: _rows(uow, plan, counts[each]) for each, plan in plans.items()}
    uow.session.flush()
    opened = {}
    for each, plan in plans.items():
        _reserve(uow, conf, network, plan, rows[each])
        opened[each] = _open(uow, conf, plan, rows[each], drive)
    uow.session.flush()
    for each, plan in plans.items():
        pairs = zip(opened[each], rows[each], strict=True)
        wanted = [placement_request_of(uow, plan.context, *pair) for pair in pairs] if drive else []
        result = _result(rows[each], [instances.created(row) for row in rows[each]])
        result.driven = drive
        done[each] = result, wanted
    return [done[each] for each in range(len(asked))]


class _Plan(NamedTuple):
    """What is to be created, all that could be checked having been checked. ``groups``: names of security groups,
    ``group_ids``: a network service's of them."""

    context: RequestContext
    project_id: str
    request: CreateRequest
    seed: str
    flavor: Flavor
    image: Image | None
    boot_images: dict[str, Image]
    key: KeyPair | None
    limits: quotas.QuotaBounds
    groups: list[str]
    group_ids: list[str]
    networks: list[NetworkRequest]

    @property
    def new_interfaces(self) -> int:
        """Of each server."""
        return sum(not each.port_id for each in self.networks)


def _earlier(uow: UnitOfWork, asked: list[_Asked]) -> dict[int, tuple[CreateResult, list[PlacementRequest]]]:
    """What some of them, by their place, were answered before."""
    for each in asked:
        if not each.context.project_id:
            raise exceptions.Forbidden("A server belongs to a project; this token is for none.")
    firsts = [_instance_uuid(_seed(each.context, each.request), 0) for each in asked]
    found = instances.projects_of(uow, firsts)
    earlier = {}
    for index, (first, (context, request, _)) in enumerate(zip(firsts, asked, strict=True)):
        if found.get(first) == context.project_id:
            repeated = instances.of_request(uow, first, context.project_id)
            earlier[index] = _again(uow, context, request, repeated), list[PlacementRequest]()
        elif request.idempotency_key is not None and purge.purged(uow, [first]):
            raise exceptions.IdempotencyKeyReused(
                "The server that was made with this Idempotency-Key was deleted, long ago: take a new key for a new "
                "server."
            )
    return earlier


def _plans(
    uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, asked: Mapping[int, _Asked]
) -> dict[int, _Plan]:
    """Nothing is written yet, and no quota taken. What several read that are accepted together is read once."""
    askers = {(each.context.project_id or "", each.context.user_id) for each in asked.values()}
    store = networks.Store(uow, projects={project_id for project_id, _ in askers})
    limits = quotas.limits_of_several(uow, conf, askers) if asked else {}
    return {index: _planned(uow, network, store, limits, each) for index, each in asked.items()}


def _planned(
    uow: UnitOfWork,
    network: NetworkBackend,
    store: networks.Store,
    limits_of: Mapping[tuple[str, str | None], quotas.QuotaBounds],
    asked: _Asked,
) -> _Plan:
    context, request, answer = asked
    project_id = context.project_id or ""
    asker = (project_id, context.is_admin)
    flavor = uow.once(
        ("flavor", request.flavor_id), lambda: _flavor(uow, context, request), asker, lambda found: found.is_public
    )
    block_devices.check(request, flavor)
    found = block_devices.boot_image(uow, context, request, flavor)
    image, boot_images = found or _images(uow, context, request, flavor)
    if found is None and image is not None and image_devices.are_named(image):
        request = image_devices.with_devices_of(image, request)
        block_devices.check(request, flavor)
        found = block_devices.boot_image(uow, context, request, flavor)
        assert found is not None
        image, boot_images = found
    if found is not None:
        hardware.check(flavor, found[0])
    if image is not None and found is None and not flavor.root_gb and not request.may_have_zero_disk:
        raise exceptions.BootFromVolumeRequiredForZeroDiskFlavor()
    key = None if request.key_name is None else keypairs.find(uow, context.user_id or "", request.key_name)
    if request.key_name is not None and key is None:
        raise exceptions.KeypairUnavailable()
    limits = limits_of[project_id, context.user_id]
    check_limits(limits.both, request.metadata, request.injected_files)
    if network.keeps_ports:
        groups, group_ids = answer.group_names or [DEFAULT], answer.security_groups
    else:
        groups, group_ids = security_groups.named(uow, project_id, request.security_groups), []
    _check_placement(uow, request)
    requested = _networks(uow, network, store, context, request, answer)
    _check_count_against_networks(request, requested)
    seed = _seed(context, request)
    return _Plan(
        context, project_id, request, seed, flavor, image, boot_images, key, limits, groups, group_ids, requested
    )


def _rows(uow: UnitOfWork, plan: _Plan, count: int) -> list[Instance]:
    """To be written."""
    rows = []
    for index in range(count):
        row = _instance(uow, plan, index, count)
        if plan.request.idempotency_key is not None:
            row.system_metadata = {**row.system_metadata, _FINGERPRINT: plan.request.fingerprint}
        row.boot_images = msgspec.to_builtins(plan.boot_images)
        row.request = _build_data(plan.request, plan.networks, plan.group_ids)
        row.security_groups = plan.groups
        uow.session.add(row)
        rows.append(row)
    return rows


def _reserve(uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plan: _Plan, rows: list[Instance]) -> None:
    """What the servers, which are written, take along."""
    for row in rows:
        network.reserve(networks.Store(uow), row.uuid, plan.networks)
    if plan.request.block_devices:
        for row in rows:
            block_devices.take(uow, plan.context, plan.request, plan.flavor, row)
        uow.session.flush()
    if group := _group(plan.request):
        server_groups.join(uow, conf, plan.context, group, [row.uuid for row in rows])


def _open(
    uow: UnitOfWork, conf: cfg.ConfigOpts, plan: _Plan, rows: list[Instance], drive: bool
) -> list[InstanceAction]:
    kind = operations.CREATE.kind
    opened = [actions.open_action(uow, conf, plan.context, row, kind, {"tried": []}) for row in rows]
    owner = actions.new_owner()
    for action in opened:
        action.step = operations.SCHEDULE
        if drive:
            actions.take(uow, conf, action, owner)
    return opened


def _was_accepted(uow: UnitOfWork, context: RequestContext, request: CreateRequest) -> bool:
    return bool(instances.of_request(uow, _instance_uuid(_seed(context, request), 0), context.project_id or ""))


def _result(rows: Sequence[Instance], told: list[InstanceObject]) -> CreateResult:
    return CreateResult(reservation_id=rows[0].reservation_id, instances=told)


def _again(uow: UnitOfWork, context: RequestContext, request: CreateRequest, rows: Sequence[Instance]) -> CreateResult:
    """What was created the first time, unless its key was for something else then."""
    result = _result(rows, instances.to_objects(uow, rows))
    if request.idempotency_key is not None:
        if rows[0].system_metadata.get(_FINGERPRINT, request.fingerprint) != request.fingerprint:
            raise exceptions.IdempotencyKeyReused()
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
    except exceptions.FlavorNotFound as error:
        raise exceptions.FlavorUnavailable(flavor_id=request.flavor_id) from error
    if flavor.disabled:
        raise exceptions.FlavorUnavailable(flavor_id=request.flavor_id)
    return flavor


def _images(
    uow: UnitOfWork, context: RequestContext, request: CreateRequest, flavor: Flavor
) -> tuple[Image | None, dict[str, Image]]:
    """`find_images`, once for creates that are accepted together."""

    def find() -> tuple[Image | None, dict[str, Image]]:
        return find_images(uow, context, request.image_ref, request.images, flavor, data=False)

    if request.images:  # as this request's API found them at the image service
        return find()
    asker = (context.project_id, context.is_admin)
    return uow.once(("images", request.image_ref, flavor.flavorid), find, asker, _are_everybodys)


def _are_everybodys(found: tuple[Image | None, dict[str, Image]]) -> bool:
    image, parts = found
    return all(each is None or each.visibility == "public" for each in (image, *parts.values()))


def _networks(
    uow: UnitOfWork,
    network: NetworkBackend,
    store: networks.Store,
    context: RequestContext,
    request: CreateRequest,
    answer: Any,
) -> list[NetworkRequest]:
    def resolve() -> list[NetworkRequest]:
        return network.resolve(store, context, request.networks, answer)

    if network.remote or not isinstance(request.networks, str):
        return resolve()
    return uow.once(("networks", request.networks), resolve, (context.project_id, context.is_admin), lambda _: False)


def find_images(
    uow: UnitOfWork,
    context: RequestContext,
    image_ref: str,
    described: Mapping[str, Image],
    flavor: Flavor | None,
    data: bool = True,
) -> tuple[Image | None, dict[str, Image]]:
    """The image, and by id its kernel and ramdisk; None for a request without one. ``described``: by id, where the API
    knows them (Glance). Not ``data``: also one that has none. Raises a 400 unless a server of this flavor (None: of
    any) can boot from it."""
    if not image_ref:
        if flavor is not None:
            hardware.check(flavor, None)
        return None, {}
    image, boot_images = volume_sources.find_images(uow, context, image_ref, described, data)
    if flavor is not None:
        check_flavor_fits(image, flavor)
    return image, boot_images


def check_flavor_fits(image: Image, flavor: Flavor) -> None:
    """Its size, and `check_guest_fits`."""
    needed_gb = max(image.min_disk, -(-image.size // GIB))
    if flavor.root_gb and needed_gb > flavor.root_gb:
        raise exceptions.FlavorDiskTooSmall(flavor_size=flavor.root_gb, image_min_disk=needed_gb)
    check_guest_fits(image, flavor)


def check_guest_fits(image: Image, flavor: Flavor) -> None:
    """Its memory, and whether a guest can have all that flavor and image say of its hardware."""
    if image.min_ram > flavor.memory_mb:
        raise exceptions.FlavorMemoryTooSmall(flavor_mb=flavor.memory_mb, image_mb=image.min_ram)
    hardware.check(flavor, image)


def check_limits(limits: Mapping[str, int], metadata: Mapping[str, str], injected_files: Mapping[str, str]) -> None:
    """Limits that count within one request. ``injected_files``: path to base64."""

    def over(resource: str, value: int) -> bool:
        return 0 <= limits[resource] < value

    if over("metadata_items", len(metadata)):
        raise exceptions.MetadataLimitExceeded(allowed=limits["metadata_items"])
    if over("injected_files", len(injected_files)):
        raise exceptions.InjectedFileLimitExceeded(reason="Maximum number of injected files exceeded")
    for path, content in injected_files.items():
        if over("injected_file_path_length", len(path)):
            raise exceptions.InjectedFileLimitExceeded(reason=f"Injected file path too long: {path[:64]}...")
        if over("injected_file_content_bytes", len(content) * 3 // 4):
            raise exceptions.InjectedFileLimitExceeded(reason=f"Injected file content too long: {path}")


def _check_placement(uow: UnitOfWork, request: CreateRequest) -> None:
    """Zone, host and node have to exist; whether they have room is the scheduler's to say."""
    zone = request.availability_zone
    if zone is not None and not uow.once(("zone", zone), lambda: services.zone_exists(uow, zone)):
        raise exceptions.AvailabilityZoneUnavailable()
    for wanted in (
        RequestedDestination(host=request.forced_host, node=request.forced_node),
        request.requested_destination or RequestedDestination(),
    ):
        if (wanted.host or wanted.node) and not compute_nodes.exists(uow, wanted.host, wanted.node):
            raise exceptions.ComputeHostUnknown(host=wanted.host or wanted.node)


def _group(request: CreateRequest) -> str:
    """The server group that the hints ask for; empty for none."""
    hint = request.scheduler_hints.get("group", "")
    return hint if isinstance(hint, str) else next(iter(hint), "")


def _check_count_against_networks(request: CreateRequest, requested: list[NetworkRequest]) -> None:
    if request.max_count == 1:
        return
    if any(network.port_id for network in requested):
        raise exceptions.InvalidInput(reason="Unable to launch multiple instances with a single configured port ID")
    if any(network.fixed_ip for network in requested):
        raise exceptions.InvalidInput(reason="max_count cannot be greater than 1 if an fixed_ip is specified.")


def _take_quota(
    uow: UnitOfWork, conf: cfg.ConfigOpts, network: NetworkBackend, plans: Mapping[int, _Plan]
) -> dict[int, int]:
    """Take quota for all of them together, by user; returns how many servers each is to have: as many as there is room
    for, at least ``min_count``."""
    by_user: dict[tuple[str, str | None], list[int]] = {}
    for each, plan in plans.items():
        by_user.setdefault((plan.project_id, plan.context.user_id), []).append(each)
    counts: dict[int, int] = {}
    takings = []
    for (project_id, user_id), mine in by_user.items():
        amounts = collections.Counter[str]()
        for each in mine:
            plan = plans[each]
            one = {"instances": 1, "cores": plan.flavor.vcpus, "ram": plan.flavor.memory_mb}
            count = counts[each] = plan.request.min_count
            if plan.request.max_count > count:
                room = quotas.room(uow, conf, project_id, user_id, one, plan.request.max_count)
                count = counts[each] = max(count, room)
            amounts.update({resource: amount * count for resource, amount in one.items()})
        takings.append(quotas.QuotaRequest(project_id, user_id, amounts, plans[mine[0]].limits))
    quotas.take_together(uow, takings)
    if not network.remote:
        for (project_id, _), mine in by_user.items():
            if any(plans[each].new_interfaces > 1 for each in mine):
                limits = plans[mine[0]].limits.of_project
                interfaces = sum(plans[each].new_interfaces * counts[each] for each in mine)
                fixed_ips.check(uow, conf, project_id, limits, 1, interfaces)
    return counts


def _instance(uow: UnitOfWork, plan: _Plan, index: int, count: int) -> Instance:
    context, request, flavor, image, key = plan.context, plan.request, plan.flavor, plan.image, plan.key
    suffix = f"-{index + 1}" if count > 1 else ""
    instance_uuid = _instance_uuid(plan.seed, index)
    return Instance(
        uuid=instance_uuid,
        project_id=context.project_id,
        user_id=context.user_id,
        display_name=request.name[: 255 - len(suffix)] + suffix,
        display_description=request.description,
        hostname=_requested_hostname(request, suffix) or hostname(request.name, suffix, instance_uuid),
        reservation_id=_reservation_id(plan.seed),
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


def _build_data(
    request: CreateRequest, requested_networks: list[NetworkRequest], group_ids: list[str]
) -> dict[str, Any]:
    """What only the build needs; emptied as soon as the build has ended, because some of it is secret."""
    data: dict[str, Any] = msgspec.to_builtins(
        {
            "networks": requested_networks,
            "security_groups": group_ids,
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
