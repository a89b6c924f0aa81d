"""Reads of an API process: waiting reads share a message, and no user sees another project's server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from nova_lite.api import conductor_client
from nova_lite.api.conductor_client import ApiConductorClient
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ApiTiming
from nova_lite.objects import Instance, InstanceFilters, InstanceQuery
from tests.support.control_plane import make_instance
from tests.support.waiting import wait_for

DEADLINE = 30
#: Reads that are sent alone, since none of them waits for another.
IN_FLIGHT = ApiTiming.read_batches.max_in_flight or 0
#: The arguments of a list after its filters.
PAGE = (50, None, ["created_at"], ["desc"])


def context(project: str = "demo", admin: bool = False) -> RequestContext:
    return RequestContext(user_id="u", project_id=project, is_admin=admin, overwrite=False)


class Conductor:
    """Holds each reply back until `release`. ``messages`` are the arguments of the requests so far."""

    def __init__(self, *instances: Instance) -> None:
        self.instances = {instance.uuid: instance for instance in instances}
        self.messages: list[Any] = []
        self.failure: BaseException | None = None
        self._changed = threading.Condition()
        self._released = 0

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: pytest.fail(f"{name} is not expected")

    def release(self, count: int = 99) -> None:
        with self._changed:
            self._released += count
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, DEADLINE), self.messages

    def _receive(self, message: Any) -> None:
        with self._changed:
            self.messages.append(message)
            number = len(self.messages)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._released >= number, DEADLINE), self.messages
        if self.failure is not None:
            raise self.failure

    def instance_get(self, context: RequestContext, instance_uuid: str) -> Instance:
        self._receive(instance_uuid)
        instance = self.instances.get(instance_uuid)
        if instance is None or not (context.is_admin or instance.project_id == context.project_id):
            raise exceptions.InstanceNotFound(instance_id=instance_uuid)
        return instance

    def instances_get(self, context: RequestContext, queries: list[InstanceQuery]) -> list[Instance]:
        uuids = [query.uuid for query in queries]
        self._receive(uuids)
        return [instance for instance in self.instances.values() if instance.uuid in uuids]

    def instance_list(self, context: RequestContext, filters: InstanceFilters, *page: Any) -> list[Instance]:
        self._receive((context.project_id, filters.host, *page))
        return list(self.instances.values())


Run = Callable[..., "Future[Any]"]


@pytest.fixture
def run() -> Iterator[Run]:
    with ThreadPoolExecutor(20) as pool:
        yield pool.submit


def connect(conductor: Conductor) -> ApiConductorClient:
    return conductor_client.connect(conductor, ApiTiming(flavor_cache=0.0))  # type: ignore[arg-type]


def until_pending(batcher: Any, count: int) -> None:
    wait_for(f"{count} pending requests", lambda: batcher.pending == count, DEADLINE)


def start_reads(run: Run, conductor: Conductor, client: ApiConductorClient, uuid: str) -> list[Future[Any]]:
    """Start as many reads as are sent alone."""
    futures = []
    for number in range(IN_FLIGHT):
        futures.append(run(client.instance_get, context(), uuid))
        conductor.wait_for(number + 1)
    return futures


def test_waiting_reads_are_one_message_and_each_caller_sees_its_own(run: Run) -> None:
    one, other, foreign = make_instance(), make_instance(), make_instance(project_id="another")
    conductor = Conductor(one, other, foreign)
    client = connect(conductor)
    alone = start_reads(run, conductor, client, one.uuid)
    assert conductor.messages == [one.uuid] * IN_FLIGHT
    waiting = [run(client.instance_get, context(), instance.uuid) for instance in (one, other, one)]
    stranger = run(client.instance_get, context(), foreign.uuid)
    admin = run(client.instance_get, context(admin=True), foreign.uuid)
    missing = run(client.instance_get, context(), "no-such")
    until_pending(client._reads, 6)
    conductor.release()
    assert [future.result(DEADLINE).uuid for future in alone] == [one.uuid] * IN_FLIGHT
    assert [future.result(DEADLINE).uuid for future in waiting] == [one.uuid, other.uuid, one.uuid]
    assert admin.result(DEADLINE).uuid == foreign.uuid
    for future, uuid in ((stranger, foreign.uuid), (missing, "no-such")):
        with pytest.raises(exceptions.InstanceNotFound, match=uuid):
            future.result(DEADLINE)
    (batch,) = conductor.messages[IN_FLIGHT:]
    assert sorted(batch) == sorted([one.uuid, other.uuid, one.uuid, foreign.uuid, foreign.uuid, "no-such"])


def test_read_is_not_answered_by_an_earlier_message(run: Run) -> None:
    one = make_instance(vm_state="building")
    conductor = Conductor(one)
    client = connect(conductor)
    earlier = start_reads(run, conductor, client, one.uuid)
    later = run(client.instance_get, context(), one.uuid)
    until_pending(client._reads, 1)
    conductor.release(1)
    assert earlier[0].result(DEADLINE).vm_state == "building"
    conductor.wait_for(IN_FLIGHT + 1)
    conductor.instances[one.uuid] = make_instance(uuid=one.uuid, vm_state="active")
    conductor.release()
    assert later.result(DEADLINE).vm_state == "active"


def test_failed_batch_of_reads_fails_its_callers_and_not_the_next_one(run: Run) -> None:
    one = make_instance()
    conductor = Conductor(one)
    client = connect(conductor)
    alone = start_reads(run, conductor, client, one.uuid)
    waiting = [run(client.instance_get, context(), one.uuid) for _ in range(3)]
    until_pending(client._reads, 3)
    conductor.failure = exceptions.MessagingUnavailable(what="x")
    conductor.release(IN_FLIGHT + 1)
    errors = [future.exception(DEADLINE) for future in (*alone, *waiting)]
    assert [type(error) for error in errors] == [exceptions.MessagingUnavailable] * (IN_FLIGHT + 3)
    conductor.failure = None
    conductor.release()
    assert client.instance_get(context(), one.uuid).uuid == one.uuid


def test_same_list_is_read_once_for_all_waiting_callers(run: Run) -> None:
    conductor = Conductor(make_instance())
    client = connect(conductor)
    futures = [run(client.instance_list, context(), InstanceFilters(), *PAGE)]
    conductor.wait_for(1)
    ((batcher, _),) = client._lists.values()
    others = (context("p2"), InstanceFilters(), *PAGE), (context(), InstanceFilters(host="h"), *PAGE)
    other_page = (context(), InstanceFilters(), 51, *PAGE[1:])
    futures += [run(client.instance_list, *arguments) for arguments in (*others, other_page)]
    conductor.wait_for(4)
    futures += [run(client.instance_list, context(), InstanceFilters(), *PAGE) for _ in range(4)]
    until_pending(batcher, 4)
    conductor.release()
    assert all(len(future.result(DEADLINE)) == 1 for future in futures)
    assert len(conductor.messages) == 5, conductor.messages
    assert len(client._lists) == 4


def test_list_batchers_are_dropped_above_their_limit_unless_they_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor_client, "MAX_LISTS", 2)
    conductor = Conductor(make_instance())
    client = connect(conductor)
    first = run(client.instance_list, context(), InstanceFilters(), 1, *PAGE[1:])
    conductor.wait_for(1)
    for limit in (2, 3):
        run(client.instance_list, context(), InstanceFilters(), limit, *PAGE[1:])
        conductor.wait_for(limit)
    conductor.release()
    assert len(first.result(DEADLINE)) == 1
    for limit in range(4, 9):
        client.instance_list(context(), InstanceFilters(), limit, *PAGE[1:])
        assert len(client._lists) <= 3
