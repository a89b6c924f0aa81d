"""Reads that wait at the same time are one message; nobody gets what was asked before it came, or another's server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.api.compute import read_batcher
from nova_lite.base import batching, exceptions
from nova_lite.base.batching import AT_ONCE, Batcher
from nova_lite.base.context import RequestContext
from nova_lite.objects import Instance, InstanceFilters, InstanceQuery
from tests.unit.api.fakes import make_instance

DEADLINE = 30


def context(project: str = "demo", admin: bool = False) -> RequestContext:
    return RequestContext(user_id="u", project_id=project, is_admin=admin, overwrite=False)


class Conductor:
    """Each answer is held back until `let`; ``came`` says what was asked."""

    def __init__(self, *instances: Instance) -> None:
        self.instances = {each.uuid: each for each in instances}
        self.came: list[Any] = []
        self.failure: BaseException | None = None
        self._changed = threading.Condition()
        self._let = 0

    def let(self, count: int = 1) -> None:
        with self._changed:
            self._let += count
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.came) >= count, DEADLINE), self.came

    def _answer(self, asked: Any) -> None:
        with self._changed:
            self.came.append(asked)
            mine = len(self.came)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._let >= mine, DEADLINE), self.came
        if self.failure is not None:
            raise self.failure

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        self._answer(instance_uuid)
        found = self.instances.get(instance_uuid)
        if found is None or not (context.is_admin or found.project_id == context.project_id):
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        return found

    def instances_get(self, context: RequestContext, questions: list[InstanceQuery]) -> list[Instance]:
        self._answer([each.uuid for each in questions])
        return [each for each in self.instances.values() if any(q.uuid == each.uuid for q in questions)]

    def instance_list(self, context: RequestContext, filters: InstanceFilters, *paging: Any) -> list[Instance]:
        self._answer((context.project_id, filters.host, *paging))
        return list(self.instances.values())


@pytest.fixture
def run() -> Any:
    with ThreadPoolExecutor(20) as pool:
        yield pool.submit


Run = Callable[..., "Future[Any]"]


def waiting(client: Any, count: int) -> None:
    """Until so many wait for their turn."""
    deadline = threading.Event()
    for _ in range(DEADLINE * 100):
        if len(client._instances._waiting) == count:
            return
        deadline.wait(0.01)
    raise AssertionError(client._instances._waiting)


def under_way(run: Run, conductor: Conductor, client: Any, uuid: str) -> list[Future[Any]]:
    """As many reads as go by themselves."""
    futures = []
    for number in range(AT_ONCE):
        futures.append(run(client.instance_get, context(), uuid))
        conductor.wait_for(number + 1)
    return futures


def test_those_that_wait_travel_together(run: Run) -> None:
    one, other, foreign = make_instance(), make_instance(), make_instance(project_id="another")
    conductor = Conductor(one, other, foreign)
    client: Any = read_batcher.batched(conductor)  # type: ignore[arg-type]
    alone = under_way(run, conductor, client, one.uuid)
    assert conductor.came == [one.uuid] * AT_ONCE
    together = [run(client.instance_get, context(), each.uuid) for each in (one, other, one)]
    stranger = run(client.instance_get, context(), foreign.uuid)
    admin = run(client.instance_get, context(admin=True), foreign.uuid)
    nobodys = run(client.instance_get, context(), "no-such")
    waiting(client, 6)
    conductor.let(99)
    assert [future.result(DEADLINE).uuid for future in alone] == [one.uuid] * AT_ONCE
    assert [future.result(DEADLINE).uuid for future in together] == [one.uuid, other.uuid, one.uuid]
    assert admin.result(DEADLINE).uuid == foreign.uuid
    for future, uuid in ((stranger, foreign.uuid), (nobodys, "no-such")):
        with pytest.raises(exceptions.InstanceNotFound, match=uuid):
            future.result(DEADLINE)
    (asked,) = conductor.came[AT_ONCE:]
    assert sorted(asked) == sorted([one.uuid, other.uuid, one.uuid, foreign.uuid, foreign.uuid, "no-such"])


def test_while_one_is_quick_all_others_are_one_message(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "PATIENCE", DEADLINE)
    one = make_instance()
    conductor = Conductor(one)
    client: Any = read_batcher.batched(conductor)  # type: ignore[arg-type]
    alone = run(client.instance_get, context(), one.uuid)
    conductor.wait_for(1)
    together = [run(client.instance_get, context(), one.uuid) for _ in range(7)]
    waiting(client, 7)
    conductor.let(99)
    assert {future.result(DEADLINE).uuid for future in (alone, *together)} == {one.uuid}
    assert len(conductor.came) == 2, conductor.came


def test_what_was_asked_before_is_no_answer(run: Run) -> None:
    one = make_instance(vm_state="building")
    conductor = Conductor(one)
    client: Any = read_batcher.batched(conductor)  # type: ignore[arg-type]
    before = under_way(run, conductor, client, one.uuid)
    after = run(client.instance_get, context(), one.uuid)
    waiting(client, 1)
    conductor.let()
    assert before[0].result(DEADLINE).vm_state == "building"
    conductor.wait_for(AT_ONCE + 1)
    conductor.instances[one.uuid] = make_instance(uuid=one.uuid, vm_state="active")
    conductor.let(99)
    assert after.result(DEADLINE).vm_state == "active"


@pytest.mark.parametrize("failure", [exceptions.MessagingUnavailable(what="x"), SystemExit()], ids=["error", "ended"])
def test_a_failure_is_everybodys_and_the_next_are_asked_for(run: Run, failure: BaseException) -> None:
    one = make_instance()
    conductor = Conductor(one)
    client: Any = read_batcher.batched(conductor)  # type: ignore[arg-type]
    alone = under_way(run, conductor, client, one.uuid)
    together = [run(client.instance_get, context(), one.uuid) for _ in range(3)]
    waiting(client, 3)
    conductor.failure = failure
    conductor.let(AT_ONCE + 1)
    told = [future.exception(DEADLINE) for future in (*alone, *together)]
    assert sum(isinstance(each, exceptions.MessagingUnavailable | SystemExit) for each in told) == AT_ONCE + 3
    conductor.failure = None
    conductor.let(99)
    assert client.instance_get(context(), one.uuid).uuid == one.uuid


def test_the_same_list_is_asked_for_once(run: Run) -> None:
    conductor = Conductor(make_instance())
    client: Any = read_batcher.batched(conductor)  # type: ignore[arg-type]
    lists = [run(client.instance_list, context(), InstanceFilters(), 50)]
    conductor.wait_for(1)
    others = (context("p2"), InstanceFilters(), 50), (context(), InstanceFilters(host="h"), 50)
    other = (context(), InstanceFilters(), 51)
    lists += [run(client.instance_list, *arguments) for arguments in (*others, other)]
    conductor.wait_for(4)
    lists += [run(client.instance_list, context(), InstanceFilters(), 50) for _ in range(4)]
    (line, _) = client._lists[("demo", False, repr(InstanceFilters()), repr((50,)), "[]")]
    for _ in range(DEADLINE * 100):
        if len(line._waiting) == 4:
            break
        threading.Event().wait(0.01)
    conductor.let(99)
    assert all(len(future.result(DEADLINE)) == 1 for future in lists)
    assert len(conductor.came) == 5, conductor.came
    assert len(client._lists) == 4


def test_few_lists_are_remembered(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is being read among them."""
    monkeypatch.setattr(read_batcher, "LISTS", 2)
    conductor = Conductor(make_instance())
    client: Any = read_batcher.batched(conductor)  # type: ignore[arg-type]
    first = run(client.instance_list, context(), InstanceFilters(), 1)
    conductor.wait_for(1)
    for limit in (2, 3):
        run(client.instance_list, context(), InstanceFilters(), limit)
        conductor.wait_for(limit)
    conductor.let(99)
    assert len(first.result(DEADLINE)) == 1
    for limit in range(4, 9):
        client.instance_list(context(), InstanceFilters(), limit)
        assert len(client._lists) <= 3


def lingering(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> tuple[Batcher[int, int], list[list[int]], threading.Event]:
    """A line, what each of its messages asked, and what the first one waits for."""
    monkeypatch.setattr(batching, "PATIENCE", DEADLINE)
    asked: list[list[int]] = []
    gate = threading.Event()

    def ask(questions: list[int]) -> list[int]:
        asked.append(questions)
        if len(asked) == 1:
            gate.wait(DEADLINE)
        return questions

    return Batcher(ask, linger=seconds), asked, gate


def in_line(line: Batcher[int, int], count: int) -> None:
    for _ in range(DEADLINE * 100):
        if len(line._waiting) == count:
            return
        threading.Event().wait(0.01)
    raise AssertionError(line._waiting)


def test_those_who_were_answered_together_are_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would go on in two halves: those that were under way, and those that waited."""
    line, asked, gate = lingering(monkeypatch, DEADLINE)
    first = run(line.ask, 1)
    while not asked:
        threading.Event().wait(0.01)
    others = [run(line.ask, number) for number in (2, 3)]
    in_line(line, 2)
    gate.set()
    assert first.result(DEADLINE) == 1
    again = run(line.ask, 4)
    assert [each.result(DEADLINE) for each in (*others, again)] == [2, 3, 4]
    assert [sorted(each) for each in asked] == [[1], [2, 3, 4]]


def test_who_is_back_before_the_next_message_is_not_waited_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the thread that is to send it has not had its turn yet."""
    line, asked, gate = lingering(monkeypatch, DEADLINE)
    line._ended, line._together = time.monotonic(), 3
    gate.set()
    line._waiting += [batching._Read(2), batching._Read(3)]
    started = time.monotonic()
    line._under_way = 1
    line._lead([batching._Read(1)])
    assert time.monotonic() - started < DEADLINE
    assert asked == [[1, 2, 3]]


def test_those_that_are_waited_for_do_not_go_by_themselves(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the moment is, those that come in it are one message."""
    line, asked, gate = lingering(monkeypatch, DEADLINE)
    gate.set()
    line._ended, line._together = time.monotonic(), 3
    impatient: list[bool] = []
    send_another = line._send_another
    monkeypatch.setattr(batching, "PATIENCE", 0.001)
    monkeypatch.setattr(line, "_send_another", lambda: (impatient.append(send_another()), impatient[-1])[1])
    futures = [run(line.ask, 1)]
    while line._missing is None:
        threading.Event().wait(0.01)
    futures.append(run(line.ask, 2))
    while len(impatient) < 3:
        threading.Event().wait(0.01)
    futures.append(run(line.ask, 3))
    assert sorted(each.result(DEADLINE) for each in futures) == [1, 2, 3]
    assert [sorted(each) for each in asked] == [[1, 2, 3]]
    assert not any(impatient)


def test_who_does_not_come_back_is_waited_for_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    line, asked, gate = lingering(monkeypatch, 0.05)
    first = run(line.ask, 1)
    while not asked:
        threading.Event().wait(0.01)
    other = run(line.ask, 2)
    in_line(line, 1)
    gate.set()
    assert (first.result(DEADLINE), other.result(DEADLINE)) == (1, 2)
    assert line._together == 1
    assert asked == [[1], [2]]
    waited: list[float | None] = []
    monkeypatch.setattr(threading.Event, "wait", lambda self, timeout=None: waited.append(timeout))
    assert [line.ask(number) for number in (3, 4)] == [3, 4]
    assert waited == []


def test_a_message_carries_only_so_many(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MOST", 3)
    asked: list[int] = []
    gate = threading.Event()

    def ask(questions: list[int]) -> list[int]:
        gate.wait(DEADLINE)
        asked.append(len(questions))
        return questions

    line: Batcher[int, int] = Batcher(ask, at_once=1)
    futures = [run(line.ask, number) for number in range(8)]
    for _ in range(DEADLINE * 100):
        if len(line._waiting) == 7:
            break
        threading.Event().wait(0.01)
    gate.set()
    assert sorted(future.result(DEADLINE) for future in futures) == list(range(8))
    assert asked == [1, 3, 3, 1]
