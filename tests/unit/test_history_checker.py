"""The checker of histories (tests/faults/history): good ones pass, and each rule is seen to fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.operations.states import PowerState
from tests.faults.history import checker, events
from tests.faults.history.events import (
    CALM,
    GONE,
    SETTLED,
    Change,
    Fault,
    Mark,
    Recorder,
    Request,
    Settings,
    Sighting,
    Tables,
    Traces,
)

S = "11111111-1111-1111-1111-111111111111"
T = "22222222-2222-2222-2222-222222222222"
RUNNING, OFF = int(PowerState.RUNNING), int(PowerState.SHUTDOWN)
OVER = "2026-01-01 00:00:00"


class Story:
    """Life of a server, with one second per event; `told` is the history."""

    def __init__(self) -> None:
        self.events: list[Any] = [Settings(seed=1, seconds=100, bound=10, hosts=["a", "b"])]
        self.order = 0
        self.server: dict[str, Any] = {
            "vm_state": "building",
            "task_state": "scheduling",
            "power_state": 0,
            "host": None,
            "generation": 0,
            "last_generation": 0,
            "deleted": 0,
            "locked": 0,
            "display_name": "vm",
            "metadata": {},
        }
        self.actions: dict[int, dict[str, Any]] = {}

    def _change(self, at: float, what: str, row: dict[str, Any], server: str) -> None:
        self.order += 1
        self.events.append(
            Change(order=self.order, at=at, transaction=f"t{at}", what=what, server=server, row=dict(row))
        )

    def write(self, at: float, action: int | None = None, uuid: str = S, **values: Any) -> None:
        """Record one transaction: its changes of the server, and of the action ``action`` (prefix a_)."""
        if own := {key: value for key, value in values.items() if not key.startswith("a_")}:
            self.server |= own
            self._change(at, "instance", self.server, uuid)
        if action is not None:
            blank = {"id": action, "host": "a", "generation": 1, "message": None, "payload": {}, "user": "user"}
            row = self.actions.setdefault(action, {**blank, "finished": None, "request_id": f"req-{action}"})
            row |= {key[2:]: value for key, value in values.items() if key.startswith("a_")}
            self._change(at, "action", row, uuid)

    def ask(self, at: float, operation: str, status: int | None = 202, **values: Any) -> Request:
        answered = {} if status is None else {"returned": at + 0.5}
        asked = {"client": "c", "server": S, "called": at, "status": status, **answered, **values}
        request = Request(operation=operation, **asked)
        self.events.append(request)
        return request

    def see(self, first: float, last: float, host: str = "a", generation: int = 1, power: int = RUNNING) -> None:
        seen = {"server": S, "host": host, "generation": generation, "power_state": power}
        self.events.append(Sighting(first=first, last=last, **seen))

    def read(self, at: float, *state: Any, operation: str = "show") -> None:
        self.ask(at, operation, 200, states={S: state or None}, server=S if operation == "show" else None)

    # --- what most begin with

    def boot(self) -> None:
        self.ask(1, "create", request_id="req-1", name="vm", key="k")
        self.write(1.2, 1, a_action="create", a_step="schedule", task_state="scheduling")
        self.write(2, 1, a_step="build", task_state="spawning", host="a", generation=1, last_generation=1)
        self.see(2.5, 9.7)
        self.write(3, 1, a_finished=OVER, vm_state="active", task_state=None, power_state=RUNNING)
        self.read(4, "active", None, None)

    def act(self, at: float, number: int, kind: str, task: str, vm_state: str, **values: Any) -> None:
        self.ask(at, kind, request_id=f"req-{number}")
        self.write(at + 0.2, number, a_action=kind, a_step="perform", task_state=task)
        self.write(at + 1, number, a_finished=OVER, task_state=None, vm_state=vm_state, **values)

    def stop(self) -> None:
        self.act(9, 2, "stop", "powering-off", "stopped", power_state=OFF)
        self.see(9.8, 20.8, power=OFF)

    def delete(self, at: float = 20) -> None:
        self.ask(at, "delete", 204, request_id="req-9")
        self.write(at + 0.2, 9, a_action="delete", a_step="perform", task_state="deleting")
        self.write(at + 1, 9, a_step="release", a_finished=OVER, task_state=None, vm_state="deleted", deleted=1)

    def whole(self) -> Story:
        self.boot()
        self.stop()
        self.delete()
        self.events += [Mark(what=CALM, at=30), Mark(what=SETTLED, at=31), Mark(what=GONE, at=32)]
        return self

    def rules(self) -> set[str]:
        return {violation.rule for violation in checker.check(self.events)}


def whole() -> Story:
    return Story().whole()


def test_a_good_life_breaks_nothing() -> None:
    assert checker.check(whole().events) == []


def test_a_server_follows_its_guest_and_its_builds_move() -> None:
    story = Story()
    story.ask(1, "create", request_id="req-1", name="vm")
    story.write(1.2, 1, a_action="create", a_step="schedule", vm_state="building")
    story.write(2, 1, a_step="build", host="a", generation=1, last_generation=1)
    story.write(3, 1, a_step="schedule", host=None, task_state="scheduling")
    story.write(4, 1, a_step="build", host="b", generation=2, last_generation=2)
    story.write(5, 1, a_finished=OVER, vm_state="active", task_state=None, power_state=RUNNING)
    story.write(6, vm_state="stopped", power_state=OFF)
    story.write(7, vm_state="error", power_state=0)
    assert story.rules() == set()


def test_an_answer_that_was_lost_may_have_been_accepted() -> None:
    story = Story()
    story.boot()
    story.ask(9, "stop", None)
    story.write(9.2, 2, a_action="stop", a_step="perform", task_state="powering-off")
    story.write(9.8, 2, a_finished=OVER, task_state=None, vm_state="stopped", power_state=OFF)
    story.ask(11, "start", 503, request_id="req-77")
    story.ask(12, "start", None)
    assert story.rules() == set()


def test_undos_go_from_the_newest_step_to_the_oldest() -> None:
    story = Story()
    story.boot()
    story.ask(9, "live-migration", request_id="req-2")
    story.write(9.2, 2, a_action="live-migration", a_step="prepare", task_state="migrating")
    story.write(10, 2, a_step="drop")
    story.write(11, 2, a_step="release", a_finished=OVER, a_message="Error", task_state=None)
    assert story.rules() == set()
    story.write(12, 2, a_step="drop")
    assert story.rules() == {"step"}


def test_a_history_in_which_nothing_happened_proves_nothing() -> None:
    assert not checker.History(Story().events).proves()
    story = whole()
    story.events.append(Fault(effect="kill", target="compute-1", began=9.5, ended=10))
    assert checker.History(story.events).proves()


def test_reads_see_what_is_being_committed() -> None:
    """A row is written before it is committed, and another transaction waits for that."""
    story = whole()
    story.read(9.0, "active", None, None)
    story.read(9.5, "active", None, None)
    story.read(9.5, "active", "powering-off", None)
    assert story.rules() == set()


# --- each rule fails


def accept(story: Story) -> None:
    story.act(12, 3, "pause", "pausing", "paused")


def locked(story: Story) -> None:
    story.write(8.1, locked=1)


def task(story: Story) -> None:
    story.write(12, task_state="rebooting")


def foreign_task(story: Story) -> None:
    story.ask(12, "start", request_id="req-3")
    story.write(12, 3, a_action="start", a_step="perform", task_state="pausing")
    story.write(13, 3, a_finished=OVER, task_state=None, vm_state="active")


def vm_state(story: Story) -> None:
    story.write(12, vm_state="paused")


def wrong_outcome(story: Story) -> None:
    story.act(12, 3, "start", "powering-on", "suspended")


def step(story: Story) -> None:
    story.write(12, 2, a_step="hand_over")


def backward(story: Story) -> None:
    story.write(12, 1, a_finished=OVER, a_step="schedule")
    story.ask(13, "confirmResize", request_id="req-3")
    story.write(13, 3, a_action="evacuate", a_step="perform")
    story.write(14, 3, a_step="build")


def again(story: Story) -> None:
    story.write(12, 2, a_finished=None)
    story.write(13, 2, a_finished=OVER)


def undead(story: Story) -> None:
    story.write(25, deleted=0, vm_state="active")


def deleted_unasked(story: Story) -> None:
    story.write(12, vm_state="deleted", deleted=1)


def place(story: Story) -> None:
    story.write(12, host="b", generation=2, last_generation=2)


def generation(story: Story) -> None:
    story.write(12, last_generation=0)


def lost(story: Story) -> None:
    story.ask(15, "start", request_id="req-50")


def lost_create(story: Story) -> None:
    story.ask(15, "create", server=T, name="other")


def lost_delete(story: Story) -> None:
    story.ask(15, "delete", 204, server=T)


def refused_and_done(story: Story) -> None:
    story.ask(9, "stop", 409, request_id="req-2")


def unasked(story: Story) -> None:
    story.write(12.2, 3, a_action="start", a_step="perform", task_state="powering-on")
    story.write(13, 3, a_finished=OVER, task_state=None, vm_state="active")
    story.write(14, vm_state="stopped", power_state=OFF)


def unasked_server(story: Story) -> None:
    story.server = {**Story().server, "display_name": "nobody's"}
    story.write(15, 30, T, a_action="create", a_step="schedule", vm_state="building")
    story.write(16, 30, T, a_finished=OVER, vm_state="active", task_state=None)


def twice_by_one_key(story: Story) -> None:
    story.server = Story().server
    story.write(15, 30, T, a_action="create", a_step="schedule", vm_state="building")
    story.write(16, 30, T, a_finished=OVER, vm_state="active", task_state=None)


def still_open(story: Story) -> None:
    story.ask(22, "start", None)
    story.write(12, 3, a_action="lock", a_step="perform")


def late(story: Story) -> None:
    story.write(29, 3, a_action="lock", a_step="perform")
    story.write(45, 3, a_finished=OVER)


def unsettled(story: Story) -> None:
    story.events = [event for event in story.events if event != Mark(what=SETTLED, at=31)]


def no_effect(story: Story) -> None:
    story.act(12, 3, "start", "powering-on", "stopped")


def no_cause(story: Story) -> None:
    story.write(12, 3, a_action="start", a_step="perform", task_state="powering-on")
    story.write(13, 3, a_finished=OVER, a_message="Error", task_state=None)
    add_tables(story, instance_actions=[{"id": 3, "events": '[{"result": "Success"}]', "finish_time": OVER}])


def no_fault(story: Story) -> None:
    add_tables(story, instances=[instance(vm_state="error", host=None, fault=None)])


def guest(story: Story) -> None:
    """Record a stop of 9 s whose guest keeps running."""
    story.see(5, 15)


def twice(story: Story) -> None:
    story.see(5, 6, host="b", generation=2)


def one_generation_at_two(story: Story) -> None:
    story.see(15, 15.5, host="b", power=OFF)


def ghost(story: Story) -> None:
    story.see(26, 27, power=OFF)


def stale_read(story: Story) -> None:
    story.read(12, "active", None, None)


def read_of_what_never_was(story: Story) -> None:
    story.read(12, "stopped", "powering-on", None)


def shown_again(story: Story) -> None:
    story.read(25, "stopped", None, None)


def not_shown(story: Story) -> None:
    story.ask(12, "show", 404)


def left_out(story: Story) -> None:
    story.ask(12, "list", 200, server=None, states={}, complete=True)


def unknown_server(story: Story) -> None:
    story.ask(12, "list", 200, server=None, states={S: ("stopped", None, None), T: ("active", None, None)})


def metadata_lost(story: Story) -> None:
    story.ask(12, "metadata", 200, value="7")


def broken(story: Story) -> None:
    story.ask(12, "show", 500)


def instance(**values: Any) -> dict[str, Any]:
    amounts = {"vcpus": 1, "memory_mb": 64, "disk_gb": 1, "extra_vcpus": 0, "extra_memory_mb": 0}
    blank = {"uuid": S, "host": "a", "vm_state": "active", "deleted": 0, "generation": 1, "project_id": "demo"}
    return {**blank, **amounts, "fault": None, "power_state": RUNNING, **values}


ALLOCATION = {
    "instance_uuid": S,
    "compute_node_id": 1,
    "generation": 1,
    "vcpus": 1,
    "memory_mb": 64,
    "disk_gb": 1,
}
NODE = {
    "id": 1,
    "host": "a",
    "vcpus": 4,
    "memory_mb": 512,
    "disk_gb": 10,
    "vcpus_used": 1,
    "memory_mb_used": 64,
    "disk_gb_used": 1,
}
DOMAIN: dict[str, Any] = {"server": S, "host": "a", "generation": 1, "power_state": RUNNING, "volumes": ["v"]}
VOLUME = {"id": "v", "status": "in-use", "instance_uuid": S}
ROWS: dict[str, list[dict[str, Any]]] = {
    "instances": [instance()],
    "allocations": [ALLOCATION],
    "compute_nodes": [NODE],
    "ports": [{"id": "p", "instance_uuid": S, "address": "10.0.0.1", "mac_address": "fa:16:3e:0:0:1"}],
    "volumes": [VOLUME],
    "quota_usages": [{"project_id": "demo", "resource": "instances", "used": 1}],
}


def tables(domains: list[dict[str, Any]] | None = None, what: str = SETTLED, **rows: Any) -> Tables:
    found = [DOMAIN] if domains is None else domains
    return Tables(what=what, rows={**ROWS, **rows}, domains=found, files=[], problems=[])


def add_tables(story: Story, **rows: Any) -> None:
    story.events.append(Tables(what=SETTLED, rows=rows, domains=[], files=[], problems=[]))


def no_path(story: Story) -> None:
    said = "no step of the model makes the rows ('active', 0, 1, 0, False, '', '')"
    story.events.append(Traces(paths=3, unjudged=0, refused={S: said}))


def bad_tables(story: Story) -> None:
    story.events.append(Tables(what=GONE, rows={}, domains=[], files=["disks/x on a"], problems=[]))


BROKEN: dict[Callable[[Story], None], str] = {
    **dict.fromkeys((accept, locked), "accept"),
    **dict.fromkeys((task, foreign_task), "task"),
    **dict.fromkeys((vm_state, wrong_outcome), "vm state"),
    **dict.fromkeys((step, backward, again), "step"),
    **dict.fromkeys((undead, deleted_unasked), "deleted"),
    **dict.fromkeys((place, generation), "place"),
    **dict.fromkeys((lost, lost_create, lost_delete, refused_and_done), "lost"),
    **dict.fromkeys((unasked, unasked_server, twice_by_one_key), "asked"),
    **dict.fromkeys((still_open, late, unsettled), "open"),
    **dict.fromkeys((no_effect, no_cause, no_fault), "effect"),
    guest: "guest",
    **dict.fromkeys((twice, one_generation_at_two), "twice"),
    ghost: "ghost",
    **dict.fromkeys((stale_read, read_of_what_never_was, shown_again, not_shown), "read"),
    **dict.fromkeys((left_out, unknown_server, metadata_lost), "read"),
    broken: "answer",
    no_path: "trace",
    bad_tables: "tables",
}

#: Violations that fit between the parts of the story. Others follow it, since rows are in the order of time.
BETWEEN = {
    **dict.fromkeys((accept, task, foreign_task, vm_state, wrong_outcome, step, backward, again), "delete"),
    **dict.fromkeys((deleted_unasked, place, generation, unasked, still_open, no_effect, no_cause), "delete"),
    locked: "stop",
}


@pytest.mark.parametrize("breaks", BROKEN, ids=lambda function: function.__name__)
def test_is_found(breaks: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch) -> None:
    if breaks in BETWEEN:
        part = BETWEEN[breaks]
        goes_on = getattr(Story, part)

        def broken_before(story: Story) -> None:
            breaks(story)
            goes_on(story)

        monkeypatch.setattr(Story, part, broken_before)
        story = whole()
    else:
        story = whole()
        breaks(story)
    assert BROKEN[breaks] in story.rules()


def test_every_rule_has_been_seen_to_fail() -> None:
    from tests.faults.history import rules

    others = {"lost", "asked", "open", "effect", "guest", "twice", "ghost", "read", "answer", "trace", "tables"}
    assert set(BROKEN.values()) == set(rules.RULES) | others


# --- tables


def test_tables_that_add_up() -> None:
    assert list(checker.of_tables(tables())) == []


@pytest.mark.parametrize(
    "wrong, said",
    [
        (tables(compute_nodes=[{**NODE, "vcpus_used": 2}]), "vcpus_used 2"),
        (tables(compute_nodes=[{**NODE, "vcpus": 0}]), "has 0 vcpus"),
        (tables(allocations=[]), "claims on a"),
        (tables(allocations=[ALLOCATION, {**ALLOCATION, "generation": 2}]), "2 claims on a"),
        (tables(quota_usages=[{"project_id": "demo", "resource": "cores", "used": 5}]), "counts 5"),
        (tables(ports=[*ROWS["ports"], {**ROWS["ports"][0], "id": "q"}]), "given out 2 times"),
        (tables(ports=[{**ROWS["ports"][0], "instance_uuid": T}]), "which is gone"),
        (tables(volumes=[{**VOLUME, "instance_uuid": None}]), "in the guests"),
        (tables(volumes=[]), "in no row"),
        (tables(volumes=[{**VOLUME, "status": "detaching"}]), "for good"),
        (tables(domains=[{**DOMAIN, "volumes": []}]), "in the guests of []"),
        (tables(domains=[]), "no domain of it"),
        (tables(domains=[DOMAIN, {**DOMAIN, "host": "b", "volumes": []}]), "holds nothing"),
        (tables(domains=[{**DOMAIN, "power_state": OFF}]), "its domain SHUTDOWN"),
        (tables(domains=[{**DOMAIN, "generation": 2}]), "of generation 2"),
        (tables(what=GONE), "is left"),
    ],
)
def test_tables_that_do_not(wrong: Tables, said: str) -> None:
    assert any(said in text for text in checker.of_tables(wrong))


# --- the file, and the story that is told


@pytest.mark.parametrize("name", ["history.jsonl", "history.jsonl.gz"])
def test_a_history_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    story = whole()
    with Recorder(tmp_path / name) as recorder:
        recorder.add_all(story.events)
    assert events.read(tmp_path / name) == story.events
    (tmp_path / "other").write_text("{}\n")
    with pytest.raises(msgspec.DecodeError):
        events.read(tmp_path / "other")


def test_a_story_is_told_in_order() -> None:
    story = whole()
    story.events.append(Fault(effect="kill", target="compute-1", began=9.5, ended=10))
    lines = list(checker.story(checker.History(story.events), S))
    told = ["create", "row: building", "a has it", "row: active", "stop", "kill compute-1", "row: stopped", "delete"]
    places = [next(index for index, line in enumerate(lines) if part in line) for part in told]
    assert places == sorted(places)
    assert checker.figures(checker.History(story.events))["servers"] == 1
