"""Dispatching of accepted creates, alone and in batches, and reports of builds and deletes in batches.

No create or report is lost because of another one in its batch.
"""

from __future__ import annotations

import queue
import threading
import time
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects, operations
from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.engine import scheduling
from nova_lite.conductor.engine.dispatcher import MAX_BATCH, MAX_IN_FLIGHT, ActionDispatcher
from nova_lite.conductor.engine.placement_request import PlacementRequest
from nova_lite.conductor.operations.create import CreateEndpoints
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.network.driver import load_backend
from tests.support.conductor_world import BUILT, World

DEADLINE = 30.0
#: Stands for a request. `ActionDispatcher` does not look into what it dispatches.
NOTHING: PlacementRequest = typing.cast(PlacementRequest, None)


class DispatchingWorld(World):
    """A world whose conductor dispatches creates. ``held``: batches that wait for `dispatch`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.placing = scheduling.Scheduling(self.engine, self.scheduler)  # type: ignore[arg-type]
        self.dispatcher = ActionDispatcher(lambda requests: self.engine.guarded(lambda: self.placing.place(requests)))
        self.held: list[Callable[[], None]] = []
        self.dispatcher.start(self.held.append)
        create = CreateEndpoints(self.db, self.conf, load_backend(self.conf), self.dispatcher)
        self.lifecycle.parts = (create, *self.lifecycle.parts[1:])

    def dispatch(self) -> None:
        while self.held:
            self.held.pop(0)()

    def accept(self, count: int) -> list[str]:
        return [self.create()[0] for _ in range(count)]


@pytest.fixture
def world(tmp_path: Path) -> DispatchingWorld:
    return DispatchingWorld(tmp_path)


@pytest.fixture
def commits(world: DispatchingWorld) -> Iterator[list[None]]:
    counted: list[None] = []

    def committed(connection: object) -> None:
        counted.append(None)

    sa.event.listen(world.db.engine, "commit", committed)
    yield counted
    sa.event.remove(world.db.engine, "commit", committed)


def states(world: World, uuids: list[str]) -> list[str]:
    return [world.instance(uuid).vm_state for uuid in uuids]


def built(world: DispatchingWorld, uuid: str) -> objects.BuildResult:
    host, request = next(item for item in world.compute.builds if item[1].instance.uuid == uuid)
    return objects.BuildResult(
        instance_uuid=uuid,
        host=host,
        generation=request.generation,
        outcome=BUILT,
        power_state=1,
        action_id=request.action_id,
    )


class Publisher:
    """Publishes freed capacity once, when a request is refused: then it calls ``free``."""

    def __init__(self, free: Callable[[], None]) -> None:
        self.count = 0
        self._free: Callable[[], None] | None = free

    def publish_freed(self) -> None:
        """Publish nothing: this conductor has freed no capacity."""

    def publish_before_refusal(self) -> None:
        if self._free is not None:
            self._free()
            self._free, self.count = None, self.count + 1


def test_request_without_host_is_scheduled_again_after_freed_capacity_is_published(world: DispatchingWorld) -> None:
    full = exceptions.NoValidHost(reason="full", details="")
    world.scheduler.error = full
    world.placing.publisher = Publisher(lambda: setattr(world.scheduler, "error", None))  # type: ignore[assignment]
    uuids = world.accept(1)
    world.dispatch()
    assert [request.instance.uuid for _, request in world.compute.builds] == uuids
    world.scheduler.error = full
    uuids = world.accept(1)
    world.dispatch()
    assert states(world, uuids) == ["error"]


def test_accepted_create_is_dispatched_without_a_wake_up(world: DispatchingWorld, commits: list[None]) -> None:
    result = world.lifecycle.create_instances(world.context(), objects.CreateRequest(name="vm", flavor_id="1"))
    assert result.dispatched and not world.compute.builds
    world.dispatch()
    assert [request.instance.uuid for _, request in world.compute.builds] == [result.instances[0].uuid]
    assert len(commits) == 2  # accepted; claimed
    world.reports.finish_build(world.context(), built(world, result.instances[0].uuid))
    assert states(world, [result.instances[0].uuid]) == ["active"]


def test_wake_up_of_a_dispatched_create_does_nothing(world: DispatchingWorld) -> None:
    """An older API sends a wake-up for each create."""
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert not world.compute.builds
    world.dispatch()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert len(world.compute.builds) == 1


def test_repeated_request_is_dispatched_once(world: DispatchingWorld) -> None:
    again = world.context("req-same")
    (uuid,) = world.create(again)
    result = world.lifecycle.create_instances(again, objects.CreateRequest(name="vm", flavor_id="1"))
    assert [instance.uuid for instance in result.instances] == [uuid] and not result.dispatched
    world.dispatch()
    assert len(world.compute.builds) == 1


def test_waiting_requests_are_placed_together(world: DispatchingWorld, commits: list[None]) -> None:
    """Two batches are in flight. The requests that arrive then need one message, one transaction and one command."""
    first = world.accept(MAX_IN_FLIGHT)
    in_flight, world.held[:] = list(world.held), []
    waiting = world.accept(4 - MAX_IN_FLIGHT)  # what fits on one host
    assert not world.held
    commits.clear()
    for run in in_flight:
        run()
    assert len(commits) == 1 and world.scheduler.asked == 1 and world.compute.messages == 1
    assert {request.instance.uuid for _, request in world.compute.builds} == {*first, *waiting}


class Filters:
    """Packet filters that hosts get with their builds. Here they name no more than the projects."""

    def __init__(self, world: DispatchingWorld) -> None:
        self.world = world
        self.hosts: list[str] = []

    def rules_for_builds(self, projects: Mapping[str, Collection[str]]) -> dict[str, objects.PortFilters]:
        steps = self.world.db.read(lambda uow: [*uow.session.scalars(sa.select(InstanceAction.step))])
        assert set(steps) == {operations.BUILD}, "the places are committed"
        self.hosts += projects
        return {
            host: objects.PortFilters(instances={project: [] for project in theirs})
            for host, theirs in projects.items()
        }


def test_first_build_for_each_host_has_the_packet_filters(world: DispatchingWorld) -> None:
    """The first build for each host has the filters of all builds for that host."""
    filters = world.placing.filters = Filters(world)  # type: ignore[assignment]
    for project in ("p2", "p1", "p3", "p1"):
        world.create(world.context(project=project))
    world.dispatch()
    builds: dict[str, list[objects.BuildRequest]] = {}
    for host, request in world.compute.builds:
        builds.setdefault(host, []).append(request)
    assert sorted(filters.hosts) == sorted(builds)
    for requests in builds.values():
        first, *others = [request.filters for request in requests]
        assert first is not None and first.instances.keys() == {request.instance.project_id for request in requests}
        assert others == [None] * len(others)


def test_single_build_is_sent_without_packet_filters(world: DispatchingWorld) -> None:
    filters = world.placing.filters = Filters(world)  # type: ignore[assignment]
    world.accept(1)
    world.dispatch()
    assert [request.filters for _, request in world.compute.builds] == [None] and not filters.hosts


def test_request_without_host_does_not_affect_others(world: DispatchingWorld) -> None:
    good, bad, last = world.accept(3)
    refuse(world, bad)
    world.dispatch()
    assert states(world, [good, bad, last]) == ["building", "error", "building"]
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}


def refuse(world: DispatchingWorld, uuid: str) -> None:
    select = world.scheduler.select_destinations

    def selected(context: Any, spec: objects.RequestSpec) -> list[objects.Destination]:
        if spec.instance_uuids == [uuid]:
            raise exceptions.NoValidHost(reason="None.", details="")
        return select(context, spec)

    world.scheduler.select_destinations = selected  # type: ignore[method-assign]


def test_request_with_corrupt_row_does_not_affect_others(world: DispatchingWorld) -> None:
    good, bad, last = world.accept(3)

    def spoil(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(Instance).where(Instance.uuid == bad)).one().request = {"networks": "none"}

    world.db.write(spoil)
    world.dispatch()
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}
    assert states(world, [bad]) == ["building"]


def test_reconciler_schedules_a_create_whose_conductor_ended(world: DispatchingWorld) -> None:
    (uuid,) = world.create()
    world.held.clear()
    assert world.reconciler.sweep() == 0  # it is leased

    def lapse(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuid)).one()
        assert row.lease_owner and row.step == operations.SCHEDULE
        row.lease_expires_at = uow.now

    world.db.write(lapse)
    assert world.reconciler.sweep() == 1
    assert [request.instance.uuid for _, request in world.compute.builds] == [uuid]


def test_batch_whose_lease_was_lost_claims_nothing(world: DispatchingWorld) -> None:
    """The reconciler has leased the action meanwhile."""
    (uuid,) = world.create()
    late, world.held[:] = list(world.held), []

    def lapse(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(InstanceAction)).one().lease_expires_at = uow.now

    world.db.write(lapse)
    assert world.reconciler.sweep() == 1
    for run in late:
        run()
    assert len(world.compute.builds) == 1 and world.instance(uuid).generation == 1


def test_stopped_dispatcher_takes_on_nothing(world: DispatchingWorld) -> None:
    world.dispatcher.stop()
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert len(world.compute.builds) == 1


def test_create_right_before_shutdown_is_accepted(world: DispatchingWorld) -> None:
    """The lease expires, and another conductor schedules the action."""

    def refuse(run: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    world.dispatcher.start(refuse)
    (uuid,) = world.create()
    assert states(world, [uuid]) == ["building"]


# --- batch windows


class Placements:
    """Batches that an `ActionDispatcher` places: number of requests, and seconds since ``began``. One can be held."""

    def __init__(self, quiet_period: float, max_delay: float) -> None:
        self.batches: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self.hold = threading.Event()
        self.hold.set()
        timing = ConductorTiming(dispatch_quiet_period=quiet_period, dispatch_max_delay=max_delay)
        self.dispatcher = ActionDispatcher(self._place, timing)
        self.began = time.monotonic()

    def _place(self, requests: list[PlacementRequest]) -> None:
        self.batches.put((len(requests), time.monotonic() - self.began))
        assert self.hold.wait(DEADLINE)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.dispatcher.add([NOTHING])

    def next(self) -> tuple[int, float]:
        return self.batches.get(timeout=DEADLINE)


@pytest.fixture
def place() -> Iterator[Callable[[float, float], Placements]]:
    """Start dispatchers with this quiet period and this greatest delay."""
    started: list[Placements] = []

    def start(quiet_period: float, max_delay: float) -> Placements:
        made = Placements(quiet_period, max_delay)
        made.dispatcher.start()
        started.append(made)
        return made

    yield start
    for made in started:
        made.hold.set()
        made.dispatcher.stop()


@pytest.fixture
def placed(place: Callable[[float, float], Placements]) -> Placements:
    """Start a dispatcher whose batches wait for more creates until they are full, except the first one."""
    return place(DEADLINE, 10 * DEADLINE)


def test_single_create_is_dispatched_at_once(place: Callable[[float, float], Placements]) -> None:
    placed = place(0.0, 10 * DEADLINE)
    placed.add(1)
    assert placed.next()[0] == 1
    until(lambda: not placed.dispatcher._in_flight)
    placed.add(1)
    assert placed.next()[0] == 1


def test_creates_in_quick_succession_wait_for_more(place: Callable[[float, float], Placements]) -> None:
    placed = place(DEADLINE, 0.5)
    placed.add(1)
    assert placed.next()[0] == 1
    placed.began = time.monotonic()
    placed.add(3)
    until(lambda: not placed.dispatcher._in_flight or placed.dispatcher._is_collecting)
    placed.add(2)
    count, seconds = placed.next()
    assert count == 5
    assert seconds >= 0.5


def test_creates_that_arrive_during_a_batch_wait_for_more(place: Callable[[float, float], Placements]) -> None:
    placed = place(0.0, 0.5)
    placed.hold.clear()
    placed.add(1)
    assert placed.next()[0] == 1
    placed.began = time.monotonic()
    placed.add(4)
    count, seconds = placed.next()
    assert (count, seconds >= 0.5) == (4, True), "the other thread dispatches them"


def test_full_batch_is_dispatched_at_once(placed: Placements) -> None:
    placed.add(1)
    assert placed.next()[0] == 1
    placed.add(MAX_BATCH)
    assert placed.next()[0] == MAX_BATCH


def test_waiting_creates_are_dispatched_when_the_dispatcher_stops(placed: Placements) -> None:
    """The waiting requests are dispatched at once."""
    placed.add(1)
    assert placed.next()[0] == 1
    placed.add(2)
    until(lambda: placed.dispatcher._is_collecting)
    placed.dispatcher.stop()
    assert placed.next()[0] == 2


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# --- reports


def test_simultaneous_reports_of_several_hosts_are_one_transaction(
    world: DispatchingWorld, commits: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report has its own reply: one is about a build that is over."""
    batcher = world.building._reports
    batcher.limits = batcher.limits._replace(overlap_after=DEADLINE)
    uuids = [*world.accept(2), *world.accept(2)]
    world.dispatch()
    results = [built(world, uuid) for uuid in uuids]
    results[2].generation += 1
    commits.clear()
    settle, batches = world.building._settle, list[int]()

    def slowly(results: list[objects.BuildResult]) -> list[bool | Exception]:
        batches.append(len(results))
        if len(batches) == 1:
            until(lambda: batcher.pending == 3)
        return settle(results)

    monkeypatch.setattr(batcher, "_send", slowly)
    with ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(world.building.finish_build, world.context(), result) for result in results]
        failures = [reply.exception() for reply in replies]
    assert [type(failure) for failure in failures] == [type(None), type(None), exceptions.StaleReport, type(None)]
    assert (batches, len(commits)) == ([1, 3], 2)
    assert states(world, uuids) == ["active", "active", "building", "active"]


def test_reports_in_one_message_are_one_transaction(world: DispatchingWorld, commits: list[None]) -> None:
    uuids = world.accept(3)
    world.dispatch()
    commits.clear()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    assert world.reports.finish_builds(world.context(), host, results) == [True] * 3
    assert len(commits) == 1 and states(world, uuids) == ["active"] * 3


def test_late_report_does_not_affect_others(world: DispatchingWorld) -> None:
    uuids = world.accept(3)
    world.dispatch()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    results[1].generation += 1
    assert world.reports.finish_builds(world.context(), host, results) == [True, False, True]
    assert states(world, uuids) == ["active", "building", "active"]


@pytest.mark.parametrize("names, named", [(0, 1), (1, 0)])
def test_report_that_names_the_action_of_another_server_is_about_its_own_server(
    world: DispatchingWorld, names: int, named: int
) -> None:
    uuids = sorted(world.accept(3))
    world.dispatch()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    results[names].action_id = results[named].action_id
    assert world.reports.finish_builds(world.context(), host, results) == [True] * 3
    assert states(world, uuids) == ["active"] * 3


def test_report_that_cannot_be_written_does_not_affect_others(world: DispatchingWorld) -> None:
    uuids = world.accept(3)
    world.dispatch()
    host = world.compute.builds[0][0]

    def spoil(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuids[1])).one()
        row.events = [{"event": 7}]

    world.db.write(spoil)
    with pytest.raises(Exception, match="Expected `str`"):
        world.reports.finish_builds(world.context(), host, [built(world, uuid) for uuid in uuids])
    assert states(world, uuids) == ["active", "building", "active"]


def test_host_may_not_report_builds_of_another_host(world: DispatchingWorld) -> None:
    uuids = world.accept(2)
    world.dispatch()
    with pytest.raises(exceptions.Forbidden):
        world.reports.finish_builds(world.context(), "host9", [built(world, uuid) for uuid in uuids])
    assert states(world, uuids) == ["building"] * 2


def test_reports_of_deletes_are_one_transaction(world: DispatchingWorld, commits: list[None]) -> None:
    uuids = world.accept(3)
    world.dispatch()
    host = world.compute.builds[0][0]
    world.reports.finish_builds(world.context(), host, [built(world, uuid) for uuid in uuids])
    commands = [world.lifecycle.accept_action(world.context(), uuid, "delete", {}) for uuid in uuids]
    reports = [
        objects.ActionReport(
            action_id=command.action_id, power_state=0, error=None, details="", sequence=command.sequence
        )
        for command in commands
    ]
    commits.clear()
    world.reports.finish_actions(world.context(), host, [*reports, reports[0]])
    assert len(commits) == 1
    assert all(world.instance(uuid).deleted for uuid in uuids)
