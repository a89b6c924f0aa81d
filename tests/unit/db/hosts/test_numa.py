"""Dedicated CPUs and memory of NUMA cells: claimed once, and released."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import compute_nodes, hosts
from nova_lite.db.servers import claims, instances
from nova_lite.db.upkeep import invariants
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import InstanceNUMATopology, NUMACell, NUMACellUsage, NUMAPages, Selection
from tests.support import make
from tests.support.races import overlap

CELL = NUMACell(
    id=0, memory_mb=1024, shared_cpus="0-1", dedicated_cpus="2-7", pages=[NUMAPages(size_kb=4, total=262144)]
)
PINNED = NUMARequest(cells=(NUMACellRequest(0, (0, 1), 64),), dedicated=frozenset({0, 1}))
MIXED = NUMARequest(cells=PINNED.cells, dedicated=frozenset({1}))
FLOATING = NUMARequest(cells=(NUMACellRequest(0, (0,), 64),), page_size="small")


@pytest.fixture
def host(db: Database, conf: cfg.ConfigOpts) -> Selection:
    """Two shared CPUs, six dedicated ones."""
    db.write(hosts.record, conf, make.report(inventories=[make.inventory(vcpus=2, numa=[CELL])]))
    return Selection(host="h1", node="n1")


def claim(uow: UnitOfWork, uuid: str, host: Selection, wanted: NUMARequest = PINNED) -> list[int] | None:
    """Return the CPUs that it got; None without a place."""
    row = instances.lock(uow, uuid)
    assert row is not None
    if not claims.claim(uow, row, host, wanted):
        return None
    uow.session.flush()
    found = instances.to_object(uow, row).numa
    assert found is not None
    return found.host_cpus


def used(db: Database) -> dict[str, NUMACellUsage]:
    (state,) = db.read(hosts.states)
    return state.numa_used


def problems(db: Database) -> list[invariants.Problem]:
    """But for quota, which nothing here counts."""
    return [problem for problem in db.read(invariants.find) if problem.check != "quota"]


def test_numa_inventory_reaches_the_scheduler(db: Database, host: Selection) -> None:
    (state,) = db.read(hosts.states)
    assert (state.numa, state.numa_used, state.ram_allocation_ratio) == ([CELL], {}, 1.0)
    (node,) = db.read(compute_nodes.list_)
    assert (node.inventory.numa, node.numa_used) == ([CELL], {})


def test_cpus_are_claimed_and_given_back(db: Database, host: Selection) -> None:
    first, second, third, late = (db.write(make.instance, vcpus=2) for _ in range(4))
    assert [db.write(claim, item, host) for item in (first, second, third, late)] == [[2, 3], [4, 5], [6, 7], None]
    assert used(db)["0"] == NUMACellUsage(memory_mb=192, cpus=[2, 3, 4, 5, 6, 7])
    (state,) = db.read(hosts.states)
    assert state.vcpus_used == 0, "none of them shares a CPU"
    assert problems(db) == []
    generation = state.generation
    db.write(claims.release, second)
    assert used(db)["0"].cpus == [2, 3, 6, 7]
    (state,) = db.read(hosts.states)
    assert state.generation > generation
    assert db.write(claim, late, host) == [4, 5]
    for item in (first, third, late):
        db.write(claims.release, item)
    assert used(db) == {}
    assert {problem.check for problem in problems(db)} == {"allocation"}, "they are still said to be there"


def test_two_ends_are_given_back_one_by_one(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance, vcpus=2)
    db.write(claim, uuid, host)

    def other_end(uow: UnitOfWork) -> claims.Place | None:
        row = instances.lock(uow, uuid)
        assert row is not None
        return claims.take(uow, row, host, dict.fromkeys(claims.RESOURCES, 1), PINNED)

    place = db.write(other_end)
    assert place is not None
    assert place.numa is not None
    assert used(db)["0"].cpus == [2, 3, 4, 5]
    assert problems(db) == []
    db.write(claims.release, uuid, claims.HeldHost("h1", 1))
    assert used(db)["0"].cpus == [4, 5]


def test_whoever_waited_gets_others(db: Database, host: Selection) -> None:
    first, second = (db.write(make.instance, vcpus=2) for _ in range(2))
    got = overlap(db, lambda uow: claim(uow, first, host), lambda uow: claim(uow, second, host))
    assert got == [4, 5]


def test_whoever_waited_for_the_last_ones_gets_none(db: Database, host: Selection) -> None:
    first, second, third, late = (db.write(make.instance, vcpus=2) for _ in range(4))
    db.write(claim, first, host)
    db.write(claim, second, host)
    assert overlap(db, lambda uow: claim(uow, third, host), lambda uow: claim(uow, late, host)) is None


def test_many_at_a_time(db: Database, host: Selection) -> None:
    uuids = [db.write(make.instance, vcpus=2) for _ in range(12)]
    with ThreadPoolExecutor(6) as pool:
        got = [cpus for cpus in pool.map(lambda uuid: db.write(claim, uuid, host), uuids) if cpus is not None]
    assert sorted(cpu for cpus in got for cpu in cpus) == [2, 3, 4, 5, 6, 7]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda uuid: db.write(claims.release, uuid), uuids))
    assert used(db) == {}
    assert {problem.check for problem in problems(db)} == {"allocation"}, "they are still said to be there"


def test_pages_and_shared_vcpus_are_counted(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance)
    assert db.write(claim, uuid, host, FLOATING) == []
    assert used(db)["0"] == NUMACellUsage(vcpus=1, pages={"4": 16384})
    (state,) = db.read(hosts.states)
    assert state.vcpus_used == 1
    db.write(claims.release, uuid)
    assert used(db) == {}


def test_mixed_guest_is_counted_with_shared_and_dedicated_cpus(db: Database, host: Selection) -> None:
    first, second = (db.write(make.instance, vcpus=2) for _ in range(2))
    assert [db.write(claim, item, host, MIXED) for item in (first, second)] == [[2], [3]]
    assert used(db)["0"] == NUMACellUsage(vcpus=2, memory_mb=128, cpus=[2, 3])
    (state,) = db.read(hosts.states)
    assert state.vcpus_used == 2
    assert problems(db) == []
    db.write(lambda uow: uow.session.execute(sa.delete(models.Allocation)))
    invariants.fix(db)
    (state,) = db.read(hosts.states)
    assert (state.vcpus_used, used(db)["0"].vcpus, problems(db)) == (2, 2, [])
    for item in (first, second):
        db.write(claims.release, item)
    (state,) = db.read(hosts.states)
    assert (state.vcpus_used, used(db)) == (0, {})


def test_a_heartbeat_leaves_it(db: Database, host: Selection, conf: cfg.ConfigOpts) -> None:
    db.write(claim, db.write(make.instance, vcpus=2), host)
    db.write(hosts.record, conf, make.report(inventories=[make.inventory(vcpus=1, numa=[CELL])]))
    assert used(db)["0"].cpus == [2, 3]


def test_a_host_that_tells_of_no_cells_has_no_such_place(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    assert db.write(claim, db.write(make.instance, vcpus=2), Selection(host="h1", node="n1")) is None


# --- the audit


def edit(db: Database, model: Any, **values: Any) -> None:
    db.write(lambda uow: uow.change(sa.update(model).values(**values)))


def test_a_wrong_count_is_mended(db: Database, host: Selection) -> None:
    db.write(claim, db.write(make.instance, vcpus=2), host)
    edit(db, models.ComputeNode, numa_used={"0": {"cpus": [5]}})
    (problem,) = problems(db)
    assert (problem.check, problem.subject) == ("numa", "host h1")
    assert "[5]" in problem.found
    assert "[2, 3]" in problem.expected
    assert invariants.fix(db)[0]
    assert used(db)["0"].cpus == [2, 3]
    edit(db, models.ComputeNode, numa_used=None)
    assert invariants.fix(db)[0]
    assert used(db)["0"].cpus == [2, 3]
    assert problems(db) == []


def test_an_allocation_that_is_lost_is_made_again_with_its_cpus(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance, vcpus=2)
    db.write(claim, uuid, host)
    db.write(lambda uow: uow.session.execute(sa.delete(models.Allocation)))
    assert {problem.check for problem in problems(db)} == {"allocation", "used", "numa"}
    invariants.fix(db)
    assert used(db)["0"].cpus == [2, 3]
    assert problems(db) == []


def test_a_cpu_of_two_servers_is_told_and_left_to_the_operator(db: Database, host: Selection) -> None:
    first, second = (db.write(make.instance, vcpus=2) for _ in range(2))
    db.write(claim, first, host)
    db.write(claim, second, host)
    (row,) = db.read(lambda uow: list(uow.session.scalars(sa.select(models.Allocation.numa).limit(1))))
    edit(db, models.Allocation, numa=row)
    assert "numa" in {problem.check for problem in invariants.fix(db)[0]}
    left = problems(db)
    assert [(problem.check, problem.subject) for problem in left] == [("cpu", f"server {second}")] * 2
    assert f"which is server {first}'s too" in left[0].found


def test_numa_placement_is_sent_to_the_host(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance, vcpus=2)
    db.write(claim, uuid, host)
    found = db.read(lambda uow: instances.get(uow, make.ADMIN, uuid)).numa
    assert isinstance(found, InstanceNUMATopology)
    assert [(cell.cell, cell.cpus, cell.pins) for cell in found.cells] == [(0, [0, 1], [2, 3])]

    def leave(uow: UnitOfWork) -> None:
        row = instances.lock(uow, uuid)
        assert row is not None
        claims.leave(row)

    db.write(leave)
    assert db.read(lambda uow: instances.get(uow, make.ADMIN, uuid)).numa is None
