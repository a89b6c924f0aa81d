"""Retirement of a host at each step of its work: nothing waits for it, and its service can be deleted."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.conductor.hosts.retirement import Retirements
from nova_lite.db.core import models
from nova_lite.db.hosts import hosts, services
from nova_lite.db.servers import flavors
from nova_lite.objects import BuildOutcome, DomainReport, Verdict
from nova_lite.operations import states
from tests.support.conductor_world import heartbeat
from tests.support.server_moves import DISKS, RUNNING, SHUTDOWN, SOURCE, Live, evacuate, force_down, service_uuid

LOST = (states.ERROR, None, None)


class Retiring(Live):
    def retire(self, host: str, with_instances: bool = False) -> objects.Retirement:
        self.silence(host)
        force_down(self, host)
        return Retirements(self.engine).host_retire(self.context(admin=True), host, with_instances)

    def delete_service(self, host: str) -> None:
        self.db.write(services.delete, self.db.read(service_uuid, host))

    def is_gone(self, host: str) -> None:
        """Check that nothing refers to the host, and delete its service."""
        assert self.used()[host] == 0
        asked = sa.select(models.InstanceAction.action).where(
            models.InstanceAction.host == host, models.InstanceAction.finish_time.is_(None)
        )
        assert self.db.read(lambda uow: list(uow.session.scalars(asked))) == []
        assert self.problems() == []
        self.delete_service(host)
        assert host not in self.used()

    @property
    def place(self) -> tuple[str, str | None, str | None]:
        return self.state[:3]


@pytest.fixture
def world(tmp_path: Path) -> Retiring:
    return Retiring(tmp_path)


# --- conditions


def test_retirement_requires_a_forced_down_and_silent_host(world: Retiring) -> None:
    retirements = Retirements(world.engine)
    with pytest.raises(exceptions.HostNotFound):
        retirements.host_retire(world.context(admin=True), "none", True)
    world.silence("host1")
    with pytest.raises(exceptions.HostNotRetirable, match=r"not forced down.*--down host1"):
        retirements.host_retire(world.context(admin=True), "host1", True)
    world.is_heard("host1")
    force_down(world, "host1")
    with pytest.raises(exceptions.HostNotRetirable, match=r"heard \d+ s ago.*Stop its daemon"):
        retirements.host_retire(world.context(admin=True), "host1", True)
    assert world.state == (states.ACTIVE, None, "host1", 1)


def test_server_with_a_tpm_is_to_be_deleted_before_its_host_is_retired(world: Retiring) -> None:
    specs = {"hw:tpm_version": "2.0"}
    flavor = objects.Flavor(flavorid="tpm", name="tpm", vcpus=1, memory_mb=64, root_gb=1, extra_specs=specs)
    world.db.write(flavors.create, flavor)
    uuid, host, _ = world.built(flavor_id="tpm")
    force_down(world, host)
    outcomes = {server.uuid: server.outcome for server in world.retire(host).servers}
    assert outcomes[uuid] == "delete it: no other host has the state of its TPM"
    assert outcomes[world.uuid] == "evacuate it"


def test_host_with_servers_is_refused_and_unchanged(world: Retiring) -> None:
    (other,) = world.create(name="other")
    world.act("stop")
    found = world.retire("host1")
    assert not found.done
    assert [(server.uuid, server.vm_state, server.outcome) for server in found.servers] == [
        (world.uuid, states.ACTIVE, "evacuate it")
    ]
    assert world.state == (states.ACTIVE, states.POWERING_OFF, "host1", 1)
    assert world.open_actions() == [("stop", "perform"), ("create", "schedule")]
    with pytest.raises(exceptions.ServiceHostsInstances, match="Migrate or delete the instances first"):
        world.delete_service("host1")
    evacuate(world, world.uuid)
    assert world.retire("host1").done
    assert world.instance(other).vm_state == states.BUILDING
    world.is_gone("host1")


def test_empty_host_is_retired(world: Retiring) -> None:
    assert world.retire("host2") == objects.Retirement(done=True)
    world.is_gone("host2")


# --- its servers


@pytest.mark.parametrize("task", [None, "stop", "reboot", "rebuild"])
def test_a_lost_server_is_in_error_and_can_be_deleted_or_evacuated(world: Retiring, task: str | None) -> None:
    if task in ("stop", "reboot"):
        world.act(task)
    if task == "rebuild":
        images = {"i": {"id": "i", "name": "image"}}
        world.act("rebuild", image_ref="i", images=images, changes={}, injected_files={})
    found = world.retire("host1", with_instances=True)
    assert found.done and [server.outcome for server in found.servers] == ["lost: in error, to be deleted or evacuated"]
    assert world.place == LOST
    assert "host1 was retired" in world.row.fault["message"]  # type: ignore[index]
    assert world.open_actions() == []
    world.is_gone("host1")
    addresses = world.instance(world.uuid).vifs
    world.act("evacuate")
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), world.uuid, host, request.generation)
    world.report(world.uuid, host, request.generation, BuildOutcome.BUILT)
    assert world.place == (states.ACTIVE, None, "host2")
    assert world.instance(world.uuid).vifs == addresses
    world.act("delete")
    world.answer()
    assert (world.row.deleted, world.count(models.Port), world.instances_used()) == (True, 0, 0)


def test_a_lost_server_needs_no_host_to_be_deleted(world: Retiring) -> None:
    world.retire("host1", with_instances=True)
    world.act("delete")
    assert (world.row.deleted, world.open_actions(), world.count(models.Port)) == (True, [], 0)


def test_a_cleanup_of_a_deleted_server_is_closed(world: Retiring) -> None:
    world.silence("host1")
    world.act("delete")
    assert (world.row.deleted, world.open_actions()) == (True, [("delete", "cleanup")])
    force_down(world, "host1")
    with pytest.raises(exceptions.ServiceHasCleanups, match="host retire host1"):
        world.delete_service("host1")
    found = world.retire("host1")
    assert (found.done, found.closed, found.servers) == (True, 1, [])
    assert (world.open_actions(), world.count(models.Port)) == ([], 0)
    world.is_gone("host1")


@pytest.mark.parametrize("late", [False, True])
def test_build_on_a_retired_host_has_failed(world: Retiring, late: bool) -> None:
    """The build is before or after its deadline, when the host has to confirm a fence."""
    world.scheduler.hosts = ["host2"]
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    if late:
        world.compute.fenced = exceptions.MessagingUnavailable(what="fence_instance")
        world.let_time_pass(world.conf.conductor.action_deadline + 1)
        world.reconciler.sweep()
        assert world.open_actions() == [("create", "compensate")]
    found = world.retire("host2")
    assert (found.done, found.closed, found.servers) == (True, 1, [])
    made = world.instance(uuid)
    assert (made.vm_state, made.task_state, made.host, made.vifs) == (states.ERROR, None, None, [])
    world.is_gone("host2")


def test_pending_network_call_does_not_delay_the_retirement(world: Retiring, monkeypatch: pytest.MonkeyPatch) -> None:
    world.scheduler.hosts = ["host2"]
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    monkeypatch.setattr(world.engine.network, "remote", True, raising=False)
    monkeypatch.setattr(world.engine, "in_background", lambda effect: None)
    assert world.retire("host2").done
    assert world.open_actions() == [("create", "deallocate")]
    assert world.instance(uuid).host is None
    world.delete_service("host2")


def set_state(world: Retiring, **values: Any) -> None:
    world.db.write(
        lambda uow: uow.change(sa.update(models.Instance).where(models.Instance.uuid == world.uuid).values(**values))
    )


def test_a_shelved_server_is_offloaded(world: Retiring) -> None:
    set_state(world, vm_state=states.SHELVED, shelved_image={"id": "i", "name": "image"})
    assert "offloads it" in world.retire("host1").servers[0].outcome
    (server,) = world.retire("host1", with_instances=True).servers
    assert "offloaded" in server.outcome
    assert world.place == (states.SHELVED_OFFLOADED, None, None)
    assert world.open_actions() == []
    world.is_gone("host1")


def test_a_soft_deleted_server_is_deleted(world: Retiring) -> None:
    world.act("delete", soft=True)
    world.answer(SHUTDOWN)
    assert world.row.vm_state == states.SOFT_DELETED
    (server,) = world.retire("host1", with_instances=True).servers
    assert server.outcome == "deleted permanently"
    assert (world.row.deleted, world.open_actions(), world.instances_used()) == (True, [], 0)
    world.is_gone("host1")


# --- moves


def test_a_server_that_was_resized_to_it_goes_back(world: Retiring) -> None:
    world.resized()
    assert [item.outcome for item in world.retire("host2").servers] == ["revert its resize"]
    (server,) = world.retire("host2", with_instances=True).servers
    assert server.outcome.startswith("reverted")
    assert (world.command.method, world.command.host) == ("finish_revert_resize", "host1")
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, ["reverted"], [])
    world.is_gone("host2")


def test_a_server_that_was_resized_away_can_only_be_confirmed(world: Retiring) -> None:
    world.resized()
    assert world.retire("host1") == objects.Retirement(done=True)
    assert world.state == (states.RESIZED, None, "host2", 2)
    world.is_gone("host1")
    with pytest.raises(exceptions.SourceRetired, match=r"host1.*Confirm"):
        world.act("revertResize")
    world.act("confirmResize")
    assert world.state == (states.ACTIVE, None, "host2", 2)
    assert (world.cores(), world.statuses(), world.open_actions()) == (2, ["confirmed"], [])


@pytest.mark.parametrize("moment", ["confirm", "revert"])
def test_retirement_of_the_released_host_ends_a_confirm_or_revert(world: Retiring, moment: str) -> None:
    world.resized()
    world.act(f"{moment}Resize")
    gone, left = ("host1", "host2") if moment == "confirm" else ("host2", "host1")
    assert world.retire(gone).done
    if moment == "revert":
        world.answer(RUNNING)
    assert world.place == (states.ACTIVE, None, left)
    assert (world.open_actions(), world.statuses()) == ([], [f"{moment}ed"])
    world.is_gone(gone)


@pytest.mark.parametrize("moment", ["leave", "arrive", "drop"])
def test_retired_destination_ends_the_move(world: Retiring, moment: str) -> None:
    world.act("resize", flavor_id="2")
    if moment != "leave":
        world.left()
    if moment == "drop":
        world.answer(error="disk full")
    assert world.retire("host2").done
    world.delete_service("host2")
    if moment == "leave":
        world.left()
    assert (world.command.method, world.command.host) == ("finish_revert_resize", "host1")
    world.answer(RUNNING)
    assert world.state == (states.ACTIVE, None, "host1", 1)
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, ["error"], [])
    assert world.problems() == []


@pytest.mark.parametrize("moment", ["leave", "arrive", "return"])
def test_retired_source_ends_the_move(world: Retiring, moment: str) -> None:
    world.act("resize", flavor_id="2")
    if moment == "arrive":
        world.left()
    if moment == "return":
        world.answer(error="the domain does not stop")
    assert [server.uuid for server in world.retire("host1").servers] == [world.uuid]
    assert world.retire("host1", with_instances=True).done
    if moment == "arrive":
        assert (world.command.method, world.command.host) == ("drop_resize", "host2")
        world.answer()
    assert world.place == LOST
    assert (world.cores(), world.statuses(), world.open_actions()) == (1, ["error"], [])
    assert world.used() == {"host1": 0, "host2": 0}
    world.is_gone("host1")


def test_resize_on_a_retired_host_ends(world: Retiring) -> None:
    world.conf.set_override("allow_resize_to_same_host", True)
    world.scheduler.hosts = ["host1"]
    world.act("resize", flavor_id="2")
    world.answer(answer=DISKS)
    world.answer(RUNNING)
    assert world.state == (states.RESIZED, None, "host1", 2)
    assert [server.outcome[:4] for server in world.retire("host1", with_instances=True).servers] == ["lost"]
    assert (world.place, world.open_actions(), world.cores()) == (LOST, [], 2)
    world.is_gone("host1")


def test_guest_that_had_left_the_retired_source_is_not_lost(world: Retiring) -> None:
    world.act("resize", flavor_id="2")
    world.left()
    world.retire("host1", with_instances=True)
    assert world.command.method == "drop_resize"
    world.answer(RUNNING, answer={"done": True})
    assert (world.state, world.row.fault) == ((states.RESIZED, None, "host2", 2), None)
    world.is_gone("host1")
    world.act("confirmResize")
    assert world.state == (states.ACTIVE, None, "host2", 2)


@pytest.mark.parametrize("gone", ["host1", "host2"])
@pytest.mark.parametrize("step", ["check", "prepare", "hand_over", "settle"])
def test_retired_host_ends_a_live_migration(world: Retiring, gone: str, step: str) -> None:
    if step in ("check", "prepare"):
        world.act("live-migration", host=None)
        if step == "prepare":
            world.answer(RUNNING, answer=SOURCE)
    else:
        world.prepared()
        if step == "settle":
            world.answer()
    is_there = gone == ("host2" if step == "settle" else "host1")
    error = "the destination does not answer" if step == "hand_over" else None
    found = world.retire(gone, with_instances=True)
    assert (found.done, len(found.servers)) == (True, int(is_there))
    world.delete_service(gone)
    for _ in range(4):
        if world.open_actions():
            world.answer(None if is_there else RUNNING, error if world.command.method == "live_migration" else None)
    assert world.place == (LOST if is_there else (states.ACTIVE, None, "host1" if gone == "host2" else "host2"))
    assert (world.open_actions(), world.problems()) == ([], [])


def test_guest_handed_over_to_a_retired_host_is_lost(world: Retiring) -> None:
    world.prepared()
    assert world.retire("host2").servers == []
    world.answer(RUNNING)
    world.expect("post_live_migration", "host1", 1)
    world.answer()
    assert (world.place, world.open_actions()) == (LOST, [])
    world.is_gone("host2")


def test_server_reverted_to_a_retired_host_is_lost(world: Retiring) -> None:
    world.resized()
    world.act("revertResize")
    assert world.retire("host1").servers == []
    world.answer()
    assert (world.place, world.open_actions(), world.cores()) == (LOST, [], 1)
    world.is_gone("host1")


@pytest.mark.parametrize("gone", ["host1", "host2"])
def test_delete_during_a_move_from_a_retired_host(world: Retiring, gone: str) -> None:
    world.resized()
    world.act("delete")
    assert world.retire(gone).done
    if not world.row.deleted:
        world.answer()
    assert (world.row.deleted, world.open_actions(), world.count(models.Port)) == (True, [], 0)
    world.is_gone(gone)


# --- a new machine


def test_machine_of_the_same_name_is_a_new_host(world: Retiring) -> None:
    old = heartbeat("host1")
    old.identity = "old"
    world.db.write(hosts.register_host, world.conf, old)
    world.retire("host1", with_instances=True)
    with pytest.raises(exceptions.HostForcedDown):
        world.db.write(hosts.register_host, world.conf, old)
    world.delete_service("host1")
    with pytest.raises(exceptions.HostEpochOver):
        world.db.write(hosts.report_state, world.conf, old)
    new = heartbeat("host1")
    new.identity = "new"
    assert world.db.write(hosts.register_host, world.conf, new) == 0
    domain = DomainReport(uuid=world.uuid, generation=1, power_state=RUNNING)
    (verdict,) = world.reports.reconcile_domains(world.context(), "host1", [domain], [])
    assert verdict.verdict == Verdict.DESTROY
    uuid, host, _ = world.built()
    assert (host, world.used()["host1"], world.instance(uuid).vm_state) == ("host1", 1, states.ACTIVE)


def test_retired_host_leaves_its_aggregates(world: Retiring) -> None:
    def add(uow: Any) -> None:
        uow.session.add(models.Aggregate(id=1, uuid="a", name="a", metadata_={}, created_at=datetime.datetime.min))
        uow.session.add(models.AggregateHost(aggregate_id=1, host="host2"))

    world.db.write(add)
    world.retire("host2")
    world.is_gone("host2")
    assert world.count(models.AggregateHost) == 0
