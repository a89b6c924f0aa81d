"""An action under way: its row, its instance, and the orders that are made of them."""

from __future__ import annotations

import dataclasses

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.operations import block_devices
from nova_lite.db import actions, claims, hosts, instances
from nova_lite.db import block_devices as db_block_devices
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.objects import ActionTicket, BuildRequest, NetworkRequest
from nova_lite.objects import Image as ImageObject
from nova_lite.objects import Instance as InstanceObject
from nova_lite.objects.build import Reimage
from nova_lite.operations import MOVE, End, OnHost, Operation, Step

#: In the payload of a build: its instance got its interfaces with its place, under this registration of the host.
CONNECTED = "connected"


@dataclasses.dataclass
class Act:
    """An action and its instance, locked until the transaction ends. ``cause`` and ``details``: why it fails.
    ``ordered``: the step whose order goes out with the commit. ``swept``: the reconciler sends it. ``retiring``: a host
    is being retired, which decides what becomes of the instances on it. ``up``: whether its ends' hosts are, as far as
    that was read. ``has_users_ports``: whether users have made some of the instance's interfaces, or may have."""

    uow: UnitOfWork
    instance: Instance
    action: InstanceAction
    cause: str = ""
    details: str = ""
    ordered: str = ""
    swept: bool = False
    retiring: bool = False
    up: dict[str, bool] = dataclasses.field(default_factory=dict)
    has_users_ports: bool = True

    @property
    def row(self) -> Operation:
        return operations.get(self.action.action, self.action.payload)

    @property
    def step(self) -> Step:
        return self.row.step(self.action.step)

    @property
    def is_undone(self) -> bool:
        """Whether it has failed, and what it had taken is being given back."""
        return self.row.is_undo(self.step.name)

    @property
    def context(self) -> RequestContext:
        """The context of the request that made the action."""
        action = self.action
        return RequestContext(
            user_id=action.user_id, project_id=action.project_id, request_id=action.request_id, overwrite=False
        )


def lock_act(uow: UnitOfWork, action_id: int) -> Act | None:
    """An open action and its instance, as they are now; None when it is over."""
    instance, action = actions.lock(uow, action_id) or (None, None)
    return None if action is None or action.finish_time is not None else Act(uow, instance, action)


def ordered(
    uow: UnitOfWork, host: str, action_id: int, position: int | None, request_id: str | None = None
) -> Act | None:
    """The action, if it waits for this order of this host: a late report is about another step. ``position`` None:
    whichever it is; ``request_id``: of the request that made it, if that is told."""
    act = lock_act(uow, action_id)
    if act is None or act.action.host != host or not isinstance(act.step, OnHost):
        return None
    if request_id not in (None, act.action.request_id):
        return None
    return act if position in (None, act.row.position(act.step.name)) else None


def ticket(act: Act) -> ActionTicket:
    """The order to the host, made from the rows; ``host`` is None when there is nothing to send."""
    action = act.action
    step = act.step if action.finish_time is None else None
    wanted = isinstance(step, OnHost) and step.method in operations.order_methods()
    builds = step is not None and step.name == operations.BUILD
    return ActionTicket(
        action_id=action.id,
        action=action.action,
        method=step.method if isinstance(step, OnHost) else "",
        instance=_told(act, step),
        generation=action.generation,
        host=action.host if wanted or builds else None,
        request_id=action.request_id,
        payload=action.payload,
        position=act.row.position(act.step.name) if wanted else 0,
        build=build_request(act) if builds else None,
    )


def _told(act: Act, step: Step | None) -> InstanceObject:
    """What the order says of the instance."""
    if isinstance(step, OnHost) and step.bare:
        return instances.bare(act.instance)
    return instances.to_object(act.uow, act.instance)


def build_request(act: Act) -> BuildRequest:
    """The order to build, made from the rows as they are now; a redrive makes the same."""
    return build_requests(act.uow, [act])[0]


def build_requests(uow: UnitOfWork, acts: list[Act]) -> list[BuildRequest]:
    """`build_request` of each; what belongs to all their instances is read by one statement."""
    told = instances.to_objects(uow, [act.instance for act in acts])
    return [_build_request(act, instance) for act, instance in zip(acts, told, strict=True)]


def _build_request(act: Act, told: InstanceObject) -> BuildRequest:
    instance, action = act.instance, act.action
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
        volume_images=block_devices.images_to_make(act.uow, db_block_devices.of(instance)),
    )


def begun(act: Act) -> None:
    """The host has what it needs to begin with the step."""
    assert isinstance(act.step, OnHost)
    act.instance.task_state = act.step.begun
    act.instance.network_call_until = None
    act.instance.updated_at = act.uow.now


def requested_networks(act: Act) -> list[NetworkRequest]:
    return [msgspec.convert(item, NetworkRequest) for item in act.instance.request.get("networks", [])]


def ends(act: Act, at: End) -> list[claims.End]:
    """Where a step happens, in order."""
    instance = act.instance
    if at is End.EVERY:
        held = claims.held(act.uow, instance)
        act.up = {end.host: up for end, up, _ in held}
        act.has_users_ports = any(ports for *_, ports in held)
        return [end for end, *_ in held]
    if at in MOVE:
        return [claims.End(there.host, there.generation)] if (there := place(act, at)) is not None else []
    return [] if instance.host is None else [claims.End(instance.host, instance.generation)]


def place(act: Act, end: End) -> claims.Place | None:
    """An end of a move, as the action's payload has it; None for a destination that is not claimed yet."""
    found = act.action.payload.get(end.value)
    return None if found is None else claims.Place(**found)


def is_away(act: Act) -> bool:
    """Whether its host is not up."""
    host = act.action.host
    if host is None:
        return False
    return not (act.up[host] if host in act.up else hosts.is_up(act.uow, host))


def is_retired(act: Act) -> bool:
    return isinstance(act.step, OnHost) and act.action.host in act.action.payload.get("retired", ())


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
