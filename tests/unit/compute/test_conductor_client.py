"""Reports of a compute host: concurrent reports form one message. Each job gets its own result."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute import conductor_client
from nova_lite.compute.conductor_client import HostConductorClient
from nova_lite.objects import ActionReport, BuildOutcome, BuildResult
from tests.support.waiting import wait_for

DEADLINE = 30
#: Reports that are sent alone, since the test gives each of them time to overtake the one before it.
IN_FLIGHT = conductor_client.LIMITS.max_in_flight or 0


class Conductor:
    """Holds each reply back until `release`. ``stale``: ids of builds and actions whose reports are refused."""

    def __init__(self) -> None:
        self.messages: list[list[str]] = []
        self.stale: set[str] = set()
        self._changed = threading.Condition()
        self._released = False

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: pytest.fail(f"{name} is not expected")

    def release(self) -> None:
        with self._changed:
            self._released = True
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, DEADLINE), self.messages

    def _receive(self, *ids: str) -> None:
        with self._changed:
            self.messages.append(sorted(ids))
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._released, DEADLINE)

    def finish_build(self, context: Any, result: BuildResult) -> None:
        self._receive(result.instance_uuid)
        if result.instance_uuid in self.stale:
            raise exceptions.InstanceGone(instance_id=result.instance_uuid)

    def finish_builds(self, context: Any, host: str, results: list[BuildResult]) -> list[bool]:
        assert host == "h1"
        self._receive(*(result.instance_uuid for result in results))
        return [result.instance_uuid not in self.stale for result in results]

    def finish_action(self, context: Any, report: ActionReport) -> None:
        assert report.host == "h1"
        self._receive(str(report.action_id))

    def finish_actions(self, context: Any, host: str, reports: list[ActionReport]) -> None:
        assert host == "h1"
        self._receive(*(str(report.action_id) for report in reports))


def connect(conductor: Conductor) -> HostConductorClient:
    return conductor_client.connect(conductor, "h1")  # type: ignore[arg-type]


def until_pending(batcher: Any, count: int) -> None:
    wait_for(f"{count} pending requests", lambda: batcher.pending == count, DEADLINE)


def report_all(conductor: Conductor, uuids: str) -> list[Future[None]]:
    """Report a build of each id. The first ones are sent alone, while the others arrive."""
    client = connect(conductor)
    pool = ThreadPoolExecutor(len(uuids))
    futures = []
    for number, uuid in enumerate(uuids, 1):
        result = BuildResult(instance_uuid=uuid, generation=1, host="h1", outcome=BuildOutcome.BUILT)
        futures.append(pool.submit(client.finish_build, get_admin_context(), result))
        if number <= IN_FLIGHT:
            conductor.wait_for(number)
    pool.shutdown(wait=False)
    until_pending(client._builds, len(uuids) - IN_FLIGHT)
    conductor.release()
    return futures


def test_waiting_build_reports_are_one_message() -> None:
    conductor = Conductor()
    assert [future.result(DEADLINE) for future in report_all(conductor, "abcde")] == [None] * 5
    assert conductor.messages == [["a"], ["b"], ["c", "d", "e"]]


def test_stale_build_report_fails_its_caller_alone() -> None:
    conductor = Conductor()
    conductor.stale = {"a", "d"}
    futures = report_all(conductor, "abcde")
    errors = [type(future.exception(DEADLINE)) for future in futures]
    none = type(None)
    assert errors == [exceptions.InstanceGone, none, none, exceptions.StaleReport, none]


def test_waiting_action_reports_are_one_message() -> None:
    conductor = Conductor()
    client = connect(conductor)
    with ThreadPoolExecutor(4) as pool:
        futures = []
        for action_id in range(1, 5):
            arguments = (get_admin_context(), ActionReport(host="h1", action_id=action_id, power_state=1))
            futures.append(pool.submit(client.finish_action, *arguments))
            if action_id <= IN_FLIGHT:
                conductor.wait_for(action_id)
        until_pending(client._actions, 2)
        conductor.release()
        assert [future.result(DEADLINE) for future in futures] == [None] * 4
    assert conductor.messages == [["1"], ["2"], ["3", "4"]]


@pytest.mark.parametrize("request_id", [None, "req-1"])
def test_single_action_report_is_a_message_of_its_own(request_id: str | None) -> None:
    conductor = Conductor()
    conductor.release()
    more: dict[str, Any] = {} if request_id is None else {"request_id": request_id}
    connect(conductor).finish_action(get_admin_context(), ActionReport(host="h1", action_id=7, power_state=1, **more))
    assert conductor.messages == [["7"]]
