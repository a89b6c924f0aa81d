"""An action under way: its row, its instance, and the orders that are made of them."""

from __future__ import annotations

import dataclasses

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations import volume_sources
from nova_lite.db import actions, block_devices, claims, hosts, instances
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.objects import ActionCommand, BuildRequest, NetworkRequest
from nova_lite.objects import Image as ImageObject
from nova_lite.objects import Instance as InstanceObject
from nova_lite.objects.build import Reimage
from nova_lite.operations import MOVE_ROLES, HostRole, HostStep, Operation, Step

#: In the payload of a build: its instance got its interfaces with its place, under this registration of the host.
CONNECTED = "connected"


@dataclasses.dataclass
class ActionContext:
    """An open action and its instance, both locked until the transaction ends.

    ``cause`` and ``details`` say why it fails. ``ordered``: the step whose command is sent after the commit.
    ``from_reconciler``: the reconciler sends the command. ``retiring``: a host is being retired, which decides the fate
    of its instances. ``up``: by host, whether it is up, as far as that was read. ``has_users_ports``: whether users may
    have made some of the instance's ports.
    """

    uow: UnitOfWork
    instance: Instance
    action: InstanceAction
    cause: str = ""
    details: str = ""
    ordered: str = ""
    from_reconciler: bool = False
    retiring: bool = False
    up: dict[str, bool] = dataclasses.field(default_factory=dict)
    has_users_ports: bool = True

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
    def is_undone(self) -> bool:
        """Whether it has failed, and what it had taken is being given back."""
        return self.definition.is_undo(self.step.name)

    @property
    def context(self) -> RequestContext:
        """The context of the request that made the action."""
        action = self.action
        return RequestContext(
            user_id=action.user_id, project_id=action.project_id, request_id=action.request_id, overwrite=False
        )


def lock_action(uow: UnitOfWork, action_id: int) -> ActionContext | None:
    """An open action and its instance, as they are now; None when it is over."""
    instance, action = actions.lock(uow, action_id) or (None, None)
    return None if action is None or action.finish_time is not None else ActionContext(uow, instance, action)


def action_for_command(
    uow: UnitOfWork, host: str, action_id: int, position: int | None, request_id: str | None = None
) -> ActionContext | None:
    """The action, if it waits for this order of this host: a late report is about another step. ``position`` None:
    whichever it is; ``request_id``: of the request that made it, if that is told."""
    ctx = lock_action(uow, action_id)
    if ctx is None or ctx.action.host != host or not isinstance(ctx.step, HostStep):
        return None
    if request_id not in (None, ctx.action.request_id):
        return None
    return ctx if position in (None, ctx.definition.sequence(ctx.step.name)) else None


def command_of(ctx: ActionContext) -> ActionCommand:
    """The order to the host, made from the rows; ``host`` is None when there is nothing to send."""
    action = ctx.action
    step = ctx.step if action.finish_time is None else None
    wanted = isinstance(step, HostStep) and step.method in operations.command_methods()
    builds = step is not None and step.name == operations.BUILD
    return ActionCommand(
        action_id=action.id,
        action=action.action,
        method=step.wire_method if isinstance(step, HostStep) else "",
        instance=_told(ctx, step),
        generation=action.generation,
        host=action.host if wanted or builds else None,
        request_id=action.request_id,
        payload=action.payload,
        sequence=ctx.definition.sequence(ctx.step.name) if wanted else 0,
        build=build_request(ctx) if builds else None,
    )


def _told(ctx: ActionContext, step: Step | None) -> InstanceObject:
    """What the order says of the instance."""
    if isinstance(step, HostStep) and step.minimal:
        return instances.minimal(ctx.instance)
    return instances.to_object(ctx.uow, ctx.instance)


def build_request(ctx: ActionContext) -> BuildRequest:
    """The order to build, made from the rows as they are now; a redrive makes the same."""
    return build_requests(ctx.uow, [ctx])[0]


def build_requests(uow: UnitOfWork, contexts: list[ActionContext]) -> list[BuildRequest]:
    """`build_request` of each; what belongs to all their instances is read by one statement."""
    told = instances.to_objects(uow, [ctx.instance for ctx in contexts])
    return [_build_request(ctx, instance) for ctx, instance in zip(contexts, told, strict=True)]


def _build_request(ctx: ActionContext, told: InstanceObject) -> BuildRequest:
    instance, action = ctx.instance, ctx.action
    source = instance.shelved_image or instance.image
    image = None if source is None else msgspec.convert(source, ImageObject)
    boot_images = msgspec.convert(instance.boot_images or {}, dict[str, ImageObject])
    return BuildRequest(
        instance=told,
        generation=instance.generation,
        action_id=action.id,
        request_id=action.request_id,
        image=image,
        images={image.id: image, **boot_images} if image else {},
        limits=action.payload.get("limits", {}),
        injected_files=instance.request.get("injected_files", {}),
        admin_password=instance.request.get("admin_password"),
        connected=action.payload.get(CONNECTED, ""),
        reimage=msgspec.convert(action.payload.get("reimage"), Reimage | None),
        volume_images=volume_sources.images_to_make(ctx.uow, block_devices.of(instance)),
    )


def begun(ctx: ActionContext) -> None:
    """The host has what it needs to begin with the step."""
    assert isinstance(ctx.step, HostStep)
    ctx.instance.task_state = ctx.step.begun
    ctx.instance.network_call_until = None
    ctx.instance.updated_at = ctx.uow.now


def requested_networks(ctx: ActionContext) -> list[NetworkRequest]:
    return [msgspec.convert(item, NetworkRequest) for item in ctx.instance.request.get("networks", [])]


def ends(ctx: ActionContext, at: HostRole) -> list[claims.HeldHost]:
    """Where a step happens, in order."""
    instance = ctx.instance
    if at is HostRole.ALL:
        held = claims.held(ctx.uow, instance)
        ctx.up = {end.host: up for end, up, _ in held}
        ctx.has_users_ports = any(ports for *_, ports in held)
        return [end for end, *_ in held]
    if at in MOVE_ROLES:
        return [claims.HeldHost(there.host, there.generation)] if (there := place(ctx, at)) is not None else []
    return [] if instance.host is None else [claims.HeldHost(instance.host, instance.generation)]


def place(ctx: ActionContext, end: HostRole) -> claims.Place | None:
    """An end of a move, as the action's payload has it; None for a destination that is not claimed yet."""
    found = ctx.action.payload.get(end.value)
    return None if found is None else claims.Place(**found)


def is_away(ctx: ActionContext) -> bool:
    """Whether its host is not up."""
    host = ctx.action.host
    if host is None:
        return False
    return not (ctx.up[host] if host in ctx.up else hosts.is_up(ctx.uow, host))


def is_retired(ctx: ActionContext) -> bool:
    return isinstance(ctx.step, HostStep) and ctx.action.host in ctx.action.payload.get("retired", ())


def check(context: RequestContext, instance: Instance, row: Operation) -> None:
    """Whether the instance's state allows the operation; raises a 409."""
    if instance.locked and not context.is_admin and not row.despite_lock:
        raise exceptions.InstanceIsLocked(instance_id=instance.uuid)
    attr = state = None
    if row.allowed is not None and (instance.vm_state not in row.allowed or instance.launched_at is None):
        attr, state = "vm_state", instance.vm_state
    elif row.during is not None and instance.task_state is not None and instance.task_state not in row.during:
        attr, state = "task_state", instance.task_state
    if attr is not None:
        raise exceptions.InstanceInvalidState(method=row.method, instance_id=instance.uuid, attr=attr, state=state)
    if row.needs_host and instance.host is None:
        raise exceptions.InstanceNotReady(instance_id=instance.uuid)
