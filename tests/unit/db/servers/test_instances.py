"""Reading instances: who sees which, filters, pages in any order."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import actions, models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts, services
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import action_log, instances
from nova_lite.network.driver import Addresses
from nova_lite.objects import InstanceFilters
from tests.support import make

ME = make.context()


def names(db: Database, context: Any = ME, filters: InstanceFilters | None = None, **arguments: Any) -> list[str]:
    found = db.read(instances.list_, context, filters or InstanceFilters(), **arguments)
    return [instance.display_name for instance in found]


def matching(db: Database, **filters: Any) -> set[str]:
    return set(names(db, filters=InstanceFilters(**filters)))


# --- one


def test_whole_instance(db: Database, conf: cfg.ConfigOpts) -> None:
    fault = {"code": 500, "message": "no", "details": "why", "created_at": "2026-01-02T03:04:05"}

    def fill(uow: UnitOfWork) -> str:
        hosts.record(uow, conf, make.report())
        network = builtin_networks.create(uow, make.network())
        uuid = make.instance(
            uow, host="h1", node="n1", fault=fault, tag_names=["b", "a"], metadata_={"k": "v"}, image={"id": "x"}
        )
        for position, address in enumerate(("10.0.0.4", "10.0.0.3")):
            addresses = Addresses(address, f"fa:16:3e:00:00:0{position}")
            assert builtin_networks.Store(uow).add_port(uuid, network.id, position, addresses, None)
        return uuid

    instance = db.read(instances.get, ME, db.write(fill))
    assert instance.flavor.name == "m1" and instance.flavor.extra_specs == {}
    assert instance.tags == ["a", "b"]
    assert instance.metadata == {"k": "v"}
    assert instance.fault is not None
    assert (instance.fault.message, instance.fault.created_at) == ("no", datetime.datetime(2026, 1, 2, 3, 4, 5))
    assert [(vif.address, vif.version, vif.network.name) for vif in instance.vifs] == [
        ("10.0.0.4", 4, "private"),
        ("10.0.0.3", 4, "private"),
    ]
    assert instance.host_status == "UP"


def test_host_status(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    (service,) = db.read(services.list_)
    here = db.write(make.instance, host="h1", node="n1")
    nowhere, unknown = db.write(make.instance), db.write(make.instance, host="h2", node="n2")

    def status(uuid: str) -> str | None:
        return db.read(instances.get, ME, uuid).host_status

    assert [status(uuid) for uuid in (here, nowhere, unknown)] == ["UP", "", "UNKNOWN"]
    db.write(services.update, service.uuid, {"disabled": True})
    assert status(here) == "MAINTENANCE"
    db.write(services.update, service.uuid, {"forced_down": True})
    assert status(here) == "DOWN"


def test_instance_list_shows_own_project_only(db: Database) -> None:
    uuid = db.write(make.instance)
    with pytest.raises(exceptions.InstanceNotFound, match=uuid):
        db.read(instances.get, make.context("P1"), uuid)
    assert db.read(instances.get, make.ADMIN, uuid).uuid == uuid


def test_deleted_one_is_gone_unless_asked_for(db: Database) -> None:
    uuid = db.write(make.instance, deleted=True)
    with pytest.raises(exceptions.InstanceNotFound):
        db.read(instances.get, ME, uuid)
    assert db.read(lambda uow: instances.get_row(uow, ME, uuid, deleted=True).deleted)
    assert db.write(lambda uow: instances.lock(uow, uuid) is not None)


def test_update(db: Database) -> None:
    uuid = db.write(make.instance)
    changed = db.write(instances.update, ME, uuid, {"display_name": "é", "access_ip_v4": "10.1.1.1"})
    assert (changed.display_name, changed.access_ip_v4) == ("é", "10.1.1.1")
    assert changed.updated_at is not None
    with pytest.raises(exceptions.InvalidInput, match="vm_state"):
        db.write(instances.update, ME, uuid, {"vm_state": "error"})
    with pytest.raises(exceptions.InstanceNotFound):
        db.write(instances.update, make.context("p2"), uuid, {"display_name": "x"})


def test_an_instance_is_pinned_to_the_zone_that_it_is_in(db: Database) -> None:
    uuid = db.write(make.instance, availability_zone="east", requested_availability_zone="east")

    def pin(zone: str | None) -> str | None:
        changed = db.write(instances.update, ME, uuid, {"requested_availability_zone": zone})
        return changed.requested_availability_zone

    assert pin("east") == "east"
    with pytest.raises(exceptions.Conflict, match="Unpin first by setting pinned_availability_zone to null"):
        pin("west")
    assert pin(None) is None
    with pytest.raises(exceptions.Conflict, match="pinned to its current availability zone 'east', but 'west' was"):
        pin("west")
    assert pin("east") == "east"


# --- filters


def test_project_of_filter_counts_for_admins_only(db: Database) -> None:
    db.write(make.instance, display_name="mine")
    db.write(make.instance, display_name="theirs", project_id="p2")
    assert matching(db, project_id="p2") == {"mine"}
    assert set(names(db, make.ADMIN)) == {"mine", "theirs"}
    assert names(db, make.ADMIN, InstanceFilters(project_id="p2")) == ["theirs"]


@pytest.mark.parametrize(
    "filters",
    [
        {"vm_states": ["error", "stopped"]},
        {"task_states": ["spawning"]},
        {"power_state": 4},
        {"host": "h1"},
        {"node": "n1"},
        {"flavorid": "9"},
        {"image_ref": "img"},
        {"reservation_id": "r-9"},
        {"availability_zone": "z"},
        {"key_name": "k"},
        {"description": "d"},
        {"locked": True},
        {"config_drive": True},
        {"user_id": "u9"},
        {"progress": 7},
        {"name": "^od+"},
        {"name": "dd$"},
        {"name": "[o]dd"},
        {"metadata": {"a b": "é", "k.1": "v"}},
        {"tags": ["x", "y"]},
        {"tags_any": ["x", "nope"]},
        {"not_tags": ["z", "plain"]},
        {"not_tags_any": ["plain"]},
        {"launched_at": datetime.datetime(2026, 5, 1, 10, 0, 7)},
        {"terminated_at": datetime.datetime(2026, 5, 1, 10, 0, 7, 250000)},
        {"created_at": datetime.datetime(2026, 4, 1)},
        {"changes_before": datetime.datetime(2026, 4, 30)},
    ],
    ids=lambda filters: "-".join(filters),
)
def test_filter(db: Database, filters: dict[str, Any]) -> None:
    db.write(make.instance, display_name="plain", tag_names=["plain", "z"], updated_at=datetime.datetime(2026, 5, 1))
    db.write(
        make.instance,
        display_name="odd",
        vm_state="stopped",
        task_state="spawning",
        power_state=4,
        host="h1",
        node="n1",
        flavorid="9",
        image_ref="img",
        reservation_id="r-9",
        availability_zone="z",
        key_name="k",
        display_description="d",
        locked=True,
        config_drive=True,
        user_id="u9",
        progress=7,
        metadata_={"a b": "é", "k.1": "v", "more": ""},
        tag_names=["x", "y"],
        created_at=datetime.datetime(2026, 4, 1, 0, 0, 0, 999000),
        launched_at=datetime.datetime(2026, 5, 1, 10, 0, 7, 250000),
        terminated_at=datetime.datetime(2026, 5, 1, 10, 0, 7, 250000),
    )
    assert matching(db, **filters) == {"odd"}


def test_filter_by_uuid(db: Database) -> None:
    first, _ = db.write(make.instance, display_name="a"), db.write(make.instance, display_name="b")
    assert matching(db, uuids=[first, "unknown"]) == {"a"}
    assert matching(db, uuids=[]) == set()


def test_filter_by_address(db: Database) -> None:
    def fill(uow: UnitOfWork) -> None:
        network = builtin_networks.create(uow, make.network())
        for name, number, address6 in (("a", 3, None), ("b", 4, "fd00::4"), ("c", 5, "fd00::3")):
            addresses = Addresses(f"10.0.0.{number}", f"fa:16:3e:00:00:0{number}", address6)
            builtin_networks.Store(uow).add_port(make.instance(uow, display_name=name), network.id, 0, addresses, None)

    db.write(fill)
    assert matching(db, ip=r"^10\.0\.0\.3$") == {"a"}
    assert matching(db, ip="3") == {"a"}
    assert matching(db, ip6="3$") == {"c"}


def test_metadata_key_is_no_path(db: Database) -> None:
    db.write(make.instance, metadata_={"a": "1"})
    assert matching(db, metadata={'a"': "1"}) == set()
    assert matching(db, metadata={"a' OR '1'='1": "1"}) == set()


def test_name_filter_is_data(db: Database) -> None:
    db.write(make.instance, display_name="o'brien; -- %")
    assert matching(db, name="'brien; -- %") == {"o'brien; -- %"}
    assert matching(db, name="' OR 1=1") == set()


@pytest.mark.parametrize("pattern", ["(", "*a", "[", "(a+)+$", "(a|aa)*b", "a*" * 9, "a" * 256, "a\0"])
def test_wrong_or_dangerous_pattern(db: Database, pattern: str) -> None:
    db.write(make.instance, display_name="a" * 200 + "!")
    with pytest.raises(exceptions.InvalidInput):
        matching(db, name=pattern)


def test_pattern_of_another_dialect(db: Database) -> None:
    """Python's named character: other databases refuse it, which is the user's mistake and no outage."""
    db.write(make.instance, display_name="abc")
    try:
        assert matching(db, name=r"\N{LATIN SMALL LETTER B}") == {"abc"}
    except exceptions.InvalidInput as error:
        assert db.engine.dialect.name != "sqlite"
        assert "regular expression" in error.message


def test_deleted_ones(db: Database) -> None:
    db.write(make.instance, display_name="alive", updated_at=datetime.datetime(2026, 5, 1))
    db.write(make.instance, display_name="dead", deleted=True, updated_at=datetime.datetime(2026, 5, 2))
    assert matching(db) == {"alive"}
    assert matching(db, deleted=True) == {"dead"}
    assert matching(db, changes_since=datetime.datetime(2026, 5, 1)) == {"alive", "dead"}
    assert matching(db, changes_since=datetime.datetime(2026, 5, 2)) == {"dead"}


# --- order and pages


def test_user_data_is_left_out_of_a_list_on_demand(db: Database) -> None:
    db.write(make.instance, user_data="c2VjcmV0")

    def told(**filters: Any) -> list[str | None]:
        return [item.user_data for item in db.read(instances.list_, ME, InstanceFilters(**filters))]

    assert told() == ["c2VjcmV0"]
    assert told(with_user_data=False) == [None]


def test_newest_first(db: Database) -> None:
    for name in "abc":
        db.write(make.instance, display_name=name, created_at=datetime.datetime(2026, 1, ord(name) - 96))
    assert names(db) == ["c", "b", "a"]
    assert names(db, limit=2) == ["c", "b"]
    assert names(db, limit=0) == []


@pytest.mark.parametrize("dirs", list(itertools.product(("asc", "desc"), repeat=2)), ids="-".join)
def test_pages_are_the_list(db: Database, dirs: tuple[str, str]) -> None:
    """Despite NULLs and equal values, pages give each instance once, in the order of the whole list."""
    uuids = [
        db.write(make.instance, host=host, display_name=name)
        for host in (None, "h1", "h2")
        for name in ("a", "b")
        for _ in range(2)
    ]
    order: dict[str, Any] = {"sort_keys": ["host", "display_name"], "sort_dirs": list(dirs)}
    whole = [i.uuid for i in db.read(instances.list_, ME, InstanceFilters(), **order)]
    assert sorted(whole) == sorted(uuids)
    nulls = whole[:4] if dirs[0] == "asc" else whole[-4:]
    assert set(nulls) == set(uuids[:4])
    for size in (1, 3, 5):
        pages: list[str] = []
        while True:
            marker = pages[-1] if pages else None
            page = db.read(instances.list_, ME, InstanceFilters(), size, marker, **order)
            pages += [i.uuid for i in page]
            if len(page) < size:
                break
        assert pages == whole


def test_every_sort_key(db: Database) -> None:
    uuids = {db.write(make.instance) for _ in range(3)}
    for key in instances.SORT_KEYS:
        first = db.read(instances.list_, ME, InstanceFilters(), 1, None, [key], ["asc"])
        rest = db.read(instances.list_, ME, InstanceFilters(), None, first[0].uuid, [key], ["asc"])
        assert {i.uuid for i in first + rest} == uuids, key


def test_wrong_order(db: Database) -> None:
    with pytest.raises(exceptions.InvalidSortKey, match="user_data"):
        names(db, sort_keys=["user_data"])
    with pytest.raises(exceptions.InvalidInput):
        names(db, sort_keys=["uuid"], sort_dirs=["up"])
    with pytest.raises(exceptions.InvalidInput):
        names(db, sort_keys=["uuid"], sort_dirs=["asc", "asc"])


def test_marker_has_to_be_visible(db: Database) -> None:
    theirs = db.write(make.instance, project_id="p2")
    for marker in (theirs, "unknown"):
        with pytest.raises(exceptions.MarkerNotFound, match=marker):
            names(db, marker=marker)


# --- the action log


def test_action_log(db: Database) -> None:
    def fill(uow: UnitOfWork) -> str:
        uuid = make.instance(uow, deleted=True)
        make.action(uow, uuid, finish_time=uow.now)
        late = make.action(uow, uuid, request_id="req-2", action="delete", message="Error")
        uow.session.add(models.InstanceActionEvent(action_id=late.id, event="of old", start_time=uow.now))
        for event in ("first", "second"):
            actions.start_event(uow, late, event, "h1")
        actions.start_event(uow, late, "second", "h1")
        return uuid

    uuid = db.write(fill)
    assert [a.action for a in db.read(action_log.list_, ME, uuid)] == ["delete", "create"]
    action = db.read(action_log.get, ME, uuid, "req-2")
    assert (action.message, [event.event for event in action.events]) == ("Error", ["of old", "first", "second"])
    with pytest.raises(exceptions.InstanceActionNotFound, match="req-9"):
        db.read(action_log.get, ME, uuid, "req-9")
    with pytest.raises(exceptions.InstanceNotFound):
        db.read(action_log.list_, make.context("p2"), uuid)
