"""Reports that wait at the same time are one message, and each job hears of its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.batching import AT_ONCE
from nova_lite.base.context import get_admin_context
from nova_lite.compute.report_batcher import batched
from nova_lite.objects import ActionReport, BuildResult, Outcome

DEADLINE = 30


class Conductor:
    """Holds back each reply until `let`. ``stale``: instances whose builds are over."""

    def __init__(self) -> None:
        self.came: list[list[str]] = []
        self.stale: set[str] = set()
        self._changed = threading.Condition()
        self._let = False

    def let(self) -> None:
        with self._changed:
            self._let = True
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.came) >= count, DEADLINE), self.came

    def _take(self, *names: str) -> None:
        with self._changed:
            self.came.append(sorted(names))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._let, DEADLINE)

    def finish_build(self, context: Any, result: BuildResult) -> None:
        self._take(result.instance_uuid)
        if result.instance_uuid in self.stale:
            raise exceptions.InstanceGone(instance_id=result.instance_uuid)

    def finish_builds(self, context: Any, host: str, results: list[BuildResult]) -> list[bool]:
        assert host == "h1"
        self._take(*(result.instance_uuid for result in results))
        return [result.instance_uuid not in self.stale for result in results]

    def finish_action(self, context: Any, host: str, action_id: int, *arguments: Any, **more: Any) -> None:
        assert host == "h1"
        self._take(str(action_id))

    def finish_actions(self, context: Any, host: str, reports: list[ActionReport]) -> None:
        assert host == "h1"
        self._take(*(str(report.action_id) for report in reports))


def build(uuid: str) -> BuildResult:
    return BuildResult(instance_uuid=uuid, generation=1, host="h1", outcome=Outcome.BUILT)


def report_all(conductor: Conductor, builds: list[str], first: int) -> list[Future[None]]:
    """The first ones are under way when the others come."""
    client: Any = batched(conductor, "h1")  # type: ignore[arg-type]
    pool = ThreadPoolExecutor(len(builds))
    futures = []
    for number, uuid in enumerate(builds):
        if number == first:
            conductor.wait_for(first)
        futures.append(pool.submit(client.finish_build, get_admin_context(), build(uuid)))
        if number < first:
            conductor.wait_for(number + 1)
    pool.shutdown(wait=False)
    wait_until_waiting(client, len(builds) - first)
    conductor.let()
    return futures


def wait_until_waiting(client: Any, count: int) -> None:
    deadline = threading.Event()
    for _ in range(DEADLINE * 100):
        if len(client._builds._waiting) == count:
            return
        deadline.wait(0.01)
    raise AssertionError(client._builds._waiting)


def test_what_waits_is_one_message() -> None:
    conductor = Conductor()
    for future in report_all(conductor, ["a", "b", "c", "d", "e"], AT_ONCE):
        assert future.result(DEADLINE) is None
    assert conductor.came == [["a"], ["b"], ["c", "d", "e"]]


def test_who_is_late_hears_of_it_and_nobody_else_does() -> None:
    conductor = Conductor()
    conductor.stale = {"a", "d"}
    futures = dict(zip("abcde", report_all(conductor, list("abcde"), AT_ONCE), strict=True))
    raised = {uuid: type(future.exception(DEADLINE)) for uuid, future in futures.items() if future.exception(DEADLINE)}
    assert raised == {"a": exceptions.InstanceGone, "d": exceptions.StaleReport}


@pytest.mark.parametrize("request_id", [None, "req-1"])
def test_an_action_alone_is_reported_as_ever(request_id: str | None) -> None:
    conductor = Conductor()
    conductor.let()
    client: Any = batched(conductor, "h1")  # type: ignore[arg-type]
    more = {} if request_id is None else {"request_id": request_id}
    client.finish_action(get_admin_context(), "h1", 7, 1, None, "", position=0, answer=None, **more)
    assert conductor.came == [["7"]]
