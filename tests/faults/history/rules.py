"""Rules for a transaction's changes of a server, derived from `nova_lite.operations`.

A transaction is judged by the server's row and actions before and after it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from nova_lite import operations
from nova_lite.operations import HostRole, HostStep, Operation, ReleaseStep, ScheduleStep, states

#: States of a server after a failure: that of its guest (`conductor/engine`).
SETTLED = (states.ACTIVE, states.STOPPED, states.PAUSED, states.ERROR)

#: Their record looks at what the server was before: the state that ``becomes`` says, or the other one of these.
AS_BEFORE = (states.ACTIVE, states.STOPPED)
MOVES = ("confirmResize", "revertResize", "live-migration", "resize", "migrate")

#: Changes of the vm state by acceptance itself.
ACCEPTED_AS = {"restore": (states.STOPPED,), "reset_state": (states.ACTIVE, states.ERROR), "create": (states.BUILDING,)}

#: Role that a lock does not bind.
ADMIN = "admin"

#: Kinds of actions that conductors start automatically.
BY_ITSELF = ("shelveOffload", "start", "delete")


@dataclasses.dataclass
class Transaction:
    """Rows before and after: of the server (None: not there yet), and of its actions by id, as far as they were open
    before or were written. ``at``: when its first row was written; ``wrote``: whether the server's own row was."""

    at: float
    wrote: bool
    before: dict[str, Any] | None
    after: dict[str, Any]
    actions_before: dict[int, dict[str, Any]]
    actions_after: dict[int, dict[str, Any]]

    @property
    def accepted(self) -> list[dict[str, Any]]:
        """Actions that it has made."""
        return [row for key, row in self.actions_after.items() if key not in self.actions_before]

    @property
    def concerned(self) -> list[dict[str, Any]]:
        """Actions that were open before it, or after."""
        both = {**self.actions_after, **self.actions_before}
        return [row for key, row in both.items() if is_open(row) or key not in self.actions_before]


def is_open(action: Mapping[str, Any]) -> bool:
    return action["finished"] is None


def row_of(action: Mapping[str, Any]) -> Operation:
    """Return the definition of an action. Raises `KeyError` for an unknown kind."""
    return operations.get(action["action"], action["payload"] or {})


def judge(done: Transaction) -> Iterator[tuple[str, str]]:
    """Yield the broken rules, each with its violation."""
    for rule, check in RULES.items():
        for wrong in check(done):
            yield rule, wrong


def _accepts(done: Transaction) -> Iterator[str]:
    """Check that an action starts only in states that its definition allows, and respects a lock."""
    for action in done.accepted:
        row, before = row_of(action), done.before
        if row is operations.CREATE:
            if before is not None:
                yield "a create of a server that was there"
            continue
        if before is None or before["deleted"]:
            yield f"{row.kind} of a server that is not there"
            continue
        vm_state, task_state = before["vm_state"], before["task_state"]
        if row.allowed is not None and vm_state not in row.allowed:
            yield f"{row.kind} began while the server was {vm_state}, which is not one of {', '.join(row.allowed)}"
        if task_state is not None and row.during is not None and task_state not in row.during:
            yield f"{row.kind} began during {task_state}"
        if before["locked"] and not row.despite_lock and action["user"] not in (None, ADMIN):
            yield f"{row.kind} of {action['user']} began although the server was locked"


def _tasks(done: Transaction) -> Iterator[str]:
    """Check that a task state belongs to an open action."""
    task = done.after["task_state"]
    if done.after["deleted"]:
        if task is not None:
            yield f"it is deleted, and its task is {task}"
        return
    if task is None:
        return
    still = [action for action in done.actions_after.values() if is_open(action)]
    if not still:
        yield f"its task is {task}, and no action is open"
    elif not any(task in tasks_of(row_of(action)) for action in still):
        yield f"its task is {task}, which is none of {[action['action'] for action in still]}"


def tasks_of(row: Operation) -> list[str]:
    """Return all task states of an operation, in order."""
    found = []
    for step in row.all_steps():
        begun = (step.begun,) if isinstance(step, HostStep) else ()
        tasks = step.tasks if isinstance(step, HostStep) else ()
        found += [task for task in (step.task, *begun, *tasks) if task is not None]
    return found


def _vm_states(done: Transaction) -> Iterator[str]:
    """Check that a vm state changes to a step's result, to the result of a failure, or to the guest's state."""
    new = done.after["vm_state"]
    old = done.before["vm_state"] if done.before is not None else None
    if new == old:
        return
    concerned = done.concerned
    if not concerned:
        if not _follows(str(old), done.after):
            yield f"from {old} to {new}, and no action is open"
        return
    if not any(new in _outcomes(action, done) for action in concerned):
        yield f"from {old} to {new}, which is no outcome of {[(each['action'], each['step']) for each in concerned]}"


def _follows(old: str, after: Mapping[str, Any]) -> bool:
    """Check whether the guest was found in another state, or missing."""
    new = after["vm_state"]
    if new == states.ERROR:
        return old in states.HAS_DOMAIN
    return old in states.EXPECTED_POWER_STATES and states.VM_STATE_OF.get(after["power_state"]) == new


def _outcomes(action: Mapping[str, Any], done: Transaction) -> set[str]:
    """Return the vm states that this action may have led to in this transaction."""
    row = row_of(action)
    key = action["id"]
    after = done.actions_after.get(key, action)
    found = set(ACCEPTED_AS.get(row.kind, ())) if key not in done.actions_before else set()
    steps = [step for step in row.all_steps() if step.becomes is not None]
    found |= {str(step.becomes) for step in steps}
    if row.kind in MOVES and (steps or row.kind == "live-migration"):
        found |= set(AS_BEFORE)
    lasting = any(isinstance(step, HostStep) and step.retry_forever for step in row.all_steps())
    failed = (not is_open(after) and after["message"]) or (is_open(after) and row.is_undo(after["step"]))
    if failed or (lasting and is_open(after)):
        found |= {row.failed} if row.failed else set(SETTLED)
        found.add(states.ERROR)
    return found


def _steps(done: Transaction) -> Iterator[str]:
    """Check that an action is at a step of its definition and moves forward. A build may move back to another host.
    A finished action stays finished.
    """
    for key, action in done.actions_after.items():
        row = row_of(action)
        if row.steps:
            try:
                row.step(action["step"])
            except LookupError:
                yield f"{row.kind} is at {action['step']}, which is none of its steps"
                continue
        before = done.actions_before.get(key)
        if before is None:
            continue
        if not is_open(before) and (is_open(action) or before["finished"] != action["finished"]):
            yield f"{row.kind} was over and is at {action['step']} again"
        elif row.steps and not _forward(row, before["step"], action["step"]):
            yield f"{row.kind} went from {before['step']} to {action['step']}"


def _forward(row: Operation, old: str, new: str) -> bool:
    if old == new or (new == operations.SCHEDULE and row.has_choice):
        return True
    names = [step.name for step in row.steps]
    old, new = row.step(old).name, row.step(new).name
    if row.is_undo(old):
        if not row.is_undo(new):  # it was done after all
            return names.index(new) >= names.index(row.undone_by(old).name)
        undos = [undo.name for step in reversed(row.steps) for undo in step.undo]
        return old not in undos or new not in undos or undos.index(new) >= undos.index(old)
    return row.is_undo(new) or names.index(new) >= names.index(old)


def _deleted(done: Transaction) -> Iterator[str]:
    """Check that only a delete deletes, and that a deleted server stays deleted."""
    was = done.before is not None and done.before["deleted"]
    if was and not done.after["deleted"]:
        yield "it was deleted and is there again"
    if bool(done.after["deleted"]) != (done.after["vm_state"] == states.DELETED):
        yield f"deleted is {bool(done.after['deleted'])}, its vm state is {done.after['vm_state']}"
    deletes = any(row_of(action).kind == "delete" for action in done.concerned)
    if done.after["deleted"] and not was and not deletes:
        yield "it was deleted without a delete"


def _places(done: Transaction) -> Iterator[str]:
    """Check that a host changes only where a step claims, moves or releases, and that generations are never reused."""
    if done.before is None:
        return
    old, new = done.before, done.after
    if new["last_generation"] < old["last_generation"]:
        yield f"the last generation fell from {old['last_generation']} to {new['last_generation']}"
    if new["generation"] > new["last_generation"]:
        yield f"generation {new['generation']} is beyond the last that was given, {new['last_generation']}"
    here, there = ((row["host"], row["generation"]) for row in (old, new))
    if here != there and not any(_moves(row_of(action)) for action in done.concerned):
        yield f"from {here} to {there}, and nothing moves it"


def _moves(row: Operation) -> bool:
    return any(
        isinstance(step, ScheduleStep | ReleaseStep) or step.moves_to is not None or step.name == operations.BUILD
        for step in row.all_steps()
    )


#: Name of the rule to what finds the ways in which a transaction breaks it.
RULES = {
    "accept": _accepts,
    "task": _tasks,
    "vm state": _vm_states,
    "step": _steps,
    "deleted": _deleted,
    "place": _places,
}


def last_outcome(action: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the possible states after this action's success; None if it changes none."""
    row, payload = row_of(action), action["payload"] or {}
    wanted = [step for step in row.steps if step.only_if is None or payload.get(step.only_if)]
    found = [step.becomes for step in wanted if step.becomes is not None]
    if not found:
        return ACCEPTED_AS.get(row.kind) if row.kind == "reset_state" else None
    if row.kind in MOVES and found[-1] in AS_BEFORE:
        return AS_BEFORE
    return (found[-1],)


def touches_guest(row: Operation) -> bool:
    """Check whether the operation is one command to the server's host, after which guest and state agree."""
    step = row.steps[0] if len(row.steps) == 1 else None
    return isinstance(step, HostStep) and step.at is HostRole.CURRENT and step.becomes in (*AS_BEFORE, states.PAUSED)
