"""What is accepted is driven by who has accepted it, several requests together; what is reported together is written
together. None of them is lost by another."""

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
from nova_lite.conductor.engine import dispatcher, scheduling
from nova_lite.conductor.engine.dispatcher import AT_ONCE, MOST, ActionDispatcher
from nova_lite.conductor.engine.placement_request import PlacementRequest
from nova_lite.conductor.operations.create import CreateEndpoints
from nova_lite.db.engine import UnitOfWork
from nova_lite.db.models import Instance, InstanceAction
from nova_lite.network.driver import load_backend
from tests.unit.conductor.test_lifecycle import BUILT, World

DEADLINE = 30.0
#: Of no create: `ActionDispatcher` does not look into what it drives.
NOTHING: PlacementRequest = typing.cast(PlacementRequest, None)


class DrivenWorld(World):
    """``held``: the batches that a thread would carry out now."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.placing = scheduling.Scheduling(self.engine, self.scheduler)  # type: ignore[arg-type]
        self.drives = ActionDispatcher(lambda wanted: self.engine.guarded(lambda: self.placing.place(wanted)))
        self.held: list[Callable[[], None]] = []
        self.drives.start(self.held.append)
        create = CreateEndpoints(self.db, self.conf, load_backend(self.conf), self.drives)
        self.lifecycle.parts = (create, *self.lifecycle.parts[1:])

    def drive(self) -> None:
        while self.held:
            self.held.pop(0)()

    def accept(self, count: int) -> list[str]:
        return [self.create()[0] for _ in range(count)]


@pytest.fixture
def world(tmp_path: Path) -> DrivenWorld:
    return DrivenWorld(tmp_path)


@pytest.fixture
def commits(world: DrivenWorld) -> Iterator[list[None]]:
    counted: list[None] = []

    def committed(connection: object) -> None:
        counted.append(None)

    sa.event.listen(world.db.engine, "commit", committed)
    yield counted
    sa.event.remove(world.db.engine, "commit", committed)


def states(world: World, uuids: list[str]) -> list[str]:
    return [world.instance(uuid).vm_state for uuid in uuids]


def built(world: DrivenWorld, uuid: str) -> objects.BuildResult:
    host, request = next(each for each in world.compute.builds if each[1].instance.uuid == uuid)
    return objects.BuildResult(
        instance_uuid=uuid,
        host=host,
        generation=request.generation,
        outcome=BUILT,
        power_state=1,
        action_id=request.action_id,
    )


class News:
    """What schedulers hear of when somebody finds no host: ``free`` is called once."""

    def __init__(self, free: Callable[[], None]) -> None:
        self.count = 0
        self._free: Callable[[], None] | None = free

    def tell_freed(self) -> None:
        """Nothing of this conductor's own."""

    def refused(self) -> None:
        if self._free is not None:
            self._free()
            self._free, self.count = None, self.count + 1


def test_nobody_is_refused_for_a_place_that_is_free_already(world: DrivenWorld) -> None:
    full = exceptions.NoValidHost(reason="full", details="")
    world.scheduler.error = full
    world.placing.news = News(lambda: setattr(world.scheduler, "error", None))  # type: ignore[assignment]
    uuids = world.accept(1)
    world.drive()
    assert [request.instance.uuid for _, request in world.compute.builds] == uuids
    world.scheduler.error = full
    uuids = world.accept(1)
    world.drive()
    assert states(world, uuids) == ["error"]


def test_nobody_has_to_nudge(world: DrivenWorld, commits: list[None]) -> None:
    result = world.lifecycle.create_instances(world.context(), objects.CreateRequest(name="vm", flavor_id="1"))
    assert result.driven and not world.compute.builds
    world.drive()
    assert [request.instance.uuid for _, request in world.compute.builds] == [result.instances[0].uuid]
    assert len(commits) == 2  # accepted; claimed
    world.reports.finish_build(world.context(), built(world, result.instances[0].uuid))
    assert states(world, [result.instances[0].uuid]) == ["active"]


def test_a_nudge_all_the_same_does_nothing(world: DrivenWorld) -> None:
    """An API of before sends one."""
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert not world.compute.builds
    world.drive()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert len(world.compute.builds) == 1


def test_a_repeated_request_is_driven_once(world: DrivenWorld) -> None:
    again = world.context("req-same")
    (uuid,) = world.create(again)
    answer = world.lifecycle.create_instances(again, objects.CreateRequest(name="vm", flavor_id="1"))
    assert [each.uuid for each in answer.instances] == [uuid] and not answer.driven
    world.drive()
    assert len(world.compute.builds) == 1


def test_requests_that_wait_are_placed_together(world: DrivenWorld, commits: list[None]) -> None:
    """Two batches are under way; what comes then is one question, one transaction and one order."""
    first = world.accept(AT_ONCE)
    under_way, world.held[:] = list(world.held), []
    waiting = world.accept(4 - AT_ONCE)  # what fits on one host
    assert not world.held
    commits.clear()
    for each in under_way:
        each()
    assert len(commits) == 1 and world.scheduler.asked == 1 and world.compute.messages == 1
    assert {request.instance.uuid for _, request in world.compute.builds} == {*first, *waiting}


class Filters:
    """What hosts are told to filter with their orders, which is no more than the names of their projects here."""

    def __init__(self, world: DrivenWorld) -> None:
        self.world = world
        self.hosts: list[str] = []

    def rules_for_builds(self, projects: Mapping[str, Collection[str]]) -> dict[str, objects.PortFilters]:
        steps = self.world.db.read(lambda uow: [*uow.session.scalars(sa.select(InstanceAction.step))])
        assert set(steps) == {operations.BUILD}, "the places are committed"
        self.hosts += projects
        return {host: objects.PortFilters(instances={each: [] for each in theirs}) for host, theirs in projects.items()}


def test_orders_that_go_out_together_say_what_to_filter(world: DrivenWorld) -> None:
    """The first one of each host says it, of all that is built there."""
    filters = world.placing.filters = Filters(world)  # type: ignore[assignment]
    for project in ("p2", "p1", "p3", "p1"):
        world.create(world.context(project=project))
    world.drive()
    told: dict[str, list[objects.BuildRequest]] = {}
    for host, request in world.compute.builds:
        told.setdefault(host, []).append(request)
    assert sorted(filters.hosts) == sorted(told)
    for requests in told.values():
        first, *others = [request.filters for request in requests]
        assert first is not None and first.instances.keys() == {each.instance.project_id for each in requests}
        assert others == [None] * len(others)


def test_one_that_goes_out_alone_does_not_wait_for_that(world: DrivenWorld) -> None:
    filters = world.placing.filters = Filters(world)  # type: ignore[assignment]
    world.accept(1)
    world.drive()
    assert [request.filters for _, request in world.compute.builds] == [None] and not filters.hosts


def test_one_that_fits_nowhere_keeps_none_from_its_place(world: DrivenWorld) -> None:
    good, bad, last = world.accept(3)
    refuse(world, bad)
    world.drive()
    assert states(world, [good, bad, last]) == ["building", "error", "building"]
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}


def refuse(world: DrivenWorld, uuid: str) -> None:
    select = world.scheduler.select_destinations

    def selected(context: Any, spec: objects.RequestSpec) -> list[objects.Destination]:
        if spec.instance_uuids == [uuid]:
            raise exceptions.NoValidHost(reason="None.", details="")
        return select(context, spec)

    world.scheduler.select_destinations = selected  # type: ignore[method-assign]


def test_one_whose_row_makes_no_sense_keeps_none_from_its_place(world: DrivenWorld) -> None:
    good, bad, last = world.accept(3)

    def spoil(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(Instance).where(Instance.uuid == bad)).one().request = {"networks": "none"}

    world.db.write(spoil)
    world.drive()
    assert {request.instance.uuid for _, request in world.compute.builds} == {good, last}
    assert states(world, [bad]) == ["building"]


def test_if_whoever_has_accepted_ends_first_the_reconciler_drives(world: DrivenWorld) -> None:
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


def test_who_comes_too_late_claims_nothing(world: DrivenWorld) -> None:
    """The reconciler had taken it meanwhile."""
    (uuid,) = world.create()
    late, world.held[:] = list(world.held), []

    def lapse(uow: UnitOfWork) -> None:
        uow.session.scalars(sa.select(InstanceAction)).one().lease_expires_at = uow.now

    world.db.write(lapse)
    assert world.reconciler.sweep() == 1
    for each in late:
        each()
    assert len(world.compute.builds) == 1 and world.instance(uuid).generation == 1


def test_nothing_is_taken_on_at_the_end(world: DrivenWorld) -> None:
    world.drives.stop()
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert len(world.compute.builds) == 1


def test_what_was_accepted_right_before_the_end_is_accepted(world: DrivenWorld) -> None:
    """Its lease lapses, and it is driven by another conductor."""

    def refuse(drive: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    world.drives.start(refuse)
    (uuid,) = world.create()
    assert states(world, [uuid]) == ["building"]


# --- a moment for others


class Placed:
    """What `ActionDispatcher` places, batch by batch: how many, and after how many seconds; one batch may be held."""

    def __init__(self) -> None:
        self.batches: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()
        self.hold = threading.Event()
        self.hold.set()
        self.drives = ActionDispatcher(self._place)
        self.began = time.monotonic()

    def _place(self, wanted: list[PlacementRequest]) -> None:
        self.batches.put((len(wanted), time.monotonic() - self.began))
        assert self.hold.wait(DEADLINE)

    def add(self, count: int) -> None:
        for _ in range(count):
            self.drives.add([NOTHING])

    def next(self) -> tuple[int, float]:
        return self.batches.get(timeout=DEADLINE)


@pytest.fixture
def placed() -> Iterator[Placed]:
    made = Placed()
    made.drives.start()
    yield made
    made.hold.set()
    made.drives.stop()


def test_one_that_is_alone_waits_for_nobody(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "MOMENT", 10 * DEADLINE)
    placed.add(1)
    assert placed.next()[0] == 1
    monkeypatch.setattr(dispatcher, "CLOSE", 0.0)  # as if time had passed
    until(lambda: not placed.drives._under_way)
    placed.add(1)
    assert placed.next()[0] == 1


def test_those_in_quick_succession_wait_for_more(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "CLOSE", DEADLINE)
    monkeypatch.setattr(dispatcher, "MOMENT", 0.5)
    placed.add(1)
    assert placed.next()[0] == 1
    placed.began = time.monotonic()
    placed.add(3)
    until(lambda: not placed.drives._under_way or placed.drives._gathers)
    placed.add(2)
    count, seconds = placed.next()
    assert count == 5
    assert seconds >= 0.5


def test_so_do_those_that_come_while_another_is_driven(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "CLOSE", 0.0)
    monkeypatch.setattr(dispatcher, "MOMENT", 0.5)
    placed.hold.clear()
    placed.add(1)
    assert placed.next()[0] == 1
    placed.began = time.monotonic()
    placed.add(4)
    count, seconds = placed.next()
    assert (count, seconds >= 0.5) == (4, True), "by the other thread, beside the first"


def test_a_whole_batch_waits_no_longer(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "CLOSE", DEADLINE)
    monkeypatch.setattr(dispatcher, "MOMENT", 10 * DEADLINE)
    placed.add(1)
    assert placed.next()[0] == 1
    placed.add(MOST)
    assert placed.next()[0] == MOST


def test_at_the_end_nobody_waits(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was waiting is driven."""
    monkeypatch.setattr(dispatcher, "CLOSE", DEADLINE)
    monkeypatch.setattr(dispatcher, "MOMENT", 10 * DEADLINE)
    placed.add(1)
    assert placed.next()[0] == 1
    placed.add(2)
    until(lambda: placed.drives._gathers)
    placed.drives.stop()
    assert placed.next()[0] == 2


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


# --- reports


def test_reports_of_several_hosts_that_come_together_are_one_transaction(
    world: DrivenWorld, commits: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered as if it had come alone: the one whose build is over is told so."""
    batcher = world.building._reports
    batcher.limits = batcher.limits._replace(overlap_after=DEADLINE)
    uuids = [*world.accept(2), *world.accept(2)]
    world.drive()
    results = [built(world, uuid) for uuid in uuids]
    results[2].generation += 1
    commits.clear()
    settle, batches = world.building._settle, list[int]()

    def slowly(asked: list[objects.BuildResult]) -> list[bool | Exception]:
        batches.append(len(asked))
        if len(batches) == 1:
            until(lambda: batcher.pending == 3)
        return settle(asked)

    monkeypatch.setattr(batcher, "_send", slowly)
    with ThreadPoolExecutor(4) as pool:
        told = [pool.submit(world.building.finish_build, world.context(), each) for each in results]
        failures = [each.exception() for each in told]
    assert [type(each) for each in failures] == [type(None), type(None), exceptions.StaleReport, type(None)]
    assert (batches, len(commits)) == ([1, 3], 2)
    assert states(world, uuids) == ["active", "active", "building", "active"]


def test_reports_that_come_together_are_one_transaction(world: DrivenWorld, commits: list[None]) -> None:
    uuids = world.accept(3)
    world.drive()
    commits.clear()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    assert world.reports.finish_builds(world.context(), host, results) == [True] * 3
    assert len(commits) == 1 and states(world, uuids) == ["active"] * 3


def test_a_report_that_is_late_spoils_none(world: DrivenWorld) -> None:
    uuids = world.accept(3)
    world.drive()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    results[1].generation += 1
    assert world.reports.finish_builds(world.context(), host, results) == [True, False, True]
    assert states(world, uuids) == ["active", "building", "active"]


@pytest.mark.parametrize("names, named", [(0, 1), (1, 0)])
def test_a_report_that_names_anothers_action_is_not_about_that_one(world: DrivenWorld, names: int, named: int) -> None:
    uuids = sorted(world.accept(3))
    world.drive()
    host = world.compute.builds[0][0]
    results = [built(world, uuid) for uuid in uuids]
    results[names].action_id = results[named].action_id
    assert world.reports.finish_builds(world.context(), host, results) == [True] * 3
    assert states(world, uuids) == ["active"] * 3


def test_a_report_that_cannot_be_written_spoils_none(world: DrivenWorld) -> None:
    uuids = world.accept(3)
    world.drive()
    host = world.compute.builds[0][0]

    def spoil(uow: UnitOfWork) -> None:
        row = uow.session.scalars(sa.select(InstanceAction).where(InstanceAction.instance_uuid == uuids[1])).one()
        row.events = [{"event": 7}]

    world.db.write(spoil)
    with pytest.raises(Exception, match="Expected `str`"):
        world.reports.finish_builds(world.context(), host, [built(world, uuid) for uuid in uuids])
    assert states(world, uuids) == ["active", "building", "active"]


def test_of_others_builds_a_host_may_not_speak(world: DrivenWorld) -> None:
    uuids = world.accept(2)
    world.drive()
    with pytest.raises(exceptions.Forbidden):
        world.reports.finish_builds(world.context(), "host9", [built(world, uuid) for uuid in uuids])
    assert states(world, uuids) == ["building"] * 2


def test_deletes_are_reported_together(world: DrivenWorld, commits: list[None]) -> None:
    uuids = world.accept(3)
    world.drive()
    host = world.compute.builds[0][0]
    world.reports.finish_builds(world.context(), host, [built(world, uuid) for uuid in uuids])
    tickets = [world.lifecycle.accept_action(world.context(), uuid, "delete", {}) for uuid in uuids]
    reports = [
        objects.ActionReport(action_id=each.action_id, power_state=0, error=None, details="", sequence=each.sequence)
        for each in tickets
    ]
    commits.clear()
    world.reports.finish_actions(world.context(), host, [*reports, reports[0]])
    assert len(commits) == 1
    assert all(world.instance(uuid).deleted for uuid in uuids)
