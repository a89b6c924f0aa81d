"""Order, limits and refusals of the admission queue, and the throttle of clients."""

from __future__ import annotations

import threading
import time

import pytest

from nova_lite.rpc import admission
from nova_lite.rpc.admission import AdmissionQueue, Priority, QueuedRequest, Throttle
from tests.support.waiting import wait_for


def entry(name: str, priority: Priority, refusable: bool = True) -> QueuedRequest[str]:
    return QueuedRequest(name, priority, time.monotonic(), refusable=refusable)


def taken(line: AdmissionQueue[str]) -> list[str]:
    line.close()
    names = []
    while (each := line.take()) is not None:
        names.append(each.item)
        line.done(each)
    return names


def test_queue_takes_the_most_important_first_and_equals_in_order() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(10, threads=2)
    for name, priority in (
        ("l", "LIST"),
        ("c1", "CHANGE"),
        ("r", "READ"),
        ("d", "DELETE"),
        ("c2", "CHANGE"),
        ("o", "OWN"),
    ):
        assert line.put(entry(name, Priority[priority])) is None
    assert taken(line) == ["o", "d", "c1", "c2", "r", "l"]


def test_full_queue_refuses_the_newest_of_the_least_important() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(2, threads=1)
    line.put(entry("busy", Priority.CHANGE))
    busy = line.take()
    assert busy is not None
    lists = [entry("l1", Priority.LIST), entry("l2", Priority.LIST)]
    assert [line.put(each) for each in lists] == [None, None]
    late = entry("l3", Priority.LIST)
    assert line.put(late) is late
    assert line.put(entry("r", Priority.READ)) is lists[1]
    assert line.put(entry("d", Priority.DELETE)) is lists[0]
    another = entry("l4", Priority.LIST)
    assert line.put(another) is another
    line.done(busy)
    assert taken(line) == ["d", "r"]


def test_delete_with_a_free_thread_refuses_no_other_request() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(1, threads=2)
    line.put(entry("busy", Priority.LIST))
    assert line.take() is not None
    line.put(entry("list", Priority.LIST))
    assert line.put(entry("delete", Priority.DELETE)) is None
    assert line.put(entry("another", Priority.DELETE)).item == "list"  # type: ignore[union-attr]


def test_own_requests_and_casts_are_never_refused() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(1, threads=1)
    for number in range(3):
        assert line.put(entry(f"cast{number}", Priority.CHANGE, refusable=False)) is None
        assert line.put(entry(f"own{number}", Priority.OWN)) is None
    one = entry("delete", Priority.DELETE)
    assert line.put(one) is one


def test_lists_leave_threads_to_deletes() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(100, threads=8)
    for _ in range(20):
        line.put(entry("list", Priority.LIST))
    busy = [line.take() for _ in range(7)]
    got: list[QueuedRequest[str] | None] = []
    last = threading.Thread(target=lambda: got.append(line.take()), daemon=True)
    last.start()
    last.join(0.2)
    assert not got, "all threads have lists"
    line.put(entry("delete", Priority.DELETE))
    last.join(5)
    assert got[0] is not None
    assert got[0].item == "delete"
    assert line.waiting == 13
    assert busy[0] is not None
    line.done(busy[0])
    assert line.running == 7


def test_throttle_opens_after_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    throttle = Throttle()
    for _ in range(100):
        throttle.record(Priority.LIST, accepted=False)
        throttle.record(Priority.READ, accepted=True)
    assert sum(throttle.admits(Priority.LIST) for _ in range(100)) < 20
    assert all(throttle.admits(each) for each in (Priority.OWN, Priority.READ, Priority.DELETE) for _ in range(100))
    now[0] += Throttle.WINDOW + 0.1
    assert all(throttle.admits(Priority.LIST) for _ in range(100))


@pytest.mark.parametrize(("answered", "refused"), [(100, 0.0), (50, 0.0), (25, 0.45), (10, 0.75), (0, 0.95)])
def test_throttle_refuses_the_share_that_the_server_refuses(answered: int, refused: float) -> None:
    """``answered``: the requests of a hundred that the server accepts."""
    throttle = Throttle()
    for number in range(100):
        throttle.record(Priority.LIST, accepted=number < answered)
    assert throttle._refused(Priority.LIST) == pytest.approx(refused, abs=0.02)


def test_throttle_few_failures_refuse_nobody() -> None:
    throttle = Throttle()
    for _ in range(Throttle.FREE):
        throttle.record(Priority.READ, accepted=False)
        assert throttle._refused(Priority.READ) == 0
    throttle.record(Priority.READ, accepted=False)
    assert throttle._refused(Priority.READ) > 0


def test_throttle_own_refusals_do_not_keep_it_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(admission.time, "monotonic", lambda: now[0])
    throttle = Throttle()
    for _ in range(100):
        throttle.record(Priority.LIST, accepted=False)
    for _ in range(30):
        now[0] += Throttle.WINDOW / 20
        for _ in range(50):
            if throttle.admits(Priority.LIST):
                throttle.record(Priority.LIST, accepted=True)
    assert throttle._refused(Priority.LIST) == 0


def test_queue_limits_running_calls_but_not_casts_and_deletes() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(100, threads=8, at_once=2)
    for name in ("read1", "read2", "read3"):
        line.put(entry(name, Priority.READ))
    assert [each.item for each in (line.take(), line.take()) if each] == ["read1", "read2"]
    line.put(entry("delete", Priority.DELETE))
    line.put(entry("cast", Priority.CHANGE, refusable=False))
    assert [each.item for each in (line.take(), line.take()) if each] == ["delete", "cast"]
    assert line.waiting == 1


def test_thread_that_became_idle_last_is_woken_first() -> None:
    """Threads that are not needed never start to work, however many there are."""
    line: AdmissionQueue[str] = AdmissionQueue(10, threads=3)
    got: list[str] = []

    def work(name: str) -> None:
        while line.take() is not None:
            got.append(name)  # and is not done with it

    threads = [threading.Thread(target=work, args=[name]) for name in "abc"]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_for("it is idle", lambda count=count: len(line._idle) == count, 30)  # type: ignore[misc]
    for count in range(1, 4):
        line.put(entry("x", Priority.OWN))
        wait_for("all are idle", lambda count=count: len(got) == count and len(line._idle) == 3, 30)  # type: ignore[misc]
    assert got == ["c", "c", "c"]
    line.close()
    for thread in threads:
        thread.join(30)


def test_take_ends_the_last_request_of_the_thread() -> None:
    line: AdmissionQueue[str] = AdmissionQueue(10, threads=2)
    for name in "ab":
        line.put(entry(name, Priority.LIST))
    first = line.take()
    assert (line.running, line.waiting) == (1, 1)  # lists may have one of the two threads
    second = line.take(first)
    assert second is not None and second.item == "b"
    assert (line.running, line.waiting, line.finished) == (1, 0, 1)
    line.close()
    assert line.take(second) is None
    assert (line.running, line.finished) == (0, 2)
