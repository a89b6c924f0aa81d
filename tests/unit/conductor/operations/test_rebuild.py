"""Rebuild in the conductor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.db.servers import instances
from nova_lite.objects import ActionReport, BuildOutcome, DomainReport, Verdict
from nova_lite.operations import states
from tests.support.conductor_world import BUILT, World
from tests.support.server_rebuilds import KERNEL, NEW, begin, rebuild


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.db.write(images.create, objects.Image(id="old", name="old", properties={"os": "old"}))
    return made


def set_row(world: World, uuid: str, **values: Any) -> None:
    query = sa.update(models.Instance).where(models.Instance.uuid == uuid).values(**values)
    world.db.write(lambda uow: uow.session.execute(query))


def generations(world: World) -> list[int]:
    return world.db.read(lambda uow: list(uow.session.scalars(sa.select(models.Allocation.generation))))


def test_rebuild_builds_the_next_generation_on_the_same_host(world: World) -> None:
    uuid, host, generation = world.built(image_ref="old")
    address = world.instance(uuid).vifs[0].address
    command = rebuild(world, uuid, "new", admin_password="s3cret", injected_files={"/etc/motd": "aGk="})
    accepted = world.instance(uuid)
    assert (accepted.vm_state, accepted.task_state, accepted.host) == ("active", "rebuilding", host)
    assert (accepted.image_ref, accepted.kernel_id) == ("new", "k")
    assert accepted.system_metadata == {"image_os": "new", "image_kernel_id": "k"}
    request = begin(world, command)
    assert (command.host, request.generation) == (host, generation + 1)
    assert (request.admin_password, request.injected_files) == ("s3cret", {"/etc/motd": "aGk="})
    assert (request.image, request.images["k"]) == (NEW, KERNEL)
    assert world.instance(uuid).task_state == "rebuild_spawning"
    assert (generations(world), world.used()) == ([generation + 1], {"host1": 1, "host2": 0})
    world.report(uuid, host, request.generation, BUILT)
    rebuilt = world.instance(uuid)
    assert (rebuilt.vm_state, rebuilt.task_state, rebuilt.vifs[0].address) == ("active", None, address)
    assert world.open_actions() == []
    row = world.db.read(lambda uow: instances.rows_by_uuid(uow, [uuid])[uuid])
    assert row.request == {}, "its password is forgotten"


def test_old_guest_belongs_nowhere_after_acceptance(world: World) -> None:
    uuid, host, generation = world.built(image_ref="old")
    rebuild(world, uuid)
    domains = [DomainReport(uuid=uuid, generation=item, power_state=1) for item in (generation, generation + 1)]
    verdicts = world.reports.reconcile_domains(world.context(), host, domains, [uuid])
    assert [verdict.verdict for verdict in verdicts] == [Verdict.DESTROY, Verdict.KEEP]


def test_rebuild_changes_only_the_requested_attributes(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old", metadata={"a": "1"}, user_data="b2xk")
    rebuild(world, uuid, changes={"display_name": "other", "metadata_": {"b": "2"}})
    found = world.instance(uuid)
    assert (found.display_name, found.metadata, found.user_data, found.hostname) == ("other", {"b": "2"}, "b2xk", "vm")


def test_unknown_key_is_refused_and_null_removes_the_key(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    set_row(world, uuid, key_name="k1", key_data="ssh-rsa AAAA")
    with pytest.raises(exceptions.KeypairUnavailable):
        rebuild(world, uuid, key_name="none")
    assert world.instance(uuid).key_name == "k1"
    rebuild(world, uuid, key_name=None)
    assert (world.instance(uuid).key_name, world.instance(uuid).key_data) == (None, None)


def test_scheduler_checks_only_a_different_image(world: World) -> None:
    uuid, host, _ = world.built(image_ref="old")
    asked = len(world.scheduler.specs)
    command = rebuild(world, uuid)
    assert len(world.scheduler.specs) == asked
    world.report(uuid, host, begin(world, command).generation, BUILT)
    rebuild(world, uuid, "new")
    spec = world.scheduler.specs[-1]
    assert (len(world.scheduler.specs), spec.image, spec.stays) == (asked + 1, NEW, True)
    assert spec.requested_destination == objects.RequestedDestination(host=host, node=host)


def test_an_image_that_the_host_cannot_run_is_refused_and_nothing_changes(world: World) -> None:
    uuid, _, generation = world.built(image_ref="old")
    world.scheduler.hosts = []
    with pytest.raises(exceptions.UnsuitableHost) as caught:
        rebuild(world, uuid, "new")
    assert caught.value.code == 400
    assert (world.instance(uuid).image_ref, generations(world), world.open_actions()) == ("old", [generation], [])


@pytest.mark.parametrize("image", ["none", "big"])
def test_an_image_that_is_not_there_or_does_not_fit_is_refused(world: World, image: str) -> None:
    uuid, _, generation = world.built(image_ref="old")
    world.db.write(images.create, objects.Image(id="big", name="big", min_ram=9999))
    with pytest.raises(exceptions.Invalid):
        rebuild(world, uuid, image)
    assert (world.instance(uuid).task_state, generations(world)) == (None, [generation])


def test_limits_of_a_request_hold(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    with pytest.raises(exceptions.MetadataLimitExceeded):
        rebuild(world, uuid, changes={"metadata_": {str(number): "" for number in range(129)}})
    with pytest.raises(exceptions.InjectedFileLimitExceeded):
        rebuild(world, uuid, injected_files={str(number): "" for number in range(6)})


@pytest.mark.parametrize("vm_state", ["paused", "suspended", "building", "rescued", "soft-delete"])
def test_other_states_are_refused(world: World, vm_state: str) -> None:
    uuid, _, _ = world.built(image_ref="old")
    set_row(world, uuid, vm_state=vm_state)
    with pytest.raises(exceptions.InstanceInvalidState, match=f"Cannot 'rebuild' .* vm_state {vm_state}"):
        rebuild(world, uuid)


def test_repeated_request_is_one_action_and_another_request_is_refused(world: World) -> None:
    uuid, _, generation = world.built(image_ref="old")
    context = world.context()
    whole = {"image_ref": "old", "images": {}, "changes": {}, "injected_files": {}}
    commands = [world.lifecycle.accept_action(context, uuid, "rebuild", whole) for _ in range(2)]
    assert commands[0] == commands[1]
    assert generations(world) == [generation + 1]
    with pytest.raises(exceptions.InstanceInvalidState, match="task_state rebuilding"):
        rebuild(world, uuid)


def test_stopped_server_is_stopped_after_the_rebuild(world: World) -> None:
    uuid, host, _ = world.built(image_ref="old")
    set_row(world, uuid, vm_state="stopped", power_state=4)
    request = begin(world, rebuild(world, uuid))
    world.report(uuid, host, request.generation, BUILT)
    assert world.open_actions() == [("rebuild", "perform")]
    (command,) = world.compute.commands
    assert (command.method, command.host, command.generation) == ("stop_instance", host, request.generation)
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id, power_state=4))
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("stopped", [])


@pytest.mark.parametrize("outcome", [BuildOutcome.RESCHEDULED, BuildOutcome.ABORTED])
def test_failed_rebuild_keeps_its_claim_and_may_be_repeated(world: World, outcome: BuildOutcome) -> None:
    uuid, host, _ = world.built(image_ref="old")
    request = begin(world, rebuild(world, uuid, admin_password="s3cret"))
    world.report(uuid, host, request.generation, outcome, "no disk")
    failed = world.instance(uuid)
    assert (failed.vm_state, failed.task_state, failed.host, failed.power_state) == ("error", None, host, 0)
    assert failed.fault is not None and "no disk" in failed.fault.message
    assert (len(failed.vifs), world.used(), world.open_actions()) == (1, {"host1": 1, "host2": 0}, [])
    row = world.db.read(lambda uow: instances.rows_by_uuid(uow, [uuid])[uuid])
    assert row.request == {}
    request = begin(world, rebuild(world, uuid))
    world.report(uuid, host, request.generation, BUILT)
    assert (world.instance(uuid).vm_state, world.instance(uuid).fault) == (states.ACTIVE, None)


def test_lost_command_is_repeated(world: World) -> None:
    uuid, host, generation = world.built(image_ref="old")
    sent = len(world.compute.builds)
    rebuild(world, uuid)
    world.let_time_pass(3)
    assert world.reconciler.sweep() == 1
    ((to, request),) = world.compute.builds[sent:]
    assert (to, request.generation) == (host, generation + 1)


def test_rebuild_past_its_deadline_is_fenced_and_keeps_its_host(world: World) -> None:
    uuid, host, _ = world.built(image_ref="old")
    begin(world, rebuild(world, uuid))
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.compute.fenced = exceptions.MessagingUnavailable(what="fence_instance")
    world.reconciler.sweep()
    assert (world.instance(uuid).vm_state, world.open_actions()) == ("error", [("rebuild", "compensate")])
    world.compute.fenced = True
    world.let_time_pass(60)
    world.reconciler.sweep()
    assert (world.open_actions(), world.used()) == ([], {"host1": 1, "host2": 0})
    assert (world.instance(uuid).host, world.instance(uuid).power_state) == (host, 0)


def test_rebuild_that_runs_past_its_deadline_has_succeeded(world: World) -> None:
    uuid, _, _ = world.built(image_ref="old")
    begin(world, rebuild(world, uuid))
    world.compute.fenced = False
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.reconciler.sweep()
    assert (world.instance(uuid).vm_state, world.instance(uuid).fault, world.open_actions()) == ("active", None, [])


def test_a_report_of_the_generation_before_is_stale(world: World) -> None:
    uuid, host, generation = world.built(image_ref="old")
    rebuild(world, uuid)
    with pytest.raises(exceptions.StaleReport):
        world.report(uuid, host, generation, BUILT)
    assert world.open_actions() == [("rebuild", "build")]


def test_guest_that_stops_after_a_rebuild_is_noticed(world: World) -> None:
    """A rebuild has no sequence number in the host's fencing store, so no report has to wait for it."""
    uuid, host, _ = world.built(image_ref="old")
    request = begin(world, rebuild(world, uuid))
    world.report(uuid, host, request.generation, BUILT)
    off = DomainReport(uuid=uuid, generation=request.generation, power_state=4, last_action_id=0)
    world.reports.reconcile_domains(world.context(), host, [off], [])
    assert world.instance(uuid).vm_state == "stopped"


def test_delete_during_a_rebuild(world: World) -> None:
    uuid, host, generation = world.built(image_ref="old")
    rebuild(world, uuid)
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert (command.host, command.generation, world.open_actions()) == (host, generation + 1, [("delete", "perform")])


@pytest.mark.parametrize("kind", ["stop", "reboot"])
def test_undo_allows_preempting_operations_only(world: World, kind: str) -> None:
    """A stop would act on a guest that is about to be removed, and would end the undo."""
    uuid, _, generation = world.built(image_ref="old")
    begin(world, rebuild(world, uuid))
    world.compute.fenced = exceptions.MessagingUnavailable(what="fence_instance")
    world.let_time_pass(world.conf.conductor.action_deadline + 1)
    world.reconciler.sweep()
    with pytest.raises(exceptions.InstanceInvalidState, match=f"Cannot '{kind}' .* unfinished action rebuild"):
        world.lifecycle.accept_action(world.context(), uuid, kind, {"reboot_type": "HARD"})
    assert world.open_actions() == [("rebuild", "compensate")]
    rebuild(world, uuid)
    assert (world.open_actions(), generations(world)) == ([("rebuild", "build")], [generation + 2])
