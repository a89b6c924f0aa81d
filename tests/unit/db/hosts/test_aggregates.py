"""Aggregates: their rows, and what they do to the hosts in them."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import aggregates, hosts, services
from nova_lite.objects import HostState
from tests.support import make


def report(db: Database, conf: cfg.ConfigOpts, host: str = "h1", **values: Any) -> None:
    db.write(hosts.record, conf, make.report(host, **values))


def state(db: Database, host: str = "h1") -> HostState:
    return next(item for item in db.read(hosts.states) if item.host == host)


def made(db: Database, name: str = "a", zone: str | None = None) -> str:
    return str(db.write(aggregates.create, name, zone).id)


def test_create_list_get_delete(db: Database) -> None:
    first = db.write(aggregates.create, "ssd", "east")
    assert (first.name, first.availability_zone, first.metadata) == ("ssd", "east", {"availability_zone": "east"})
    assert first.uuid
    assert first.created_at is not None
    for reference in (str(first.id), first.uuid, "ssd"):
        assert db.read(aggregates.get, reference) == first
    with pytest.raises(exceptions.AggregateNameExists):
        made(db, "ssd")
    second = made(db, "b")
    assert [item.name for item in db.read(aggregates.list_)] == ["ssd", "b"]
    db.write(aggregates.delete, second)
    with pytest.raises(exceptions.AggregateNotFound):
        db.read(aggregates.get, second)


@pytest.mark.parametrize(("name", "zone"), [("", None), (" ", None), ("x" * 256, None), ("a", ""), ("a", "x:y")])
def test_names_that_cannot_be(db: Database, name: str, zone: str | None) -> None:
    with pytest.raises(exceptions.InvalidInput):
        db.write(aggregates.create, name, zone)
    with pytest.raises(exceptions.InvalidInput):
        db.write(aggregates.create, "internal", "internal")


def test_a_zone_by_aggregate_comes_goes_and_stays_over_reports(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    before = state(db).generation
    east = made(db, "east", "east")
    assert db.write(aggregates.add_host, conf, east, "h1").hosts == ["h1"]
    assert (state(db).availability_zone, [aggregate.name for aggregate in state(db).aggregates]) == ("east", ["east"])
    assert state(db).generation > before
    report(db, conf)
    assert state(db).availability_zone == "east"
    assert [zone.name for zone in db.read(services.availability_zones)] == ["east"]
    db.write(aggregates.rename, conf, east, {"availability_zone": "west", "name": "west"})
    assert state(db).availability_zone == "west"
    db.write(aggregates.remove_host, conf, east, "h1")
    assert (state(db).availability_zone, state(db).aggregates) == ("nova", [])


def test_a_host_is_in_one_zone(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    east, west, plain = made(db, "east", "east"), made(db, "west", "west"), made(db, "plain")
    for aggregate in (east, plain):
        db.write(aggregates.add_host, conf, aggregate, "h1")
    with pytest.raises(exceptions.InvalidAggregateAction, match="already in zone east"):
        db.write(aggregates.add_host, conf, west, "h1")
    with pytest.raises(exceptions.InvalidAggregateAction, match="already in zone east"):
        db.write(aggregates.set_metadata, conf, plain, {"availability_zone": "west"})
    assert state(db).availability_zone == "east"


def test_servers_do_not_change_their_zone(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    db.write(make.instance, host="h1", node="n1")
    east, plain = made(db, "east", "east"), made(db, "plain")
    with pytest.raises(exceptions.InvalidAggregateAction, match="has servers"):
        db.write(aggregates.add_host, conf, east, "h1")
    db.write(aggregates.add_host, conf, plain, "h1")
    with pytest.raises(exceptions.InvalidAggregateAction, match="has servers"):
        db.write(aggregates.set_metadata, conf, plain, {"availability_zone": "east"})
    db.write(aggregates.set_metadata, conf, plain, {"availability_zone": "nova"})
    db.write(aggregates.remove_host, conf, plain, "h1")


@pytest.mark.parametrize(
    ("key", "wrong", "expected", "right"),
    [
        ("disk_allocation_ratio", ["x", "-1", "nan"], "a number of 0 or more", ["0", "1.5"]),
        ("reserved_host_cpus", ["", "-1"], "a number of 0 or more", ["2"]),
        ("max_instances_per_host", ["1.5", "-1", "", "5,x"], "a whole number of 0 or more", ["0", "5", "5, 7"]),
        ("max_io_ops_per_host", ["many"], "a whole number of 0 or more", ["8"]),
        ("ram_weight_multiplier", ["x", "nan", "inf", ""], "a number", ["-1.0", "0", "2"]),
        ("my_own_weight_multiplier", ["x"], "a number", ["3"]),
    ],
)
def test_number_of_an_aggregate_that_would_be_ignored_is_refused(
    db: Database, conf: cfg.ConfigOpts, key: str, wrong: list[str], expected: str, right: list[str]
) -> None:
    aggregate = made(db)
    for value in wrong:
        with pytest.raises(exceptions.InvalidInput, match=f"{key}={value} is wrong: the value is {expected}$"):
            db.write(aggregates.set_metadata, conf, aggregate, {key: value})
    for value in right:
        assert db.write(aggregates.set_metadata, conf, aggregate, {key: value}).metadata == {key: value}


def test_ratios_and_reservations_of_aggregates(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    assert (state(db).vcpus, state(db).memory_mb, state(db).disk_gb) == (16, 1024, 50)
    aggregate = made(db)
    old = sa.update(models.Aggregate).values(metadata_={"disk_allocation_ratio": "x"})
    db.write(lambda uow: uow.session.execute(old))
    db.write(aggregates.set_metadata, conf, aggregate, {"cpu_allocation_ratio": "1.0"})
    db.write(aggregates.add_host, conf, aggregate, "h1")
    assert (state(db).vcpus, state(db).disk_gb) == (4, 50)
    db.write(aggregates.set_metadata, conf, aggregate, {"reserved_host_memory_mb": "24", "ram_allocation_ratio": "2"})
    assert state(db).memory_mb == 2000
    generation = state(db).generation
    report(db, conf)
    assert (state(db).vcpus, state(db).memory_mb, state(db).generation) == (4, 2000, generation)
    db.write(aggregates.set_metadata, conf, aggregate, dict.fromkeys(["cpu_allocation_ratio", "nonsense"]))
    assert state(db).vcpus == 16


def test_aggregate_missing_is_not_found(db: Database, conf: cfg.ConfigOpts) -> None:
    aggregate = made(db)
    with pytest.raises(exceptions.HostNotFound):
        db.write(aggregates.add_host, conf, aggregate, "h1")
    report(db, conf)
    with pytest.raises(exceptions.AggregateHostNotFound):
        db.write(aggregates.remove_host, conf, aggregate, "h1")
    db.write(aggregates.add_host, conf, aggregate, "h1")
    with pytest.raises(exceptions.AggregateHostExists):
        db.write(aggregates.add_host, conf, aggregate, "h1")
    with pytest.raises(exceptions.InvalidAggregateAction, match="still has hosts"):
        db.write(aggregates.delete, aggregate)
    with pytest.raises(exceptions.InvalidInput):
        db.write(aggregates.rename, conf, aggregate, {"hosts": "h2"})


def test_states_in_pages(db: Database, conf: cfg.ConfigOpts) -> None:
    for number in range(5):
        report(db, conf, f"h{number}", inventories=[make.inventory(f"n{number}")])
    everything = db.read(hosts.states)
    assert db.read(hosts.states, limit=2) == everything[:2]
    assert db.read(hosts.states, after=everything[1].id, limit=2) == everything[2:4]
    assert db.read(hosts.states, after=everything[-1].id, limit=2) == []


def test_failed_builds_count_until_one_succeeds(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    db.write(hosts.build_failed, "h1", "n1")
    db.write(hosts.build_failed, "h1", "n1")
    assert state(db).failed_builds == 2
    before = state(db).generation
    db.write(hosts.build_succeeded, "h1", "n1")
    assert (state(db).failed_builds, state(db).generation) == (0, before + 1)
    db.write(hosts.build_succeeded, "h1", "n1")
    assert state(db).generation == before + 1
