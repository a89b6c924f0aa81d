"""An open action with its instance, and the commands that are made of their rows."""

from __future__ import annotations

import dataclasses

import msgspec

from nova_lite import hardware, operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from nova_lite.db.hosts import host_storage, hosts, leases
from nova_lite.db.servers import claims, clones, disk_keys, instances
from nova_lite.db.volume import block_devices
from nova_lite.hardware import mem_encryption
from nova_lite.objects import ActionCommand, BlockDevice, BuildRequest, NetworkRequest
from nova_lite.objects import Image as ImageObject
from nova_lite.objects import Instance as InstanceObject
from nova_lite.objects.block_device import DeviceSource, root_volume
from nova_lite.objects.build import Reimage
from nova_lite.objects.replication import MAY_RUN
from nova_lite.operations import HostRole, HostStep, Operation, Step

#: Key in the payload of a build: the host's registration under which the instance got its interfaces with its place.
CONNECTED = "connected"

#: Key in the payload of an evacuation: the server must get the disks that it had.
KEEPS_DISKS = "keeps_disks"


@dataclasses.dataclass
class ActionContext:
    """An open action and its instance, both locked until the transaction ends.

    - ``cause``, ``details``: why it fails
    - ``sent_step``: the step whose command is sent after the commit
    - ``from_reconciler``: the reconciler sends the command itself
    - ``retiring``: a host is being retired, and the caller decides about its instances
    - ``hosts_up``: whether a host is up, as far as it was read
    - ``held``: the instance's hosts (`claims.held`), if they were read
    - ``may_have_user_ports``: users may have made some of the instance's ports
    """

    uow: UnitOfWork
    instance: Instance
    action: InstanceAction
    cause: str = ""
    details: str = ""
    sent_step: str = ""
    from_reconciler: bool = False
    retiring: bool = False
    hosts_up: dict[str, bool] = dataclasses.field(default_factory=dict)
    held: list[claims.Held] | None = None
    may_have_user_ports: bool = True
    #: The definition of the action's kind, once it was looked up; the payload selects a variant of it.
    _base: Operation | None = None

    @property
    def definition(self) -> Operation:
        """The definition of the operation, for the payload that the action has now."""
        if self._base is None:
            self._base = operations.OPERATIONS[self.action.action]
        return self._base.variant(self.action.payload) if self._base.variants else self._base

    @property
    def step(self) -> Step:
        """The step or undo that the action is at. Raises `LookupError` if this version has no such step."""
        return self.definition.step(self.action.step)

    @property
    def is_undoing(self) -> bool:
        """True if the action has failed and is being undone."""
        return self.definition.is_undo(self.action.step)

    @property
    def context(self) -> RequestContext:
        """The context of the request that made the action."""
        action = self.action
        return RequestContext(
            user_id=action.user_id, project_id=action.project_id, request_id=action.request_id, overwrite=False
        )


def lock_action(uow: UnitOfWork, action_id: int) -> ActionContext | None:
    """Lock an open action and its instance. Returns None if the action is closed."""
    instance, action = actions.lock(uow, action_id) or (None, None)
    return None if action is None or action.finish_time is not None else ActionContext(uow, instance, action)


def action_for_command(
    uow: UnitOfWork, host: str, action_id: int, sequence: int | None, request_id: str | None = None
) -> ActionContext | None:
    """Lock and return the action if it waits for this command of this host; a late report is about another one.

    ``sequence`` None stands for any command of the action. ``request_id``: the request that made the action, if known.
    """
    ctx = lock_action(uow, action_id)
    return None if ctx is None else if_waiting(ctx, host, sequence, request_id)


def if_waiting(
    ctx: ActionContext, host: str, sequence: int | None, request_id: str | None = None
) -> ActionContext | None:
    """Return the locked action if it is open and waits for this command. See `action_for_command`."""
    if ctx.action.finish_time is not None:
        return None
    if ctx.action.host != host or request_id not in (None, ctx.action.request_id):
        return None
    step = ctx.step
    if not isinstance(step, HostStep):
        return None
    return ctx if sequence is None or sequence == ctx.definition.sequence(step.name) else None


def command_of(ctx: ActionContext) -> ActionCommand:
    """Return the command to the action's host, made from the rows. Its ``host`` is None if there is nothing to send."""
    action = ctx.action
    step = ctx.step if action.finish_time is None else None
    at_host = step if isinstance(step, HostStep) else None
    builds = step is not None and step.name == operations.BUILD
    is_sequenced = at_host is not None and at_host.is_sequenced
    minimal = at_host is not None and at_host.minimal
    described = instances.minimal(ctx.instance) if minimal else instances.to_object(ctx.uow, ctx.instance)
    described.protected = leases.protection_of(ctx.uow.conf, ctx.instance).restart
    return ActionCommand(
        action_id=action.id,
        action=action.action,
        method="" if at_host is None else at_host.method,
        instance=described,
        generation=action.generation,
        host=action.host if is_sequenced or builds else None,
        request_id=action.request_id,
        payload=action.payload,
        sequence=ctx.definition.sequence(at_host.name) if at_host is not None else 0,
        build=build_request(ctx) if builds else None,
    )


def build_request(ctx: ActionContext) -> BuildRequest:
    """Return the command to build, made from the rows as they are now. A retry makes an equal one."""
    return build_requests(ctx.uow, [ctx])[0]


def build_requests(uow: UnitOfWork, contexts: list[ActionContext]) -> list[BuildRequest]:
    """Return the `build_request` of each of these, after one read of what belongs to their instances."""
    described = instances.to_objects(uow, [ctx.instance for ctx in contexts])
    return [_build_request(ctx, instance) for ctx, instance in zip(contexts, described, strict=True)]


def _build_request(ctx: ActionContext, described: InstanceObject) -> BuildRequest:
    instance, action = ctx.instance, ctx.action
    protected = leases.protection_of(ctx.uow.conf, instance).restart
    source = instance.shelved_image or instance.image
    image = None if source is None else msgspec.convert(source, ImageObject)
    boot_images = msgspec.convert(instance.boot_images or {}, dict[str, ImageObject])
    return BuildRequest(
        instance=msgspec.structs.replace(
            described, block_devices=_for_host(described.block_devices), protected=protected
        ),
        generation=instance.generation,
        action_id=action.id,
        request_id=action.request_id,
        image=image,
        images={image.id: image, **boot_images} if image else {},
        limits=action.payload.get("limits", {}),
        injected_files=instance.request.get("injected_files", {}),
        admin_password=instance.request.get("admin_password"),
        # A replicated server's host always calls `start_build`, which looks at the journal of sites.
        connected=action.payload.get(CONNECTED, "") if instance.site_role is None else "",
        reimage=msgspec.convert(action.payload.get("reimage"), Reimage | None),
        volume_images=block_devices.images_for_new_volumes(ctx.uow, block_devices.of(instance)),
        disks=host_storage.left_disks(ctx.uow, instance, bool(action.payload.get(KEEPS_DISKS))),
        clone_of=action.payload.get(clones.CLONE_OF),
    )


def _for_host(devices: list[BlockDevice]) -> list[BlockDevice]:
    """Return block devices in the words of build commands: a host of an older version makes no encrypted volume."""
    return [
        msgspec.structs.replace(device, source_type=DeviceSource.VOLUME, made_from=device.source_type)
        if device.encrypted and device.source_type != DeviceSource.VOLUME
        else device
        for device in devices
    ]


def begun(ctx: ActionContext) -> None:
    """Record that the host has everything to start with the step."""
    assert isinstance(ctx.step, HostStep)
    ctx.instance.task_state = ctx.step.begun
    ctx.instance.network_call_until = None
    ctx.instance.updated_at = ctx.uow.now


def requested_networks(ctx: ActionContext) -> list[NetworkRequest]:
    """Return the networks that the user has requested."""
    return [msgspec.convert(item, NetworkRequest) for item in ctx.instance.request.get("networks", [])]


def allocations(ctx: ActionContext, role: HostRole) -> list[claims.HeldHost]:
    """Return the hosts in this role, with the generation of the instance there, in order."""
    instance = ctx.instance
    if role is HostRole.CURRENT:
        return [] if instance.host is None else [claims.HeldHost(instance.host, instance.generation)]
    if role is HostRole.ALL:
        held = claims.held(ctx.uow, instance) if ctx.held is None else ctx.held
        ctx.hosts_up = {host.host: up for host, up, _ in held}
        ctx.may_have_user_ports = any(ports for *_, ports in held)
        return [host for host, *_ in held]
    place = claimed_place(ctx, role)
    return [] if place is None else [claims.HeldHost(place.host, place.generation)]


def claimed_place(ctx: ActionContext, role: HostRole) -> claims.Place | None:
    """Return the place of a move in this role, as the payload has it. None: the destination is not claimed yet."""
    values = ctx.action.payload.get(role.value)
    return None if values is None else claims.Place(**values)


def is_away(ctx: ActionContext) -> bool:
    """Check whether the action's host is not up."""
    host = ctx.action.host
    if host is None:
        return False
    return not (ctx.hosts_up[host] if host in ctx.hosts_up else hosts.is_up(ctx.uow, host))


def is_retired(ctx: ActionContext) -> bool:
    """Check whether the step's host is retired."""
    retired = ctx.action.payload.get("retired", ())
    return bool(retired) and isinstance(ctx.step, HostStep) and ctx.action.host in retired


def check(context: RequestContext, instance: Instance, definition: Operation, by_replication: bool = False) -> None:
    """Raise a 409 if the instance's state does not allow the operation.

    ``by_replication``: the failover itself requests it, so the role of this site does not matter.
    """
    if instance.locked and not context.is_admin and not definition.despite_lock:
        raise exceptions.InstanceIsLocked(instance_id=instance.uuid)
    if instance.site_role not in MAY_RUN and not definition.at_replica and not by_replication:
        raise exceptions.ServerAtOtherSite(instance_id=instance.uuid, role=instance.site_role)
    if definition.loses_tpm and hardware.has_tpm(instance.flavor, instance.image):
        raise exceptions.OperationNotSupportedForVTPM(operation=definition.kind, instance_uuid=instance.uuid)
    if definition.copies_root and disk_keys.are_used(instance) and root_volume(block_devices.of(instance)) is None:
        raise exceptions.OperationNotSupportedForEncryptedDisk(operation=definition.kind, instance_uuid=instance.uuid)
    if definition.copies_memory and instance.shares:
        raise exceptions.OperationNotSupportedWithShares(operation=definition.kind, instance_uuid=instance.uuid)
    if definition.copies_memory and mem_encryption.model_of(instance.flavor, instance.image) is not None:
        raise exceptions.OperationNotSupportedForEncryptedMemory(operation=definition.kind, instance_uuid=instance.uuid)
    if definition.without_points and instance.points:
        raise exceptions.OperationNotSupportedWithPoints(operation=definition.kind, instance_uuid=instance.uuid)
    attr = state = None
    allowed, during = definition.allowed, definition.during
    if allowed is not None and (instance.vm_state not in allowed or instance.launched_at is None):
        attr, state = "vm_state", instance.vm_state
    elif during is not None and instance.task_state is not None and instance.task_state not in during:
        attr, state = "task_state", instance.task_state
    if attr is not None:
        raise exceptions.InstanceInvalidState(
            method=definition.method, instance_id=instance.uuid, attr=attr, state=state
        )
    if definition.needs_host and instance.host is None:
        raise exceptions.InstanceNotReady(instance_id=instance.uuid)
