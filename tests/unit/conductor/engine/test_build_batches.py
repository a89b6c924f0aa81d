"""Scheduling of accepted creates, alone and in batches, and reports of builds and deletes in batches.

No create or report is lost because of another one in its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects, operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.backups.replication import SiteRights
from nova_lite.conductor.engine.build_reports import MAX_BATCH, BuildReports
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceAction
from tests.support.conductor_world import BUILT, World
from tests.support.waiting import wait_for

DEADLINE = 30.0


class BuildingWorld(World):
    """A world in which creates are accepted and not scheduled. ``accepted``: servers that wait for `schedule`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.placing = self.building.scheduling
        self.accepted: list[str] = []

    def accept(self, count: int) -> list[str]:
        uuids = [self.create()[0] for _ in range(count)]
        self.accepted += uuids
        return uuids

    def schedule(self) -> None:
        """Have all waiting creates scheduled by one message."""
        uuids, self.accepted = self.accepted, []
        self.lifecycle.build_instances(self.context(), uuids)


@pytest.fixture
def world(tmp_path: Path) -> BuildingWorld:
    return BuildingWorld(tmp_path)


@pytest.fixture
def commits(world: BuildingWorld) -> Iterator[list[None]]:
    counted: list[None] = []

    def committed(connection: object) -> None:
        counted.append(None)

    sa.event.listen(world.db.engine, "commit", committed)
    yield counted
    sa.event.remove(world.db.engine, "commit", committed)


def states(world: World, uuids: list[str]) -> list[str]:
    return [world.instance(uuid).vm_state for uuid in uuids]


def built(world: BuildingWorld, uuid: str) -> objects.BuildResult:
    host, request = next(item for item in world.compute.builds if item[1].instance.uuid == uuid)
    return objects.BuildResult(
        instance_uuid=uuid,
        host=host,
        generation=request.generation,
        outcome=BUILT,
        power_state=1,
        action_id=request.action_id,
    )


#: Sum of generations that a scheduler has to know before it refuses.
GENERATIONS = 17


class Publisher:
    """Publishes freed capacity once, when a request is refused: then it calls ``free``."""

    def __init__(self, free: Callable[[], None]) -> None:
        self._free: Callable[[], None] | None = free

    def publish_before_refusal(self) -> int:
        if self._free is not None:
            self._free()
            self._free = None
        return GENERATIONS


def test_request_without_host_is_scheduled_again_after_freed_capacity_is_published(world: BuildingWorld) -> None:
    full = exceptions.NoValidHost(reason="full", details="")
    world.scheduler.error = full
    world.placing.publisher = Publisher(lambda: setattr(world.scheduler, "error", None))  # type: ignore[assignment]
    uuids = world.accept(1)
    world.schedule()
    assert [request.instance.uuid for _, request in world.compute.builds] == uuids
    world.scheduler.error = full
    uuids = world.accept(1)
    world.schedule()
    assert states(world, uuids) == ["error"]
    assert [spec.known for spec in world.scheduler.specs] == [0, GENERATIONS] * 2


def test_request_that_an_outdated_scheduler_refuses_is_tried_again_later(world: BuildingWorld) -> None:
    """The announcement of freed capacity was lost with its conductor."""
    outdated = exceptions.SchedulerNotReady("it reads them again")
    world.scheduler.error = exceptions.NoValidHost(reason="full", details="")
    world.placing.publisher = Publisher(lambda: setattr(world.scheduler, "error", outdated))  # type: ignore[assignment]
    uuids = world.accept(1)
    world.schedule()
    assert states(world, uuids) == ["building"]


def test_request_is_not_refused_while_the_database_is_away(world: BuildingWorld) -> None:
    def away() -> None:
        raise exceptions.DatabaseUnavailable()

    world.scheduler.error = exceptions.NoValidHost(reason="full", details="")
    world.placing.publisher = Publisher(away)  # type: ignore[assignment]
    uuids = world.accept(1)
    world.schedule()
    assert states(world, uuids) == ["building"]


def test_accepted_create_waits_for_its_wake_up(world: BuildingWorld, commits: list[None]) -> None:
    (uuid,) = world.accept(1)
    assert len(commits) == 1 and not world.scheduler.asked
    world.schedule()
    assert [request.instance.uuid for _, request in world.compute.builds] == [uuid]
    assert len(commits) == 3  # accepted; leased; claimed
    world.reports.finish_build(world.context(), built(world, uuid))
    assert states(world, [uuid]) == ["active"]


def test_wake_up_that_comes_twice_schedules_once(world: BuildingWorld) -> None:
    (uuid,) = world.accept(1)
    for _ in range(2):
        world.lifecycle.build_instances(world.context(), [uuid, uuid])
    assert len(world.compute.builds) == 1


def test_wake_up_of_a_leased_create_does_nothing(world: BuildingWorld) -> None:
    """The reconciler of another conductor is scheduling it."""
    (uuid,) = world.accept(1)
    world.db.write(lease, uuid)
    world.schedule()
    assert not world.compute.builds


def lease(uow: UnitOfWork, uuid: str) -> None:
    row = uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuid)).one()
    row.lease_owner, row.lease_expires_at = "another", uow.now.replace(year=uow.now.year + 1)


def test_create_whose_wake_up_was_lost_is_scheduled_by_the_reconciler(world: BuildingWorld) -> None:
    (uuid,) = world.accept(1)
    assert world.reconciler.sweep() == 0, "the wake-up has its time"

    def lapse(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuid)).one()
        assert row.lease_owner is None and row.step == operations.SCHEDULE
        row.lease_expires_at = uow.now

    world.db.write(lapse)
    assert world.reconciler.sweep() == 1
    assert [request.instance.uuid for _, request in world.compute.builds] == [uuid]


def test_builds_of_one_message_are_placed_together(world: BuildingWorld, commits: list[None]) -> None:
    """Four builds need one message to the scheduler, one lease, one claim, and one command per host."""
    uuids = world.accept(4)  # what fits on one host
    commits.clear()
    world.schedule()
    assert (len(commits), world.scheduler.asked, world.compute.messages) == (2, 1, 1)
    assert {request.instance.uuid for _, request in world.compute.builds} == {*uuids}


def test_build_of_each_request_keeps_the_context_of_its_request(world: BuildingWorld) -> None:
    """A message for several requests has the context of one of them."""
    contexts = [world.context(project="p1"), world.context(project="p2")]
    uuids = [world.create(context)[0] for context in contexts]
    found: list[RequestContext] = []
    place = world.placing.place
    world.placing.place = lambda requests: found.extend(item.context for item in requests) or place(requests)  # type: ignore[func-returns-value,method-assign]
    world.lifecycle.build_instances(contexts[0], uuids)
    assert [(item.request_id, item.project_id) for item in found] == [
        (context.request_id, context.project_id) for context in contexts
    ]


def test_builds_of_waiting_messages_are_placed_together(world: BuildingWorld) -> None:
    """Messages that arrive while another one is handled are a batch. Builds of one message stay together."""
    limits = ConductorTiming.build_batches._replace(overlap_after=DEADLINE, max_delay=0.0)
    timing = ConductorTiming(build_batches=limits)
    rights = SiteRights(world.engine, None).require_for_build
    builds = BuildReports(world.engine, world.placing, world.conductor, rights, timing)  # type: ignore[arg-type]
    batches: list[int] = []
    batcher = builds._starts

    def run(requests: list[tuple[RequestContext, list[str]]]) -> None:
        if not batches:
            wait_for("four are pending", lambda: batcher.pending == 4, DEADLINE)
        batches.append(sum(len(uuids) for _, uuids in requests))

    builds.scheduling.run = run  # type: ignore[method-assign,assignment]
    with ThreadPoolExecutor(5) as pool:
        sent = [pool.submit(builds.build_instances, world.context(), ["first"])]
        wait_for("the first batch runs", lambda: batcher._in_flight == 1, DEADLINE)
        for number, size in enumerate((2, 3, 2 * MAX_BATCH, 1)):
            sent.append(pool.submit(builds.build_instances, world.context(), ["x"] * size))
            wait_for("it is pending", lambda number=number: batcher.pending == number + 1, DEADLINE)  # type: ignore[misc]
        for future in sent:
            future.result(DEADLINE)
    assert batches == [1, 5, 2 * MAX_BATCH, 1]


class Filters:
    """Packet filters that hosts get with their builds. Here they name no more than the projects."""

    def __init__(self, world: BuildingWorld) -> None:
        self.world = world
        self.hosts: list[str] = []

    def rules_for_builds(self, builds: Mapping[str, Mapping[str, str]]) -> dict[str, objects.PortFilters]:
        steps = self.world.db.read(lambda uow: [*uow.session.scalars(sa.select(InstanceAction.step))])
        assert set(steps) == {operations.BUILD}, "the places are committed"
        self.hosts += builds
        return {
            host: objects.PortFilters(instances={project: [] for project in projects.values()})
            for host, projects in builds.items()
        }


def test_first_build_for_each_host_has_the_packet_filters(world: BuildingWorld) -> None:
    """The first build for each host has the filters of all builds for that host."""
    filters = world.placing.filters = Filters(world)  # type: ignore[assignment]
    for project in ("p2", "p1", "p3", "p1"):
        world.create(world.context(project=project))
    world.schedule()
    builds: dict[str, list[objects.BuildRequest]] = {}
    for host, request in world.compute.builds:
        builds.setdefault(host, []).append(request)
    assert sorted(filters.hosts) == sorted(builds)
    for requests in builds.values():
        first, *others = [request.filters for request in requests]
        assert first is not None and first.instances.keys() == {request.instance.project_id for request in requests}
        assert others == [None] * len(others)


def test_single_build_has_the_packet_filters(world: BuildingWorld) -> None:
    world.placing.filters = Filters(world)
    world.accept(1)
    world.schedule()
    ((_, request),) = world.compute.builds
    assert request.filters is not None and request.filters.instances.keys() == {request.instance.project_id}


def test_request_without_host_does_not_affect_others(world: BuildingWorld) -> None:
    good, bad, last = world.accept(3)
    refuse(world, bad)
    world.schedule()
    assert states(world, [good, bad, last]) == ["building", "error", "building"]
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}


def refuse(world: BuildingWorld, uuid: str) -> None:
    select = world.scheduler.select_destinations

    def selected(context: Any, spec: objects.RequestSpec) -> list[objects.Destination]:
        if spec.instance_uuids == [uuid]:
            raise exceptions.NoValidHost(reason="None.", details="")
        return select(context, spec)

    world.scheduler.select_destinations = selected  # type: ignore[method-assign]


def spoil(uow: UnitOfWork, uuid: str) -> None:
    uow.session.scalars(sa.select(Instance).where(Instance.uuid == uuid)).one().request = {"networks": "none"}


def test_request_with_corrupt_row_does_not_affect_others(world: BuildingWorld) -> None:
    good, bad, last = world.accept(3)
    world.db.write(spoil, bad)
    world.schedule()
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}
    assert states(world, [bad]) == ["building"]


def test_request_whose_row_is_corrupt_after_its_lease_does_not_affect_others(world: BuildingWorld) -> None:
    good, bad, last = world.accept(3)
    place = world.placing.place

    def late(requests: list[Any]) -> None:
        world.db.write(spoil, bad)
        place(requests)

    world.placing.place = late  # type: ignore[method-assign]
    world.schedule()
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}
    assert states(world, [bad]) == ["building"]


def test_corrupt_row_does_not_keep_the_reconciler_from_scheduling_others(world: BuildingWorld) -> None:
    good, bad, last = world.accept(3)

    def lapse(uow: UnitOfWork) -> None:
        for action in uow.session.scalars(sa.select(InstanceAction)):
            action.lease_expires_at = uow.now

    world.db.write(spoil, bad)
    world.db.write(lapse)
    assert world.reconciler.sweep() == 3
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}


def test_batch_whose_lease_was_lost_claims_nothing(world: BuildingWorld) -> None:
    """The reconciler has leased the action meanwhile."""
    (uuid,) = world.accept(1)
    place = world.placing.place

    def lapse(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(InstanceAction)).one().lease_expires_at = uow.now

    def late(requests: list[Any]) -> None:
        world.placing.place = place  # type: ignore[method-assign]
        world.db.write(lapse)
        assert world.reconciler.sweep() == 1
        place(requests)

    world.placing.place = late  # type: ignore[method-assign]
    world.schedule()
    assert len(world.compute.builds) == 1 and world.instance(uuid).generation == 1


# --- reports


def test_simultaneous_reports_of_several_hosts_are_one_transaction(
    world: BuildingWorld, commits: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each report has its own reply: one is about a build that is over."""
    batcher = world.building._reports
    batcher.limits = batcher.limits._replace(overlap_after=DEADLINE)
    uuids = [*world.accept(2), *world.accept(2)]
    world.schedule()
    results = [built(world, uuid) for uuid in uuids]
    results[2].generation += 1
    commits.clear()
    settle, batches = world.building._settle, list[int]()

    def slowly(results: list[objects.BuildResult]) -> list[bool | Exception]:
        batches.append(len(results))
        if len(batches) == 1:
            wait_for("three are pending", lambda: batcher.pending == 3, DEADLINE)
        return settle(results)

    monkeypatch.setattr(batcher, "_send", slowly)
    with ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(world.building.finish_build, world.context(), result) for result in results]
        failures = [reply.exception() for reply in replies]
    assert [type(failure) for failure in failures] == [type(None), type(None), exceptions.StaleReport, type(None)]
    assert (batches, len(commits)) == ([1, 3], 2)
    assert states(world, uuids) == ["active", "active", "building", "active"]


def test_reports_in_one_message_are_one_transaction(world: BuildingWorld, commits: list[None]) -> None:
    uuids = world.accept(3)
    world.schedule()
    commits.clear()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    assert world.reports.finish_builds(world.context(), host, results) == [True] * 3
    assert len(commits) == 1 and states(world, uuids) == ["active"] * 3


def test_late_report_does_not_affect_others(world: BuildingWorld) -> None:
    uuids = world.accept(3)
    world.schedule()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    results[1].generation += 1
    assert world.reports.finish_builds(world.context(), host, results) == [True, False, True]
    assert states(world, uuids) == ["active", "building", "active"]


@pytest.mark.parametrize("names, named", [(0, 1), (1, 0)])
def test_report_that_names_the_action_of_another_server_is_about_its_own_server(
    world: BuildingWorld, names: int, named: int
) -> None:
    uuids = sorted(world.accept(3))
    world.schedule()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    results[names].action_id = results[named].action_id
    assert world.reports.finish_builds(world.context(), host, results) == [True] * 3
    assert states(world, uuids) == ["active"] * 3


def test_report_that_cannot_be_written_does_not_affect_others(world: BuildingWorld) -> None:
    uuids = world.accept(3)
    world.schedule()
    host = world.compute.builds[0][0]

    def spoil(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuids[1])).one()
        row.events = [{"event": 7}]

    world.db.write(spoil)
    with pytest.raises(Exception, match="Expected `str`"):
        world.reports.finish_builds(world.context(), host, [built(world, uuid) for uuid in uuids])
    assert states(world, uuids) == ["active", "building", "active"]


def test_host_may_not_report_builds_of_another_host(world: BuildingWorld) -> None:
    uuids = world.accept(2)
    world.schedule()
    with pytest.raises(exceptions.Forbidden):
        world.reports.finish_builds(world.context(), "host9", [built(world, uuid) for uuid in uuids])
    assert states(world, uuids) == ["building"] * 2


def test_reports_of_deletes_are_one_transaction(world: BuildingWorld, commits: list[None]) -> None:
    uuids = world.accept(3)
    world.schedule()
    host = world.compute.builds[0][0]
    world.reports.finish_builds(world.context(), host, [built(world, uuid) for uuid in uuids])
    commands = [world.lifecycle.accept_action(world.context(), uuid, "delete", {}) for uuid in uuids]
    reports = [
        objects.ActionReport(host=host, action_id=command.action_id, power_state=0, sequence=command.sequence)
        for command in commands
    ]
    commits.clear()
    world.reports.finish_actions(world.context(), host, [*reports, reports[0]])
    assert len(commits) == 1
    assert all(world.instance(uuid).deleted for uuid in uuids)
