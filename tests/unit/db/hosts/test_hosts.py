"""Reports of hosts, and what schedulers and operators get to see of them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import compute_nodes, hosts, services
from nova_lite.db.servers import claims, instances
from nova_lite.objects import HostState, Selection
from tests.support import make, published
from tests.support.host_rows import age, state


def touched_by(db: Database, func: Any, *args: Any) -> set[int]:
    """Run a function, and return the nodes that are published to schedulers."""

    def run(uow: UnitOfWork) -> set[int]:
        func(uow, *args)
        return published.nodes(uow)

    return db.write(run)


def compute_id(db: Database) -> str:
    (service,) = db.read(services.list_, None, services.COMPUTE)
    return str(service.id)


def test_first_report(db: Database, conf: cfg.ConfigOpts) -> None:
    touched = touched_by(
        db,
        hosts.record,
        conf,
        make.report(
            inventories=[make.inventory(vcpus=3, memory_mb=1001, disk_gb=10, capabilities={"a": 1})],
            cpu_allocation_ratio=1.5,
            ram_allocation_ratio=1.0,
            disk_allocation_ratio=2.0,
            reserved_cpus=0,
            reserved_memory_mb=512,
            reserved_disk_gb=11,
        ),
    )
    found = state(db)
    assert touched == {found.id}
    assert (found.vcpus, found.memory_mb, found.disk_gb) == (4, 489, 0)
    assert (found.up, found.disabled, found.availability_zone, found.capabilities) == (True, False, "nova", {"a": 1})
    (service,) = db.read(services.list_)
    assert (service.binary, service.host, service.up, service.topic) == ("nova-compute", "h1", True, "compute")


def test_heartbeat_tells_schedulers_nothing(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    before = state(db)
    db.write(age, 5)
    quiet = make.report(inventories=[make.inventory(uptime="1 day", disk_available_least=3, running_vms=2)])
    assert touched_by(db, hosts.record, conf, quiet) == set()
    assert state(db) == msgspec.structs.replace(before, disk_available_least=3)
    (node,) = db.read(compute_nodes.list_)
    assert (node.inventory.uptime, node.inventory.disk_available_least) == ("1 day", 3)
    assert db.write(services.expire, conf) == []


@pytest.mark.parametrize(
    "change",
    [
        {"inventories": [make.inventory(memory_mb=2048)]},
        {"inventories": [make.inventory(capabilities={"x": True})]},
        {"inventories": [make.inventory(supported_hv_types=["kvm"])]},
        {"ram_allocation_ratio": 1.5},
        {"reserved_disk_gb": 1},
    ],
    ids=str,
)
def test_node_relevant_changes_raise_the_generation(db: Database, conf: cfg.ConfigOpts, change: dict[str, Any]) -> None:
    db.write(hosts.record, conf, make.report())
    before = state(db)
    assert touched_by(db, hosts.record, conf, make.report(**change)) == {before.id}
    assert state(db).generation == before.generation + 1


def test_free_disk_is_published_after_a_large_change(db: Database, conf: cfg.ConfigOpts) -> None:
    def told(free: int | None, **changes: Any) -> HostState:
        report = make.report(inventories=[make.inventory(disk_available_least=free)], **changes)
        db.write(hosts.record, conf, report)
        return state(db)

    first = told(50)
    assert first.disk_available_least == 50
    assert told(49).generation == first.generation
    assert told(20).generation > first.generation
    assert told(20, disk_allocation_ratio=2.0).disk_available_least is None


def test_threads_report_a_new_host(db: Database, conf: cfg.ConfigOpts) -> None:
    with ThreadPoolExecutor(8) as pool:
        restarted = list(pool.map(lambda _: db.write(hosts.record, conf, make.report()), range(8)))
    assert restarted.count(True) == 1
    assert len(db.read(services.list_)) == len(db.read(hosts.states)) == 1


def test_threads_report_expire_and_claim(db: Database, conf: cfg.ConfigOpts) -> None:
    """Counters and generations survive all hosts at once: each change is counted, none twice."""
    db.write(hosts.record, conf, make.report())
    uuids = [db.write(make.instance) for _ in range(12)]

    def claim(uow: UnitOfWork, uuid: str) -> bool:
        row = instances.lock(uow, uuid)
        assert row is not None
        return claims.claim(uow, row, Selection(host="h1", node="n1"))

    def work(number: int) -> int:
        if number % 3 == 0:
            return int(db.write(claim, uuids[number // 3]))
        if number % 3 == 1:
            memory_mb = 2048 + number
            return len(
                touched_by(db, hosts.record, conf, make.report(inventories=[make.inventory(memory_mb=memory_mb)]))
            )
        return len(db.write(services.expire, conf))

    with ThreadPoolExecutor(8) as pool:
        changes = sum(pool.map(work, range(36)))
    found = state(db)
    assert (found.vcpus_used, len(found.instances), found.generation) == (12, 12, changes)


def test_restart_is_noticed_once(db: Database, conf: cfg.ConfigOpts) -> None:
    answers = [db.write(hosts.record, conf, make.report(boot_id=boot_id)) for boot_id in ("a", "a", "b", "b")]
    assert answers == [True, False, True, False]


def test_looking_for_silent_hosts_waits_for_no_heartbeat(db: Database, conf: cfg.ConfigOpts) -> None:
    """A thousand hosts' heartbeats are under way at some moment or other."""
    if db.is_sqlite:
        pytest.skip("SQLite has one writer at a time")
    db.write(hosts.record, conf, make.report())
    held, release = threading.Event(), threading.Event()

    def heartbeat(uow: UnitOfWork) -> None:
        uow.session.execute(sa.select(models.Service.id).with_for_update()).all()
        held.set()
        assert release.wait(60)

    with ThreadPoolExecutor(2) as pool:
        try:
            under_way = pool.submit(db.write, heartbeat)
            assert held.wait(60)
            assert pool.submit(db.write, services.expire, conf).result(10) == []
        finally:
            release.set()
        under_way.result(60)


def test_lease(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    db.write(services.report, "ctl", "nova-lite-scheduler", "scheduler", "1")
    db.write(age, conf.service_down_time - 5)
    assert db.write(services.expire, conf) == []
    db.write(age, 10)
    before = state(db)
    db.write(services.report, "c1", "nova-lite-conductor", "conductor", "1")
    assert db.write(services.expire, conf) == ["h1"]
    assert db.write(services.expire, conf) == []
    assert not state(db).up and state(db).generation == before.generation + 1
    assert not db.read(hosts.is_up, "h1")
    assert [service.up for service in db.read(services.list_)] == [False, False, True]
    assert touched_by(db, hosts.record, conf, make.report()) == {before.id}
    assert state(db).up and db.read(hosts.is_up, "h1")


def test_node_that_is_not_reported_any_more_takes_nothing(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report(inventories=[make.inventory("n1"), make.inventory("n2")]))
    touched = touched_by(db, hosts.record, conf, make.report())
    states = {found.node: found for found in db.read(hosts.states)}
    assert touched == {states["n2"].id}
    assert (states["n1"].vcpus, states["n2"].vcpus) == (16, 0)
    assert touched_by(db, hosts.record, conf, make.report()) == set()


def test_names_are_novas(db: Database) -> None:
    for binary in ("nova-lite-conductor", "nova-conductor", "nova-scheduler"):
        db.write(services.report, "ctl", binary, "t", "1")
    found = db.read(services.list_)
    assert [service.binary for service in found] == ["nova-conductor", "nova-scheduler"]
    assert {service.availability_zone for service in found} == {"internal"}
    assert len(db.read(services.list_, "ctl", "nova-scheduler")) == 1
    assert db.read(services.list_, "elsewhere") == []


def test_a_host_is_up_once_it_serves(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report(serving=False))
    assert not db.read(hosts.is_up, "h1")
    db.write(hosts.record, conf, make.report())
    assert db.read(hosts.is_up, "h1")
    db.write(hosts.record, conf, make.report(serving=False))  # its daemon was restarted: it takes orders in a moment
    assert db.read(hosts.is_up, "h1")
    db.write(services.update, compute_id(db), {"forced_down": True})
    db.write(services.update, compute_id(db), {"forced_down": False})
    db.write(hosts.record, conf, make.report(serving=False))
    assert not db.read(hosts.is_up, "h1") and not state(db).up
    db.write(hosts.record, conf, make.report())
    assert state(db).up


def test_disable_and_force_down(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    service = db.read(services.list_)[0]
    changed = db.write(services.update, service.uuid, {"disabled": True, "disabled_reason": "repair"})
    assert (changed.disabled, changed.disabled_reason, state(db).disabled) == (True, "repair", True)
    changed = db.write(services.update, service.uuid, {"disabled": False})
    assert (changed.disabled, changed.disabled_reason) == (False, None)
    node_id = state(db).id
    assert touched_by(db, services.update, str(service.id), {"forced_down": True}) == {node_id}
    db.write(hosts.record, conf, make.report())
    assert not state(db).up and not db.read(hosts.is_up, "h1")
    db.write(services.update, str(service.id), {"forced_down": False})
    db.write(hosts.record, conf, make.report())
    assert state(db).up
    epoch = db.read(lambda uow: uow.session.query(models.Service.epoch).scalar())
    assert epoch == 1
    with pytest.raises(exceptions.InvalidInput, match="host"):
        db.write(services.update, service.uuid, {"host": "x"})


@pytest.mark.parametrize("service_id", ["99", "no-uuid", "9" * 30, "²", "-1", ""])
def test_unknown_service_and_node(db: Database, service_id: str) -> None:
    with pytest.raises(exceptions.ServiceNotFound):
        db.write(services.update, service_id, {"disabled": True})
    with pytest.raises(exceptions.ComputeNodeNotFound):
        db.read(compute_nodes.get, service_id)


def test_delete_service(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    service, before = db.read(services.list_)[0], state(db)
    placed = db.write(make.instance, host="h1", node="n1")
    with pytest.raises(exceptions.ServiceHostsInstances, match="Migrate or delete the instances first"):
        db.write(services.delete, service.uuid)
    assert db.read(compute_nodes.list_)

    def remove_instance(uow: UnitOfWork) -> None:
        uow.session.query(models.Instance).filter_by(uuid=placed).update({"deleted": True})

    def delete(uow: UnitOfWork) -> list[HostState]:
        services.delete(uow, service.uuid)
        uow.session.flush()
        return hosts.states(uow, sorted(published.nodes(uow)))

    db.write(remove_instance)
    (gone,) = db.write(delete)
    assert (gone.id, gone.deleted, gone.up, gone.host) == (before.id, True, False, "h1")
    assert gone.generation > before.generation
    assert db.read(hosts.states) == [] and db.read(services.list_) == []


def test_delete_service_with_an_allocation_left(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    db.write(allocate, "i1", state(db).id)
    with pytest.raises(exceptions.ServiceInUse):
        db.write(services.delete, compute_id(db))
    assert state(db).instances == ["i1"]


def allocate(uow: UnitOfWork, instance_uuid: str, node_id: int) -> None:
    uow.session.add(
        models.Allocation(
            instance_uuid=instance_uuid,
            compute_node_id=node_id,
            generation=1,
            vcpus=1,
            memory_mb=1,
            disk_gb=1,
            created_at=uow.now,
        )
    )


def test_states_of_some_nodes(db: Database, conf: cfg.ConfigOpts) -> None:
    for host in ("h1", "h2"):
        db.write(hosts.record, conf, make.report(host, inventories=[make.inventory(host)]))
    first, second = db.read(hosts.states)
    db.write(allocate, "i2", second.id)
    (only,) = db.read(hosts.states, [second.id])
    assert (only.host, only.instances) == ("h2", ["i2"])
    assert db.read(hosts.states, []) == []
    assert first.instances == []


def test_zones(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    db.write(services.report, "ctl", "nova-conductor", "conductor", "1")
    zones = {zone.name: zone for zone in db.read(services.availability_zones)}
    assert {name: sorted(zone.hosts) for name, zone in zones.items()} == {"internal": ["ctl"], "nova": ["h1"]}
    assert all(zone.available for zone in zones.values())
    db.write(services.update, compute_id(db), {"disabled": True})
    assert {zone.name: zone.available for zone in db.read(services.availability_zones)} == {
        "internal": True,
        "nova": False,
    }


def test_hypervisors(db: Database, conf: cfg.ConfigOpts) -> None:
    for host in ("h1", "h2", "h10"):
        db.write(hosts.record, conf, make.report(host, inventories=[make.inventory(f"{host}.lan")]))
    db.write(make.instance, host="h2", node="h2.lan", task_state="rebooting")
    db.write(make.instance, host="h2", node="h2.lan")
    db.write(make.instance, host="h2", node="h2.lan", deleted=True)
    nodes = db.read(compute_nodes.list_)
    assert [(node.node, node.running_vms, node.current_workload) for node in nodes] == [
        ("h1.lan", 0, 0),
        ("h2.lan", 2, 1),
        ("h10.lan", 0, 0),
    ]
    assert [node.host for node in db.read(compute_nodes.list_, "h1")] == ["h1", "h10"]
    assert db.read(compute_nodes.list_, "%") == []
    assert [node.host for node in db.read(compute_nodes.list_, None, 1, nodes[0].uuid)] == ["h2"]
    assert db.read(compute_nodes.get, nodes[1].uuid) == db.read(compute_nodes.get, str(nodes[1].id)) == nodes[1]
    with pytest.raises(exceptions.MarkerNotFound):
        db.read(compute_nodes.list_, None, None, "nope")


def test_time_of_a_version_is_that_of_its_first_report(db: Database) -> None:
    """Code before migration 0051 reports without it."""

    def reported(version: str) -> Any:
        db.write(services.report, "ctl", "nova-conductor", "conductor", version)
        return db.read(services.list_, "ctl")[0].version_since

    first = reported("1")
    assert first is not None and reported("1") == first
    assert reported("2") > first


def test_networks_in_use_are_of_all_hosts_and_of_the_version(db: Database, conf: cfg.ConfigOpts) -> None:
    for host, networks in (("h1", ["10.66.0.0/24", "fd00::/64"]), ("h2", []), ("h3", ["10.67.0.0/16"])):
        inventory = make.inventory(node=host, networks=networks)
        db.write(hosts.record, conf, make.report(host, inventories=[inventory]))
    assert [str(item) for item in db.read(compute_nodes.networks_in_use, 4)] == ["10.66.0.0/24", "10.67.0.0/16"]
    assert [str(item) for item in db.read(compute_nodes.networks_in_use, 6)] == ["fd00::/64"]
