"""Evacuation in the conductor, and registration of a host that was forced down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.events import InterfacesChanged
from nova_lite.db.hosts import hosts, services
from nova_lite.db.servers import server_migrations
from nova_lite.db.upkeep import invariants
from nova_lite.objects import ActionReport, BuildOutcome, DomainReport, Verdict
from nova_lite.operations import states
from tests.support.conductor_world import BUILT, World
from tests.support.server_moves import evacuate, force_down, service_uuid


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def verdicts(world: World, host: str, uuid: str, generation: int) -> list[Verdict]:
    domain = DomainReport(uuid=uuid, generation=generation, power_state=1)
    return [verdict.verdict for verdict in world.reports.reconcile_domains(world.context(), host, [domain], [])]


def rebuild(world: World, uuid: str) -> tuple[str, objects.BuildRequest]:
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)
    return host, request


def test_evacuated_server_leaves_its_host_and_is_built_on_another(world: World) -> None:
    uuid, host, generation = world.built()
    address = world.instance(uuid).vifs[0].address
    force_down(world, host)
    evacuate(world, uuid, admin_password="new")
    moving = world.instance(uuid)
    assert (moving.vm_state, moving.task_state, moving.host) == ("active", "rebuilding", None)
    assert world.used() == {"host1": 0, "host2": 0}
    assert verdicts(world, host, uuid, generation) == [Verdict.DESTROY]
    target, request = rebuild(world, uuid)
    assert (target, request.generation > generation, request.admin_password) == ("host2", True, "new")
    spec = world.scheduler.specs[-1]
    assert (spec.ignore_hosts, spec.left_out) == ([host], {host: "the lost host"})
    assert world.instance(uuid).task_state == "rebuild_spawning"
    world.report(uuid, target, request.generation, BUILT)
    moved = world.instance(uuid)
    assert (moved.vm_state, moved.task_state, moved.host, moved.vifs[0].address) == ("active", None, target, address)
    assert world.open_actions() == []
    assert world.used() == {"host1": 0, "host2": 1}


def test_claim_of_an_evacuation_tells_hosts_where_the_interfaces_are(world: World) -> None:
    told: list[str] = []
    world.db.subscribe(
        lambda uow: told.extend(event.instance_uuid for event in uow.published(InterfacesChanged)), InterfacesChanged
    )
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    told.clear()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert set(told) == {uuid}


@pytest.mark.parametrize("down", ["up", "silent"])
def test_evacuation_requires_a_forced_down_host(world: World, down: str) -> None:
    uuid, host, _ = world.built()
    if down == "silent":
        world.silence(host)
    with pytest.raises(exceptions.HostNotForcedDown, match="forced_down"):
        evacuate(world, uuid)
    assert world.instance(uuid).host == host


@pytest.mark.parametrize("forced", [True, False])
def test_evacuation_to_a_requested_host(world: World, forced: bool) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    with pytest.raises(exceptions.ComputeHostNotFound):
        evacuate(world, uuid, host="none")
    with pytest.raises(exceptions.EvacuateToSameHost):
        evacuate(world, uuid, host=host)
    evacuate(world, uuid, host="host2", forced=forced)
    world.lifecycle.build_instances(world.context(), [uuid])
    spec = world.scheduler.specs[-1]
    wanted = None if forced else objects.RequestedDestination(host="host2")
    assert (spec.forced_host, spec.requested_destination) == ("host2" if forced else None, wanted)


def test_repeated_request_is_one_action_and_another_request_is_refused(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    context = world.context(admin=True)
    commands = [world.lifecycle.accept_action(context, uuid, "evacuate", {}).action_id for _ in range(2)]
    assert commands[0] == commands[1]
    with pytest.raises(exceptions.InstanceInvalidState):
        evacuate(world, uuid)


def listed(world: World, **filters: list[str]) -> list[tuple[str, str | None, str | None, str | None]]:
    """Return the evacuations as the API lists them, oldest first."""
    wanted = objects.MigrationFilters(migration_type=["evacuation"], **filters)
    rows = world.db.read(server_migrations.list_, wanted)
    return [(row.status, row.source_compute, row.dest_compute, row.dest_node) for row in reversed(rows)]


def test_evacuation_has_a_migration_with_the_status_of_each_step(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid, stopped=True)
    assert listed(world) == [("accepted", host, None, None)]
    assert world.db.read(server_migrations.current, uuid) is None, "it is no move that could be confirmed"
    target, request = rebuild(world, uuid)
    assert listed(world, instance_uuid=[uuid]) == [("pre-migrating", host, target, target)]
    assert world.db.read(server_migrations.in_progress, uuid) == []
    world.report(uuid, target, request.generation, BUILT)
    done = ("done", host, target, target)
    assert (world.open_actions(), listed(world)) == ([("evacuate", "perform")], [done])
    assert (listed(world, host=[target]), listed(world, host=[host]), listed(world, host=["h"])) == ([done], [done], [])
    (row,) = world.db.read(server_migrations.list_, objects.MigrationFilters())
    assert (row.user_id, row.project_id) == (world.context(admin=True).user_id, world.context(admin=True).project_id)
    assert row.old_flavor_id == row.new_flavor_id == world.instance(uuid).flavor.id
    assert world.db.read(invariants.find) == []


def test_evacuation_without_a_host_has_a_migration_in_error_and_the_next_has_the_same_source(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    world.scheduler.hosts = []
    evacuate(world, uuid, host="host2")
    assert listed(world) == [("accepted", host, "host2", None)]
    world.lifecycle.build_instances(world.context(), [uuid])
    evacuate(world, uuid)
    assert listed(world) == [("error", host, "host2", None), ("accepted", host, None, None)]


def test_evacuation_that_its_new_host_fails_has_a_failed_migration(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    target, request = rebuild(world, uuid)
    world.report(uuid, target, request.generation, BuildOutcome.ABORTED, "no image")
    assert (world.open_actions(), listed(world)) == ([], [("failed", host, target, target)])


def test_evacuation_from_a_host_that_is_lost_during_an_evacuation_has_a_migration_of_its_own(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    target, _ = rebuild(world, uuid)
    force_down(world, target)
    evacuate(world, uuid)
    assert listed(world) == [("failed", host, target, target), ("accepted", target, None, None)]
    assert world.open_actions() == [("evacuate", "schedule")]


def test_evacuation_that_an_older_conductor_ended_is_closed_by_the_audit(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.db.write(lambda uow: uow.change(sa.update(models.Migration).values(status="accepted")))
    (problem,) = invariants.fix(world.db)[0]
    assert (problem.check, problem.found) == ("migration", "an evacuation that is accepted")
    assert listed(world) == [("failed", host, None, None)]


def test_build_report_of_the_old_host_is_stale(world: World) -> None:
    uuid, host, generation = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    with pytest.raises(exceptions.StaleReport):
        world.report(uuid, host, generation, BUILT)
    assert world.open_actions() == [("evacuate", "schedule")]


@pytest.mark.parametrize(("before", "stopped"), [("stopped", False), ("active", True)])
def test_stopped_server_is_stopped_by_its_new_host(world: World, before: str, stopped: bool) -> None:
    uuid, host, _ = world.built()

    def set_state(uow: Any) -> None:
        uow.session.scalars(sa.select(models.Instance).where(models.Instance.uuid == uuid)).one().vm_state = before

    world.db.write(set_state)
    force_down(world, host)
    evacuate(world, uuid, stopped=stopped)
    target, request = rebuild(world, uuid)
    world.report(uuid, target, request.generation, BUILT)
    world.report(uuid, target, request.generation, BUILT)
    assert world.open_actions() == [("evacuate", "perform")]
    (command,) = world.compute.commands
    assert (command.action, command.host, command.generation) == ("evacuate", target, request.generation)
    world.reports.finish_action(world.context(), ActionReport(host=target, action_id=command.action_id, power_state=4))
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("stopped", None)
    assert world.open_actions() == []


def test_failed_evacuation_keeps_addresses_and_may_be_repeated(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    world.scheduler.hosts = []
    evacuate(world, uuid)
    world.lifecycle.build_instances(world.context(), [uuid])
    failed = world.instance(uuid)
    assert (failed.vm_state, failed.task_state, failed.host, len(failed.vifs)) == ("error", None, None, 1)
    assert failed.fault is not None
    world.scheduler.hosts = ["host2"]
    evacuate(world, uuid)
    target, request = rebuild(world, uuid)
    world.report(uuid, target, request.generation, BUILT)
    assert (world.instance(uuid).vm_state, world.instance(uuid).fault) == ("active", None)


def test_rescheduled_evacuation_never_returns_to_the_lost_host(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid, stopped=True)
    target, request = rebuild(world, uuid)
    world.report(uuid, target, request.generation, BuildOutcome.RESCHEDULED, "no disk")
    assert world.instance(uuid).task_state == states.REBUILDING
    world.lifecycle.build_instances(world.context(), [uuid])
    assert world.scheduler.specs[-1].ignore_hosts == [host, target]


def test_evacuation_past_its_deadline_fences_the_new_host_first(world: World) -> None:
    uuid, host, _ = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    rebuild(world, uuid)
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.compute.fenced = exceptions.MessagingUnavailable(what="fence_instance")
    world.reconciler.sweep()
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("error", [("evacuate", "compensate")])
    assert world.used() == {"host1": 0, "host2": 1}
    world.compute.fenced = True
    world.let_time_pass(60)
    assert listed(world) == [("pre-migrating", host, "host2", "host2")]
    world.reconciler.sweep()
    assert world.open_actions() == []
    assert listed(world) == [("failed", host, "host2", "host2")]
    assert world.used() == {"host1": 0, "host2": 0}
    assert (world.instance(uuid).host, len(world.instance(uuid).vifs)) == (None, 1)


def test_delete_during_an_evacuation(world: World) -> None:
    uuid, host, generation = world.built()
    force_down(world, host)
    evacuate(world, uuid)
    world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert world.open_actions() == []
    assert listed(world) == [("failed", host, None, None)]
    assert world.count(models.Port) == 0
    assert verdicts(world, host, uuid, generation) == [Verdict.DESTROY]


def host_report(host: str, epoch: int = 0, identity: str = "") -> objects.HostReport:
    inventory = objects.Inventory(node=host, vcpus=4, memory_mb=1024, disk_gb=50, hypervisor_type="fake")
    return objects.HostReport(host=host, boot_id="b", inventories=[inventory], epoch=epoch, identity=identity)


def test_host_serves_only_in_the_epoch_of_its_registration(world: World) -> None:
    first = world.db.write(hosts.register_host, world.conf, host_report("host1"))
    world.db.write(hosts.report_state, world.conf, host_report("host1", first))
    force_down(world, "host1")
    for write in (hosts.register_host, hosts.report_state):
        with pytest.raises(exceptions.HostForcedDown):
            world.db.write(write, world.conf, host_report("host1", first))
    force_down(world, "host1", False)
    with pytest.raises(exceptions.HostEpochOver):
        world.db.write(hosts.report_state, world.conf, host_report("host1", first))
    assert not world.db.read(hosts.is_up, "host1"), "its old epoch does not count"
    second = world.db.write(hosts.register_host, world.conf, host_report("host1"))
    world.db.write(hosts.report_state, world.conf, host_report("host1", second))
    assert second > first
    assert world.db.read(hosts.is_up, "host1")
    world.db.write(services.delete, world.db.read(service_uuid, "host1"))
    with pytest.raises(exceptions.HostEpochOver):
        world.db.write(hosts.report_state, world.conf, host_report("host1", second))
    assert world.db.write(hosts.register_host, world.conf, host_report("host1")) == 0


def test_second_machine_of_the_same_name_does_not_serve(world: World) -> None:
    """Otherwise each would receive the other's commands, and their heartbeats would alternate."""
    epoch = world.db.write(hosts.register_host, world.conf, host_report("host1", identity="first"))
    for write in (hosts.register_host, hosts.report_state):
        with pytest.raises(exceptions.HostIsAnother, match="Host host1 is registered as another machine"):
            world.db.write(write, world.conf, host_report("host1", epoch, identity="second"))
    world.db.write(hosts.report_state, world.conf, host_report("host1", epoch, identity="first"))
    assert world.db.write(hosts.register_host, world.conf, host_report("host1", identity="first")) == epoch


def test_machine_of_the_same_name_serves_after_the_first_is_forced_down(world: World) -> None:
    first = world.db.write(hosts.register_host, world.conf, host_report("host1", identity="first"))
    force_down(world, "host1")
    force_down(world, "host1", False)
    second = world.db.write(hosts.register_host, world.conf, host_report("host1", identity="second"))
    world.db.write(hosts.report_state, world.conf, host_report("host1", second, identity="second"))
    for epoch in (first, second):
        with pytest.raises(exceptions.HostIsAnother):
            world.db.write(hosts.report_state, world.conf, host_report("host1", epoch, identity="first"))


def test_older_daemon_without_identity_serves(world: World) -> None:
    """Older versions report no identity."""
    epoch = world.db.write(hosts.register_host, world.conf, host_report("host1", identity="first"))
    assert world.db.write(hosts.register_host, world.conf, host_report("host1")) == epoch
    with pytest.raises(exceptions.HostIsAnother):
        world.db.write(hosts.register_host, world.conf, host_report("host1", identity="second"))
