"""Evacuation: the instance leaves a host that is forced down or fenced, and is built on another one.

With ``forced_down`` the operator confirms that nothing runs on that host, which may not register. On acceptance the
instance leaves it and gets a new generation. So the host destroys the old guest before it serves again.

An automatic evacuation needs a host that is fenced: its power is off, or it has stopped this guest itself. See
docs/adr/0028.

Its row among the migrations begins with the action, and ends when the new host has the server, or with the action.

If hosts share the lost host's directory of disks, one of them gets the server with its disks. See docs/adr/0037.
"""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.context import KEEPS_DISKS
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.engine.placement_request import LOST
from nova_lite.conductor.operations.rebuild import REIMAGE
from nova_lite.conductor.operations.resize import give_back_extra, is_in_place
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction, Migration
from nova_lite.db.hosts import crashes, evacuations, host_storage, hosts, leases
from nova_lite.db.servers import claims, server_migrations
from nova_lite.db.volume import block_devices
from nova_lite.operations import HostStep, Step, migration_states, states

#: Key in the payload of an evacuation that no user requested.
AUTOMATIC = "automatic"

#: Key in the payload: the server may get new disks, although hosts share the directory of its last host.
NEW_DISKS = "new_disks"


class EvacuateHandler(OperationHandler):
    """Takes the instance from its host, and keeps the row of the evacuation."""

    def accept(
        self, uow: UnitOfWork, context: RequestContext, instance: Instance, payload: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Release what the instance holds, and end a move from the lost host.

        ``payload``: the target ``host`` (None: the scheduler chooses), ``forced`` to bypass the filters,
        ``admin_password``, ``stopped`` to stop the server in the end, and `AUTOMATIC`.
        """
        target, origin = payload.get("host"), instance.host
        _check(uow, instance, target, bool(payload.get(AUTOMATIC)))
        places = _places(uow, instance)
        moves = server_migrations.all_open(uow, instance.uuid)
        # A guest that has crashed and was to be started again starts at the new host.
        had_crashed = crashes.take(uow, instance.uuid)
        stopped = _end_move(uow, instance, moves) == states.STOPPED and not (had_crashed or payload.get(AUTOMATIC))
        unfinished = _volume_to_make(uow, instance)
        server_migrations.begin_evacuation(uow, context, instance, _source(instance, places), target)
        claims.release(uow, instance.uuid)
        block_devices.all_attached(uow, instance)
        claims.leave(instance)
        instance.generation = claims.next_generation(instance)
        instance.request = {"admin_password": payload.get("admin_password")}
        if target is not None:  # as in a request for a new server
            forced = payload.get("forced")
            choice = {"forced_host": target} if forced else {"requested_destination": {"host": target}}
            instance.request = {**instance.request, **choice}
        keeps, excluded = _place(uow, instance, places, target, origin, bool(payload.get(NEW_DISKS)))
        if not keeps:
            instance.points = None  # their data are on the disks that it loses
        return {
            "excluded": excluded,
            LOST: origin,
            "stop": bool(payload.get("stopped")) or stopped,
            **({KEEPS_DISKS: True} if keeps else {}),
            **unfinished,
        }

    def on_claimed(self, uow: UnitOfWork, instance: Instance, place: claims.Place) -> None:
        row = server_migrations.evacuation(uow, instance.uuid)
        assert row is not None
        server_migrations.set_destination(uow, row, place)
        server_migrations.set_status(uow, row, migration_states.PRE_MIGRATING)

    def on_step_done(self, uow: UnitOfWork, instance: Instance, step: Step) -> None:
        """Close the row once the new host has the server, which may still be stopped there."""
        super().on_step_done(uow, instance, step)
        if step.name == operations.BUILD:
            _close(uow, instance, migration_states.DONE)

    def on_failed(self, uow: UnitOfWork, instance: Instance) -> None:
        """Close the row. As in Nova, its status says whether a host was found."""
        row = server_migrations.evacuation(uow, instance.uuid)
        if row is not None:
            found = row.destination is not None
            server_migrations.set_status(uow, row, migration_states.FAILED if found else migration_states.ERROR)

    def on_superseded(self, uow: UnitOfWork, instance: Instance, by: str) -> None:
        """Close the row, unless a later evacuation has closed it and begun its own."""
        if by != operations.EVACUATE.kind:
            _close(uow, instance, migration_states.FAILED)


def _close(uow: UnitOfWork, instance: Instance, status: str) -> None:
    row = server_migrations.evacuation(uow, instance.uuid)
    if row is not None:
        server_migrations.set_status(uow, row, status)


def _source(instance: Instance, places: list[tuple[str, int]]) -> claims.Place:
    """Return the lost host. After an evacuation that has failed, only the place of the disks names it."""
    if (place := claims.place_of(instance)) is not None:
        return place
    host, generation = places[0] if places else ("", instance.generation)
    return claims.Place(host, None, generation, None)


def _places(uow: UnitOfWork, instance: Instance) -> list[tuple[str, int]]:
    """Return the hosts and generations at which the server's disks may be. Empty: it gets new ones, as requested."""
    if any(action.action == operations.REBUILD.kind for action in actions.all_open(uow, instance.uuid)):
        return []
    earlier = host_storage.places_of(instance)
    return earlier if instance.host is None else [(instance.host, instance.generation), *earlier]


def _place(
    uow: UnitOfWork,
    instance: Instance,
    places: list[tuple[str, int]],
    target: str | None,
    origin: str | None,
    new_disks: bool,
) -> tuple[bool, list[str]]:
    """Record where the disks are. Return whether the server must get them, and the hosts that must not get it.

    Once a host shared the disks, the server waits for them, also after a failed evacuation. A target that an operator
    names outside of the hosts that share them makes new disks.
    """
    excluded = [] if origin is None else [origin]
    sharing = {name for host, _ in places for name in host_storage.sharing(uow, host)}
    shared = bool(sharing) or bool((instance.disks_at or {}).get(host_storage.SHARED))
    instance.disks_at = {host_storage.PLACES: places, host_storage.SHARED: shared} if places else None
    if new_disks or not shared or not places or not evacuations.has_local_disk(instance):
        return False, excluded
    allowed = (sharing | {host for host, _ in places}) - set(excluded)
    if target is not None:
        return target in allowed, excluded
    return True, host_storage.others_than(uow, allowed)


def _volume_to_make(uow: UnitOfWork, instance: Instance) -> dict[str, Any]:
    """Return the volume that a rebuild had to write an image to, unless its host has reported that."""
    for action in actions.all_open(uow, instance.uuid):
        if REIMAGE in action.payload and action.step in (operations.SCHEDULE, operations.BUILD, operations.COMPENSATE):
            return {REIMAGE: action.payload[REIMAGE]}
    return {}


def _end_move(uow: UnitOfWork, instance: Instance, moves: list[Migration]) -> str:
    """End a resize or migration from the lost host, and return the vm state before it. End an earlier evacuation.

    ``moves``: all open ones. Raises a 409 if the other host has the server or may have it, because then it is not lost.
    """
    row = next((move for move in moves if move.migration_type != migration_states.EVACUATION), None)
    open_actions = actions.all_open(uow, instance.uuid)
    elsewhere = next((action for action in open_actions if _is_at_another_host(action, instance)), None)
    attr, state = ("vm_state", instance.vm_state) if elsewhere is None else ("unfinished action", elsewhere.action)
    is_here = row is not None and is_in_place(row)
    if elsewhere is not None or (instance.vm_state == states.RESIZED and instance.task_state is None and not is_here):
        raise exceptions.InstanceInvalidState(method="evacuate", instance_id=instance.uuid, attr=attr, state=state)
    for move in moves:
        if move is not row:
            server_migrations.set_status(uow, move, migration_states.FAILED)
    if row is None:
        return instance.vm_state
    is_done = row.status == migration_states.FINISHED
    server_migrations.set_status(uow, row, migration_states.CONFIRMED if is_done else migration_states.ERROR)
    give_back_extra(uow, instance)
    return row.vm_state


def _is_at_another_host(action: InstanceAction, instance: Instance) -> bool:
    step = operations.get(action.action, action.payload).step(action.step)
    return isinstance(step, HostStep) and action.host != instance.host


def _check(uow: UnitOfWork, instance: Instance, target: str | None, automatic: bool) -> None:
    """Raise a 4xx if the instance cannot be evacuated.

    Without a host it can, because an earlier evacuation has failed.
    """
    if target is not None and not hosts.exists(uow, target):
        raise exceptions.ComputeHostNotFound(host=target)
    if instance.host is None:
        if instance.task_state is not None:
            raise exceptions.InstanceInvalidState(
                method="evacuate", instance_id=instance.uuid, attr="task_state", state=instance.task_state
            )
    elif target == instance.host:
        raise exceptions.EvacuateToSameHost(host=target)
    elif automatic and leases.may_leave(uow, instance.host, instance.uuid):
        return
    elif not hosts.is_forced_down(uow, instance.host):
        raise exceptions.HostNotForcedDown(host=instance.host)
