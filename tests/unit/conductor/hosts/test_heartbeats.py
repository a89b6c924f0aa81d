"""Heartbeats: those with nothing new are written in batches, all others in full; host admission holds for both."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.futures import wait_for
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.hosts.heartbeats import Heartbeats
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import compute_nodes, hosts, services
from nova_lite.objects import HostReport
from tests.support import make
from tests.support.host_rows import age, state
from tests.support.statements import counting

HOSTS = [f"h{number}" for number in range(8)]


def beat(host: str = "h1", **values: Any) -> HostReport:
    values.setdefault("inventories", [make.inventory(values.pop("node", "n1"), uptime="up")])
    return make.report(host=host, identity=f"machine of {host}", **values)


def silent_for(db: Database) -> dict[str, float]:
    def read(uow: UnitOfWork) -> dict[str, float]:
        return {item.host: services.seconds_silent(uow, item) for item in uow.session.query(models.Service)}

    return db.read(read)


@pytest.fixture
def fleet(db: Database, conf: cfg.ConfigOpts) -> Heartbeats:
    """Return the heartbeats of a conductor that knows several serving hosts."""
    heartbeats = Heartbeats(db, conf)
    for host in HOSTS:
        db.write(hosts.register_host, conf, beat(host))
        heartbeats.report_state(make.ADMIN, beat(host))
    return heartbeats


def report_all(fleet: Heartbeats, reports: list[HostReport]) -> list[Exception | None]:
    def send(report: HostReport) -> Exception | None:
        try:
            wait_for(fleet.report_state(make.ADMIN, report))
        except Exception as error:
            return error
        return None

    with ThreadPoolExecutor(len(reports)) as pool:
        return list(pool.map(send, reports))


def test_heartbeats_of_many_hosts_are_one_read_and_one_update(db: Database, fleet: Heartbeats) -> None:
    limits = ConductorTiming.heartbeat_batches._replace(max_batch=len(HOSTS), max_delay=60.0)
    full = Heartbeats(db, db.conf, ConductorTiming(heartbeat_batches=limits))
    for host in HOSTS:
        full.report_state(make.ADMIN, beat(host))
    db.write(age, 30)
    with counting() as counted:
        assert report_all(full, [beat(host) for host in HOSTS]) == [None] * len(HOSTS)
    assert (counted.transactions, len(counted.statements)) == (1, 2), counted.statements
    assert max(silent_for(db).values()) < 30
    assert len(silent_for(db)) == len(HOSTS)


def test_single_heartbeat_is_written_after_the_batch_window(db: Database, fleet: Heartbeats) -> None:
    db.write(age, 30)
    with counting() as counted:
        fleet.report_state(make.ADMIN, beat())
    assert len(counted.statements) == 2, counted.statements
    silent = silent_for(db)
    assert silent.pop("h1") < 30 < min(silent.values())


def test_heartbeat_reply_follows_the_renewed_lease(db: Database, conf: cfg.ConfigOpts, fleet: Heartbeats) -> None:
    db.write(age, conf.service_down_time + 10)
    fleet.report_state(make.ADMIN, beat("h3"))
    assert db.write(services.expire, conf) == [host for host in HOSTS if host != "h3"]


@pytest.mark.parametrize(("interval", "down_time"), [(10, 30), (10, 20)])
def test_hosts_whose_reports_a_broken_broker_keeps_back_do_not_count_as_down(
    db: Database, conf: cfg.ConfigOpts, fleet: Heartbeats, interval: int, down_time: int
) -> None:
    conf.set_override("report_interval", interval)
    conf.set_override("service_down_time", down_time)
    db.write(age, interval)
    fleet.report_state(make.ADMIN, beat("h3"))
    db.write(age, down_time - interval + 1)
    assert db.write(services.expire, conf) == []
    fleet.report_state(make.ADMIN, beat("h3"))
    assert db.write(services.expire, conf) == [host for host in HOSTS if host != "h3"]


def test_heartbeat_of_a_down_host_brings_it_up(db: Database, conf: cfg.ConfigOpts, fleet: Heartbeats) -> None:
    """Commands that were not sent to it meanwhile are due."""
    db.write(age, conf.service_down_time + 10)
    db.write(services.report, "ctl", "nova-lite-scheduler", "scheduler", "1")
    assert db.write(services.expire, conf) == HOSTS
    waits = db.write(block_on_host, "h1")
    fleet.report_state(make.ADMIN, beat())
    assert db.read(hosts.is_up, "h1") and not db.read(hosts.is_up, "h2")
    assert db.read(is_due, waits)


def block_on_host(uow: UnitOfWork, host: str) -> int:
    later = uow.now + datetime.timedelta(hours=1)
    uuid = make.instance(uow, host=host)
    return make.action(uow, uuid, action="stop", step="perform", host=host, lease_expires_at=later, deadline=later).id


def is_due(uow: UnitOfWork, action_id: int) -> bool:
    row = uow.session.get(models.InstanceAction, action_id)
    assert row is not None and row.lease_expires_at is not None
    return row.lease_expires_at <= uow.now


def force_down(db: Database, host: str, down: bool) -> None:
    (service,) = db.read(services.list_, host)
    db.write(services.update, service.uuid, {"forced_down": down})


@pytest.mark.parametrize(
    ("change", "raised"),
    [
        (lambda db: force_down(db, "h1", True), exceptions.HostForcedDown),
        (lambda db: [force_down(db, "h1", down) for down in (True, False)], exceptions.HostEpochOver),
        (lambda db: db.write(forget, "h1"), exceptions.HostEpochOver),
        (lambda db: db.write(take_over, "h1"), exceptions.HostIsAnother),
    ],
)
def test_heartbeat_of_a_host_that_is_not_admitted_fails_alone(
    db: Database, fleet: Heartbeats, change: Callable[[Database], object], raised: type[Exception]
) -> None:
    change(db)
    db.write(age, 30)
    answers = report_all(fleet, [beat(host) for host in HOSTS])
    assert [type(answer) for answer in answers] == [type(None), raised, *[type(None)] * (len(HOSTS) - 2)]
    silent = silent_for(db)
    assert silent.pop("h1", 60) >= 30 > max(silent.values())


def forget(uow: UnitOfWork, host: str) -> None:
    (service,) = services.list_(uow, host)
    services.delete(uow, service.uuid)


def take_over(uow: UnitOfWork, host: str) -> None:
    """Register another machine under this name."""
    services.pin(uow, host, "another machine")


@pytest.mark.parametrize(
    "values",
    [
        {"inventories": [make.inventory(memory_mb=2048)]},
        {"inventories": [make.inventory(capabilities={"x": True})]},
        {"inventories": [make.inventory(), make.inventory("n2")]},
        {"inventories": [make.inventory("n2")]},
        {"ram_allocation_ratio": 1.5},
        {"reserved_disk_gb": 1},
        {"version": "9"},
        {"hypervisor_up": False},
        {"boot_id": "b2"},
    ],
    ids=str,
)
def test_heartbeat_with_something_new_is_written_in_full(
    db: Database, conf: cfg.ConfigOpts, fleet: Heartbeats, values: dict[str, Any]
) -> None:
    report = beat(**values)
    assert db.write(hosts.renew_hosts, [report, beat("h2")]) == [False, True]
    fleet.report_state(make.ADMIN, report)
    service = next(row for row in db.read(services.list_) if row.host == "h1")
    assert (service.version, service.up) == (report.version, report.hypervisor_up)
    states = {state.node: state for state in db.read(hosts.states) if state.host == "h1"}
    assert {inventory.node for inventory in report.inventories} == {
        name for name, state in states.items() if state.vcpus
    }
    for inventory in report.inventories:
        assert states[inventory.node].capabilities == inventory.capabilities
        assert states[inventory.node].memory_mb == inventory.memory_mb * report.ram_allocation_ratio
    assert db.write(hosts.renew_hosts, [report]) == [report.hypervisor_up]  # nothing is new any more


def test_node_that_is_reported_again_can_be_used_again(db: Database, conf: cfg.ConfigOpts, fleet: Heartbeats) -> None:
    both = [make.inventory("n1"), make.inventory("n2")]
    for inventories in (both, both[:1], both):
        fleet.report_state(make.ADMIN, beat(inventories=inventories))
    states = {state.node: state.vcpus for state in db.read(hosts.states) if state.host == "h1"}
    assert states == {"n1": 16, "n2": 16}


@pytest.mark.parametrize("work", [{"building": {"no-such": 1}}, {"acting": [5]}, {"serving": False}])
def test_heartbeat_of_a_busy_or_closed_host_is_not_renewed_in_a_batch(
    db: Database, fleet: Heartbeats, work: dict[str, Any]
) -> None:
    assert db.write(hosts.renew_hosts, [beat(**work)]) == [False]


def test_heartbeat_renews_the_leases_of_its_actions(db: Database, fleet: Heartbeats) -> None:
    action_id = db.write(lambda uow: make.action(uow, make.instance(uow, host="h1"), host="h1", step="perform").id)
    assert db.read(is_due, action_id)
    fleet.report_state(make.ADMIN, beat(acting=[action_id]))
    assert not db.read(is_due, action_id)


def test_renewed_heartbeat_updates_statistics_and_sometimes_the_uptime(db: Database, fleet: Heartbeats) -> None:
    def shown() -> tuple[str | None, int, int]:
        node = next(item for item in db.read(compute_nodes.list_) if item.host == "h1")
        return node.inventory.uptime, node.inventory.running_vms, node.generation

    before = shown()
    first = [make.inventory(uptime="a minute", running_vms=1)]
    assert db.write(hosts.renew_hosts, [beat(inventories=first), beat("h2", inventories=first)]) == [True, True]
    assert shown() == ("a minute", 1, before[2])
    second = [make.inventory(uptime="a minute and a bit", running_vms=1)]
    assert db.write(hosts.renew_hosts, [beat(inventories=second)]) == [True]
    assert shown()[0] == "a minute"
    db.write(make_older, 70)
    assert db.write(hosts.renew_hosts, [beat(inventories=second)]) == [True]
    assert shown()[0] == "a minute and a bit"
    less = [make.inventory(uptime="up", running_vms=1, disk_available_least=3)]
    assert db.write(hosts.renew_hosts, [beat(inventories=less)]) == [True]
    assert next(item for item in db.read(hosts.states) if item.host == "h1").disk_available_least == 3


def test_versions_of_hosts_agree_with_their_states(fleet: Heartbeats, db: Database) -> None:
    def place(uow: UnitOfWork) -> None:
        node = next(item.id for item in hosts.states(uow) if item.host == "h2")
        for task in ("rebooting", "spawning", None):
            uuid = make.instance(uow, host="h2", task_state=task)
            make.action(uow, uuid, host="h2", finish_time=None if task else uow.now)
            place = {"vcpus": 1, "memory_mb": 1, "disk_gb": 1, "created_at": uow.now}
            uow.session.add(models.Allocation(instance_uuid=uuid, compute_node_id=node, generation=1, **place))
            if task == "spawning":  # a retry has a closed action, too
                make.action(uow, uuid, host="h2", finish_time=uow.now)

    less = [make.inventory(uptime="up", running_vms=1, disk_available_least=3)]
    assert db.write(hosts.renew_hosts, [beat(inventories=less)]) == [True]
    db.write(place)
    states = db.read(hosts.states)
    assert {(state.io_ops, state.disk_available_least) for state in states} >= {(2, None), (0, 3)}
    names = ("id", "generation", "io_ops", "disk_available_least")
    versions = db.read(hosts.page_of_versions)
    assert [[getattr(version, name) for name in names] for version in versions] == [
        [getattr(state, name) for name in names] for state in states
    ]
    assert db.read(hosts.page_of_versions, states[0].id, 1) == versions[1:2]


def test_new_address_of_a_host_raises_its_generation(fleet: Heartbeats, db: Database) -> None:
    def generation() -> int:
        return next(item.generation for item in db.read(hosts.states) if item.host == "h1")

    before = generation()
    moved = beat(inventories=[make.inventory(host_ip="192.0.2.7")])
    assert db.write(hosts.renew_hosts, [moved]) == [False]
    db.write(hosts.report_state, db.conf, moved)
    assert generation() == before + 1


def make_older(uow: UnitOfWork, seconds: float) -> None:
    for node in uow.session.query(models.ComputeNode).where(models.ComputeNode.updated_at.is_not(None)):
        assert node.updated_at is not None
        node.updated_at -= datetime.timedelta(seconds=seconds)


def test_locked_row_of_a_host_does_not_delay_other_heartbeats(db: Database, fleet: Heartbeats) -> None:
    if db.is_sqlite:
        pytest.skip("SQLite has one writer at a time")
    held, release = threading.Event(), threading.Event()

    def hold(uow: UnitOfWork) -> None:
        services.locked(uow, "h1", services.COMPUTE)
        held.set()
        assert release.wait(60)

    with ThreadPoolExecutor(2) as pool:
        try:
            holder = pool.submit(db.write, hold)
            assert held.wait(60)
            reports = [beat(host) for host in HOSTS]
            renewed = pool.submit(db.write, hosts.renew_hosts, reports).result(30)
        finally:
            release.set()
        holder.result(60)
    assert renewed == [host != "h1" for host in HOSTS]


def test_heartbeats_of_a_failed_batch_are_written_in_full(
    db: Database, conf: cfg.ConfigOpts, fleet: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.write(age, 30)

    def fails(uow: UnitOfWork, reports: list[HostReport]) -> list[bool]:
        raise ValueError("a corrupt row")

    monkeypatch.setattr(hosts, "renew_hosts", fails)
    assert report_all(fleet, [beat(host) for host in HOSTS]) == [None] * len(HOSTS)
    assert max(silent_for(db).values()) < 30


def test_unavailable_database_fails_every_heartbeat_of_a_batch(
    db: Database, fleet: Heartbeats, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(uow: UnitOfWork, reports: list[HostReport]) -> list[bool]:
        raise sa.exc.InterfaceError("SELECT", None, Exception("gone"))

    monkeypatch.setattr(hosts, "renew_hosts", fails)
    answers = report_all(fleet, [beat(host) for host in HOSTS[:3]])
    assert [type(answer) for answer in answers] == [sa.exc.InterfaceError] * 3


@pytest.mark.parametrize("seconds, zone", [(0.0, "south"), (600.0, "nova")])
def test_heartbeat_is_written_in_full_after_the_interval(
    db: Database, fleet: Heartbeats, seconds: float, zone: str
) -> None:
    # The conductor has just started.
    fleet = Heartbeats(db, db.conf, ConductorTiming(full_report_interval=seconds))
    fleet.report_state(make.ADMIN, beat())
    db.conf.set_override("default_availability_zone", "south", "compute")
    fleet.report_state(make.ADMIN, beat())
    assert state_of(db, "h1") == zone


def test_full_reports_of_hosts_are_spread_over_time(db: Database, fleet: Heartbeats) -> None:
    for host in HOSTS:
        fleet.report_state(make.ADMIN, beat(host))
    delays = sorted(report.next_full - time.monotonic() for report in fleet._last_reports.values())
    assert len(delays) == len(HOSTS)
    longest = ConductorTiming.full_report_interval
    assert delays[0] > longest / 2 - 60 and delays[-1] < longest
    assert delays[-1] - delays[0] > 1


def state_of(db: Database, host: str) -> str:
    return next(state.availability_zone for state in db.read(hosts.states) if state.host == host)


def test_conductor_serves_report_state(db: Database, conductor: Any) -> None:
    report = beat()
    report.epoch = conductor.register_host(make.ADMIN, report)
    conductor.report_state(make.ADMIN, report)
    conductor.report_state(make.ADMIN, report)
    assert state(db).up
