"""The transitions that operations make are those of the protocol's model, and no others."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from nova_lite.db.upkeep import transitions
from nova_lite.db.upkeep.transitions import Action, Moment
from nova_lite.operations.states import PowerState
from tests.model import state as model
from tests.model.protocol import Protocol
from tests.model.state import NAMES, NONE, State

NOW = datetime.datetime(2026, 1, 1)
POWER = {"active": PowerState.RUNNING, "stopped": PowerState.SHUTDOWN}
#: Requests of users after the create: one of each kind, and two of them one after the other.
USERS = (("delete",), ("stop", "start"), ("rebuild",))


def moment(row: model.Row, kind: str = "create") -> Moment:
    """Return a row of the model. It has one task for the guest of a create and that of a rebuild."""
    task = "rebuild_spawning" if (kind, row.task) == ("rebuild", "spawning") else row.task
    host = None if row.host == NONE else NAMES[row.host]
    power = POWER.get(row.vm, PowerState.NOSTATE)
    return Moment(row.vm, task or None, host, row.gen, row.deleted, power)


def action(row: model.Action, has_failed: bool) -> Action:
    host = None if row.host == NONE else NAMES[row.host]
    return Action(row.id, row.kind, {}, row.step, host, row.gen, NOW, None if row.step else NOW, has_failed)


def concerned(before: State, after: State) -> list[Action]:
    """Return the actions that were open before a step or after it, or that it has made."""
    old, new = before.action, after.action
    has_failed = bool(old.step) and not new.step and after.row.vm != "active"
    ended = old._replace(step="") if new.id != old.id else new
    found = [action(ended, has_failed)] if old.step else []
    return found + ([action(new, False)] if new.id != old.id else [])


def steps(users: tuple[str, ...]) -> Iterator[tuple[str, State, State]]:
    """Yield the steps of the model that change a row, with their labels, once for each change."""
    protocol = Protocol(users=users, max_actions=3 if len(users) > 1 else 2, crashes=0)
    todo = [protocol.canonical(protocol.initial())]
    known, shown = set(todo), set()
    while todo:
        state = todo.pop()
        for label, _, after in protocol.steps(state):
            change = state.row, state.action, after.row, after.action
            if state.row != after.row and change not in shown:
                shown.add(change)
                yield label, state, after
            following = protocol.canonical(after)
            if following not in known:
                known.add(following)
                todo.append(following)


@pytest.mark.parametrize("users", USERS)
def test_transitions_of_the_model_are_allowed(users: tuple[str, ...]) -> None:
    count = 0
    for label, before, after in steps(users):
        count += 1
        old, new = moment(before.row, before.action.kind), moment(after.row, after.action.kind)
        wrong = transitions.problem(old, new, concerned(before, after))
        assert wrong is None, f"{label}: {wrong}"
        if after.action.id != before.action.id:
            assert transitions.refusal(old, action(after.action, False)) is None, label
        held = after.row.alloc
        claims = [] if held == NONE else [(NAMES[held], after.row.gen)]
        running = [action(after.action, False)] if after.action.step else []
        assert transitions.standing(new, claims, running) is None, label
    assert count > 10, "the model has steps"


def test_transitions_that_the_model_lacks_are_refused() -> None:
    """Each is a step of the model in which one value is another."""
    for _, before, after in steps(("stop", "start")):
        old, new, actions = moment(before.row), moment(after.row), concerned(before, after)
        if after.action.kind == "create" or before.action.kind == "create":
            continue
        for wrong in (
            new._replace(generation=new.generation - 1),
            new._replace(generation=new.generation + 1),
            new._replace(host="B" if new.host == "A" else "A"),
            new._replace(vm_state="paused"),
            new._replace(task_state="rebooting"),
            new._replace(deleted=True, vm_state="deleted"),
        ):
            assert transitions.problem(old, wrong, actions) is not None, (old, wrong)


AT_A = Moment("active", None, "A", 1, False, PowerState.RUNNING)
START = Action(2, "start", {}, "perform", "A", 1, NOW)


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        (AT_A, "start began while the server was active"),
        (AT_A._replace(vm_state="stopped", task_state="powering-off"), "start began during powering-off"),
        (AT_A._replace(vm_state="deleted", deleted=True), "start began after the server was deleted"),
        (AT_A._replace(vm_state="stopped"), None),
    ],
)
def test_refusal_names_a_state_in_which_no_action_begins(before: Moment, refused: str | None) -> None:
    assert transitions.refusal(before, START) == refused


@pytest.mark.parametrize(
    ("now", "claims", "wrong"),
    [
        (AT_A, [("A", 1)], None),
        (AT_A, [], "it has no claim at host A, generation 1"),
        (AT_A, [("A", 1), ("B", 2)], "it has 2 claims (A, B), and no action is open"),
        (AT_A._replace(vm_state="resized"), [("A", 1), ("B", 2)], None),
        (AT_A._replace(host=None), [("B", 1)], "it has no host, and claims at B"),
        (AT_A._replace(deleted=True), [], None),
    ],
)
def test_standing_names_claims_that_no_action_leaves(
    now: Moment, claims: list[tuple[str, int]], wrong: str | None
) -> None:
    assert transitions.standing(now, claims, []) == wrong


def test_build_without_a_claim_is_refused() -> None:
    build = Action(1, "create", {}, "build", "A", 1, NOW)
    assert transitions.standing(AT_A, [("A", 1)], [build]) is None
    said = "create builds at host A, where the server has no claim"
    assert transitions.standing(AT_A, [("B", 1)], [build]) == said


def test_confirmation_in_place_ends_at_once() -> None:
    confirmed = Action(4, "confirmResize", {"in_place": True}, "perform", "A", 1, NOW, NOW)
    assert transitions.problem(AT_A._replace(vm_state="resized"), AT_A, [confirmed]) is None


def test_kind_of_another_version_may_do_anything() -> None:
    other = Action(3, "levitate", {}, "up", "A", 1, NOW)
    assert transitions.problem(AT_A, AT_A._replace(vm_state="floating"), [other]) is None
