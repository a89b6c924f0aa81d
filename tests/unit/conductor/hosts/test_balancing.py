"""Moves that relieve hosts, from the reports of load to the end of a live migration."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite import operations
from nova_lite.balance import planner
from nova_lite.base import exceptions
from nova_lite.conductor.hosts.balancing import EVENT, Balancer
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import balance, services
from nova_lite.objects import Flavor, GuestCpu
from nova_lite.objects.balance import BalancePlan, HostLoad, Load, LoadRequest
from tests.support import make
from tests.support.conductor_world import World

CAPACITY = Load(cpu=4, memory=1024)
HOUR = datetime.timedelta(hours=1)


class Filters:
    """Scheduler of which every host passes the filters, except ``refused``."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.specs: list[Any] = []

    def fitting_hosts(self, context: Any, specs: list[Any]) -> list[list[str]]:
        self.specs += specs
        return [[host for host in ("host1", "host2") if host not in self.refused] for _ in specs]


class Balancing(World):
    """A world whose ``host1`` has three servers that use 90 % of its CPUs."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.conf.set_override("rebalance", "on", "conductor")
        self.scheduler.hosts = ["host1"]
        self.uuids = [self.built()[0] for _ in range(3)]
        self.scheduler.hosts = ["host1", "host2"]
        self.filters = Filters()
        self.balancer = Balancer(self.engine, self.filters)  # type: ignore[arg-type]
        self.db.write(services.report, self.conf.host, services.CONDUCTOR, "conductor", "1")
        self.measure("host1", dict.fromkeys(self.uuids, 1.2))
        self.measure("host2", {})

    def measure(self, host: str, cpus: dict[str, float]) -> LoadRequest:
        servers = {uuid: Load(cpu=cpu, memory=100) for uuid, cpu in cpus.items()}
        load = HostLoad(seconds=600, capacity=CAPACITY, other=Load(), servers=servers)
        return self.db.write(balance.report_load, self.conf, host, load)

    def moves(self) -> list[tuple[str, str, str | None]]:
        query = sa.select(models.BalanceMove).order_by(models.BalanceMove.id)
        return self.db.read(lambda uow: [(row.source, row.target, row.result) for row in uow.session.scalars(query)])

    def migrations(self) -> list[models.InstanceAction]:
        kind = operations.LIVE_MIGRATE.kind
        query = sa.select(models.InstanceAction).where(models.InstanceAction.action == kind)
        return self.db.read(lambda uow: list(uow.session.scalars(query)))

    def plan(self, run: bool = False) -> BalancePlan:
        return self.balancer.balance_hosts(make.ADMIN, run)

    def verdicts(self) -> dict[str, str]:
        return {item.instance_uuid: item.verdict for item in self.plan().verdicts}

    def change(self, model: Any, **values: Any) -> None:
        self.db.write(lambda uow: uow.change(sa.update(model).values(**values)))


@pytest.fixture
def world(tmp_path: Path) -> Balancing:
    return Balancing(tmp_path)


def test_loop_moves_a_server_of_a_loaded_host_by_a_live_migration_whose_event_says_why(world: Balancing) -> None:
    world.balancer.run_if_first()
    (action,) = world.migrations()
    assert world.moves() == [("host1", "host2", None)]
    assert action.payload["excluded"] == ["host1"]
    (event,) = [event for event in action.events or [] if event["event"] == EVENT]
    assert event["details"] == (
        "Host host1 had 90 % CPU pressure over 10 min, host host2 0 %. Expected after this move: host1 60 %, host2 "
        "30 %. Gain: 25 points for about 19 s of transfer."
    )
    world.balancer.run_if_first()
    assert len(world.moves()) == 1, "the server counts where it goes"
    assert world.filters.specs[0].ignore_hosts == ["host1"]


def test_scheduler_judges_hosts_by_the_processors_of_the_guests(world: Balancing) -> None:
    cpu = {"virt_type": "kvm", "features": "aes avx"}
    world.change(models.Instance, guest_devices={"devices": [], "free_ports": 3, "cpu": cpu})
    world.plan()
    assert {spec.guest_cpu for spec in world.filters.specs} == {GuestCpu(virt_type="kvm", features="aes avx")}


def test_mixed_server_needs_room_for_its_shared_vcpus_and_moves_alone(world: Balancing) -> None:
    specs = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0-1"}
    flavor = Flavor(flavorid="m", name="m", vcpus=3, memory_mb=64, root_gb=1, extra_specs=specs)
    world.change(models.Instance, flavor=msgspec.to_builtins(flavor))
    read = world.db.read(balance.read_cloud, world.conf)
    assert {(server.room.vcpus, server.alone) for server in read.servers} == {(1, True)}


def test_dry_run_and_off_move_nothing(world: Balancing, caplog: pytest.LogCaptureFixture) -> None:
    world.conf.set_override("rebalance", "dry_run", "conductor")
    caplog.set_level("INFO")
    world.balancer.run_if_first()
    world.balancer.run_if_first()
    assert [record.getMessage()[:8] for record in caplog.records if "would move" in record.getMessage()] == ["Dry run:"]
    assert len(world.plan().moves) == 1
    world.conf.set_override("rebalance", "off", "conductor")
    world.balancer.run_if_first()
    with pytest.raises(exceptions.BalancingIsOff):
        world.plan()
    assert world.moves() == []
    assert world.migrations() == []


def test_other_conductor_plans_nothing(world: Balancing) -> None:
    world.conf.set_override("host", "another")
    world.balancer.run_if_first()
    assert world.moves() == []
    assert list(world.balancer.samples()) == []


def test_run_begins_the_moves_in_a_dry_run(world: Balancing) -> None:
    world.conf.set_override("rebalance", "dry_run", "conductor")
    assert [move.begun for move in world.plan(run=True).moves] == [True]
    assert len(world.migrations()) == 1


def test_host_measures_only_while_it_is_wanted(world: Balancing) -> None:
    assert world.measure("host2", {}) == LoadRequest(interval=60.0, window=600.0)
    world.conf.set_override("rebalance", "off", "conductor")
    assert world.measure("host2", {}) == LoadRequest()


def test_move_of_an_older_plan_does_not_begin(world: Balancing) -> None:
    (move,) = world.plan().moves
    number = world.db.write(balance.begin_plan)
    world.db.write(balance.begin_plan)
    assert world.balancer._begin(number, move) is False
    assert world.migrations() == []


@pytest.mark.parametrize(
    ("option", "value"),
    [("moves_per_hour", 0), ("moves_in_per_hour", 0), ("moves_out_per_hour", 0)],
)
def test_budget_is_counted_again_when_a_move_begins(world: Balancing, option: str, value: int) -> None:
    (move,) = world.plan().moves
    number = world.db.write(balance.begin_plan)
    world.conf.set_override(option, value, "balance")
    assert world.balancer._begin(number, move) is False
    assert world.moves() == []


WITH_VGPU, WITH_SEV = (
    msgspec.to_builtins(Flavor(flavorid="g", name="g", vcpus=1, memory_mb=64, root_gb=1, extra_specs=specs))
    for specs in ({"resources:VGPU": "1"}, {"hw:mem_encryption": "yes"})
)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"locked": True}, "stays: it is locked"),
        ({"task_state": "rebooting"}, "stays: an operation on it is in progress"),
        ({"vm_state": "paused"}, "stays: it is paused, and only active servers move"),
        ({"flavor": WITH_VGPU}, "stays: it has devices of its host"),
        ({"flavor": WITH_SEV}, "stays: its memory is encrypted"),
    ],
)
def test_server_that_may_not_move_is_explained(world: Balancing, values: dict[str, Any], text: str) -> None:
    world.measure("host1", dict.fromkeys(world.uuids, 2.0))
    busy, *_ = world.uuids
    world.db.write(
        lambda uow: uow.change(sa.update(models.Instance).where(models.Instance.uuid == busy).values(**values))
    )
    assert world.verdicts()[busy] == text


@pytest.mark.parametrize(("values", "text"), [({"disabled": True}, "it is disabled"), ({"up": False}, "it is down")])
def test_host_out_of_service_takes_no_part(world: Balancing, values: dict[str, Any], text: str) -> None:
    world.db.write(
        lambda uow: uow.change(sa.update(models.Service).where(models.Service.host == "host2").values(**values))
    )
    found = world.plan()
    assert found.moves == []
    assert [item.status for item in found.hosts if item.host == "host2"] == [text]


def test_host_whose_report_is_old_takes_no_part(world: Balancing) -> None:
    world.change(models.HostLoad, reported_at=datetime.datetime(2000, 1, 1))
    assert {item.status for item in world.plan().hosts} == {"its last report of its load is outdated"}


def test_host_with_a_server_that_is_not_measured_is_no_target(world: Balancing) -> None:
    world.scheduler.hosts = ["host2"]
    world.built()
    found = world.plan()
    assert found.moves == []
    assert [item.status for item in found.hosts if item.host == "host2"] == ["1 of its servers are not measured yet"]


def test_servers_of_hosts_without_pressure_are_in_the_load_of_their_hosts(world: Balancing) -> None:
    world.scheduler.hosts = ["host2"]
    other, *_ = world.built()
    world.measure("host2", {other: 2.0})
    read, both = (world.db.read(balance.read_cloud, world.conf, concerned) for concerned in ((), ("host2",)))
    assert {server.host for server in read.servers} == {"host1"}
    assert {server.host for server in both.servers} == {"host1", "host2"}
    assert planner.pressures(read) == planner.pressures(both)


def test_server_that_moves_counts_at_its_target_also_if_only_one_of_both_hosts_is_read(world: Balancing) -> None:
    world.balancer.run_if_first()
    for concerned in ((), ("host1",), ("host2",), ("host1", "host2")):
        shares = planner.pressures(world.db.read(balance.read_cloud, world.conf, concerned))
        assert {host: round(share["cpu"], 2) for host, share in shares.items()} == {"host1": 0.6, "host2": 0.3}


def test_members_of_a_group_are_read_wherever_they_are(world: Balancing) -> None:
    world.scheduler.hosts = ["host2"]
    other, *_ = world.built()
    world.measure("host2", {other: 1.0})

    def add_group(uow: UnitOfWork) -> None:
        group = models.InstanceGroup(
            uuid=str(uuid.uuid4()), name="g", policy="anti-affinity", project_id="p", user_id="u", created_at=uow.now
        )
        uow.session.add(group)
        uow.session.flush()
        for member in (world.uuids[0], other):
            uow.session.add(models.InstanceGroupMember(instance_uuid=member, group_id=group.id))

    world.db.write(add_group)
    read = world.db.read(balance.read_cloud, world.conf)
    assert {server.uuid for server in read.servers if server.group is not None} == {world.uuids[0], other}
    assert round(planner.pressures(read)["host2"]["cpu"], 2) == 0.25, "it is counted once"


def test_end_of_a_move_is_recorded_and_the_server_stays_for_the_cooldown(world: Balancing) -> None:
    world.balancer.run_if_first()
    moved = world.migrations()[0]
    world.change(models.InstanceAction, finish_time=datetime.datetime(2100, 1, 1), message="it failed")
    world.change(models.Instance, task_state=None)
    verdict = world.verdicts()[moved.instance_uuid]
    assert verdict == "stays: it moved less than 3600 s ago"
    assert world.moves() == [("host1", "host2", "failed")]
    world.db.write(
        lambda uow: uow.change(sa.update(models.BalanceMove).values(begun_at=uow.now - 2 * HOUR, ended_at=uow.now))
    )
    assert world.verdicts()[moved.instance_uuid] == "stays: its last move has failed within a day"


def test_pressure_and_spread_are_metrics(world: Balancing) -> None:
    world.conf.set_override("rebalance", "dry_run", "conductor")
    world.balancer.run_if_first()
    found = {(name, *labels): round(value, 2) for name, (labels, value) in world.balancer.samples()}
    assert found["nova_lite_host_pressure", "host1", "cpu"] == 0.9
    assert found["nova_lite_pressure_spread", "cpu"] == 0.45


def test_unknown_resource_keeps_the_conductor_from_starting(world: Balancing) -> None:
    world.conf.set_override("high", {"gpu": 5}, "balance")
    with pytest.raises(exceptions.ConfigurationError, match="no resource gpu"):
        Balancer(world.engine, world.filters)  # type: ignore[arg-type]
