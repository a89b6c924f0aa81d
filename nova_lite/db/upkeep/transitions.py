"""Transitions that operations make of a server, from the definitions in `nova_lite.operations`. Pure: no I/O.

A transition is the change of a server's row by one transaction. A test compares these rules with the model of the
protocol, in which they allow every step.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from nova_lite import operations
from nova_lite.operations import HostRole, HostStep, Operation, ReleaseStep, ScheduleStep, states

#: Vm states after a failure, by the power state of the guest.
FOLLOWED = {**states.VM_STATE_OF, states.PowerState.PAUSED: states.PAUSED}
#: Vm states of a guest that is as it was before.
AS_BEFORE = (states.ACTIVE, states.STOPPED)
#: Kinds whose end looks at the guest: it is the state of their step, or the other one of `AS_BEFORE`.
MOVES = ("confirmResize", "revertResize", "live-migration", "resize", "migrate")
#: Vm states by acceptance itself.
ACCEPTED_AS = {"restore": (states.STOPPED,), "reset_state": (states.ACTIVE, states.ERROR), "create": (states.BUILDING,)}


class Moment(NamedTuple):
    """Columns of a server's row between two transactions."""

    vm_state: str
    task_state: str | None
    host: str | None
    generation: int
    deleted: bool
    power_state: int


class Action(NamedTuple):
    """Columns of an action's row. ``ended``: None while it is open. ``built_at``: the host of its build, if it has one
    that was done."""

    id: int
    kind: str
    payload: Mapping[str, Any]
    step: str
    host: str | None
    generation: int
    began: datetime.datetime
    ended: datetime.datetime | None = None
    has_failed: bool = False
    built_at: str | None = None

    @property
    def definition(self) -> Operation | None:
        """Return the definition; None for a kind of another version or a plug-in, which may do anything."""
        try:
            return operations.get(self.kind, self.payload)
        except KeyError:
            return None


def problem(before: Moment, after: Moment, concerned: Sequence[Action]) -> str | None:
    """Return why no action makes this transition; None if one does.

    ``concerned``: the actions that were open then. An action that began or ended with the transition is one of them.
    """
    if any(action.definition is None for action in concerned):
        return None
    found = (check(before, after, concerned) for check in (_deletion, _task, _vm_state, _place))
    return next((wrong for wrong in found if wrong is not None), None)


def refusal(before: Moment, action: Action) -> str | None:
    """Return why an action does not begin in this state of its server; None if it may."""
    definition = action.definition
    if definition is None or definition is operations.CREATE:
        return None
    if before.deleted:
        return f"{action.kind} began after the server was deleted"
    if definition.allowed is not None and before.vm_state not in definition.allowed:
        return f"{action.kind} began while the server was {before.vm_state}"
    if before.task_state is not None and definition.during is not None and before.task_state not in definition.during:
        return f"{action.kind} began during {before.task_state}"
    return None


def _deletion(before: Moment, after: Moment, concerned: Sequence[Action]) -> str | None:
    if before.deleted and not after.deleted:
        return "it was deleted, and is there again"
    if after.deleted != (after.vm_state == states.DELETED):
        return f"it is {'deleted' if after.deleted else 'not deleted'}, and its state is {after.vm_state}"
    if after.deleted and not before.deleted and not any(action.kind == operations.DELETE.kind for action in concerned):
        return "it was deleted without a delete"
    return None


def _task(before: Moment, after: Moment, concerned: Sequence[Action]) -> str | None:
    task = after.task_state
    if task in (None, before.task_state) or any(task in tasks_of(action.definition) for action in concerned):
        return None
    return f"its task became {task}, {_done_by('no task', concerned)}"


def _vm_state(before: Moment, after: Moment, concerned: Sequence[Action]) -> str | None:
    if after.vm_state == before.vm_state or any(
        after.vm_state in _outcomes(action, after.power_state) for action in concerned
    ):
        return None
    is_idle = before.task_state is None and after.task_state is None
    if is_idle and follows_guest(before.vm_state, after.vm_state, after.power_state):
        return None
    return f"it went from {before.vm_state} to {after.vm_state}, {_done_by('no outcome', concerned)}"


def _place(before: Moment, after: Moment, concerned: Sequence[Action]) -> str | None:
    if (before.host, before.generation) == (after.host, after.generation):
        return None
    went = f"it went from {_named(before)} to {_named(after)}"
    movers = [action.definition for action in concerned if changes_place(action.definition)]
    if not movers:
        return f"{went}, {_done_by('no place', concerned)}"
    if after.generation < before.generation and not any(map(_has_source, movers)):
        return f"{went}: its generation went back"
    if before.host is None and after.host is not None and after.generation <= before.generation:
        return f"{went} without a claim, which gives it the next generation"
    if None not in (before.host, after.host) and before.host != after.host and not any(map(_leaves_host, movers)):
        return f"{went} at once, {_done_by('no place', concerned)}"
    return None


def _named(moment: Moment) -> str:
    return f"host {moment.host or 'none'}, generation {moment.generation}"


def _done_by(what: str, concerned: Sequence[Action]) -> str:
    kinds = ", ".join(f"{action.kind} (action {action.id})" for action in concerned)
    return f"which is {what} of {kinds}" if kinds else "and no action was open"


def standing(now: Moment, claims: Collection[tuple[str, int]], running: Sequence[Action]) -> str | None:
    """Return what is wrong with a server's claims as they are now, or None.

    ``claims``: hosts and generations of its allocations. ``running``: its open actions.
    """
    for action in running:
        place = (action.host or "", action.generation)
        if action.step == operations.BUILD and place not in claims:
            return f"{action.kind} builds at host {action.host}, where the server has no claim"
    if running:
        return None
    if now.host is None or now.deleted:
        held = ", ".join(sorted(host for host, _ in claims))
        return f"it has no host, and claims at {held}" if held else None
    if (now.host, now.generation) not in claims:
        return f"it has no claim at {_named(now)}"
    hosts = ", ".join(sorted(host for host, _ in claims))
    most = 2 if now.vm_state == states.RESIZED else 1
    return f"it has {len(claims)} claims ({hosts}), and no action is open" if len(claims) > most else None


def follows_guest(before: str, after: str, power_state: int) -> bool:
    """Check whether a server without a task may change its vm state to that of its guest, or lose its guest."""
    if after == states.ERROR:
        return before in states.HAS_DOMAIN
    return before in states.EXPECTED_POWER_STATES and states.VM_STATE_OF.get(states.PowerState(power_state)) == after


# --- the table, by definition. The rules ask only for known definitions.


def tasks_of(definition: Operation | None) -> Iterator[str]:
    """Yield the task states of an operation, in order."""
    for step in definition.all_steps() if definition is not None else ():
        begun = (step.begun, *step.tasks) if isinstance(step, HostStep) else ()
        yield from (task for task in (step.task, *begun) if task is not None)


def changes_place(definition: Operation | None) -> bool:
    """Check whether an operation gives a server another host or generation."""
    return definition is not None and any(
        isinstance(step, ScheduleStep | ReleaseStep) or step.moves_to is not None or step.name == operations.BUILD
        for step in definition.all_steps()
    )


def _has_source(definition: Operation | None) -> bool:
    """Check whether an operation may return a server to its earlier place."""
    steps = definition.all_steps() if definition is not None else ()
    return any(isinstance(step, HostStep) and step.at is HostRole.SOURCE for step in steps)


def _leaves_host(definition: Operation | None) -> bool:
    """Check whether an operation moves a server from one host to another in one transaction."""
    if definition is None or definition is operations.CREATE:
        return False
    return any(isinstance(step, ScheduleStep) or step.moves_to is not None for step in definition.all_steps())


def outcomes(definition: Operation) -> set[str]:
    """Return the vm states that an operation leads to when nothing fails."""
    found = {step.becomes for step in definition.all_steps() if step.becomes is not None}
    if definition.kind in MOVES:
        found.update(AS_BEFORE)
    return found | set(ACCEPTED_AS.get(definition.kind, ()))


def _outcomes(action: Action, power_state: int) -> set[str]:
    """Return the vm states that an action may lead to, with those of its failure if it has failed or is open."""
    definition = action.definition
    if definition is None:
        return set()
    found = outcomes(definition) | {states.ERROR}
    if action.has_failed or action.ended is None:
        found.add(definition.failed or FOLLOWED.get(states.PowerState(power_state), states.ERROR))
    return found
