"""The path of an accepted request through the conductor, over a real database; the other daemons are fakes."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from nova_lite import objects, operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor import reconciler
from nova_lite.conductor.engine import faults, scheduling
from nova_lite.conductor.engine.handler import OperationHandler
from nova_lite.conductor.operations.create.write import hostname
from nova_lite.conductor.operations.registry import handler_for
from nova_lite.db.core import actions, models, quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import action_log, claims, instances, server_groups
from nova_lite.objects import ActionReport, BuildOutcome, CreateRequest, Selection, Verdict, security_group
from nova_lite.operations import states
from tests.support.conductor_world import BUILT, World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_create_writes_rows_actions_and_quota_at_once(world: World) -> None:
    uuids = world.create(min_count=2, max_count=3)
    assert len(uuids) == 3
    assert [world.instance(uuid).display_name for uuid in uuids] == ["vm-1", "vm-2", "vm-3"]
    assert world.open_actions() == [("create", "schedule")] * 3
    assert world.instances_used() == 3


def test_a_repeated_request_returns_the_same_instances(world: World) -> None:
    context = world.context("req-again")
    assert world.create(context, max_count=2) == world.create(context, max_count=2)
    assert world.instances_used() == 2
    assert len(world.open_actions()) == 2


def test_idempotency_key_of_a_repeated_create_returns_the_same_servers(world: World) -> None:
    """The second request has another request id."""
    wish = {"idempotency_key": "k", "fingerprint": "f"}

    def create(context: RequestContext, **changes: Any) -> objects.CreateResult:
        request = CreateRequest(name="vm", flavor_id="1", **{**wish, **changes})
        return world.lifecycle.create_instances(context, request)

    def uuids(result: objects.CreateResult) -> list[str]:
        return [instance.uuid for instance in result.instances]

    first = world.context()
    made = create(first, max_count=2)
    assert not made.earlier
    assert not create(first, max_count=2).earlier, "the same call, once more"
    again = create(world.context(), max_count=2)
    assert (again.earlier, uuids(again)) == (True, uuids(made))
    assert world.instances_used() == 2
    with pytest.raises(exceptions.IdempotencyKeyReused):
        create(world.context(), fingerprint="g")
    other_key = create(world.context(), idempotency_key="l")
    other_project = create(world.context(project="p2"))
    assert not set(uuids(made)) & {*uuids(other_key), *uuids(other_project)}


def test_max_count_is_lowered_to_what_the_quota_allows_but_not_below_min_count(world: World) -> None:
    assert len(world.create(min_count=1, max_count=15)) == 10
    with pytest.raises(
        exceptions.QuotaExceeded, match="Quota exceeded for instances: Requested 1, but already used 10"
    ):
        world.create()
    assert world.instances_used() == 10


def test_max_count_is_lowered_to_what_the_user_may_have(world: World) -> None:
    world.db.write(quotas.set_limit, "p1", "cores", 3, "u1")
    assert len(world.create(max_count=2)) == 2
    assert len(world.create(max_count=5)) == 1
    with pytest.raises(exceptions.QuotaExceeded, match="Requested 1, but already used 3 of 3 cores"):
        world.create()
    assert world.instances_used() == 3


def test_metadata_is_limited_by_the_users_limit(world: World) -> None:
    world.db.write(quotas.set_limit, "p1", "metadata_items", 1, "u1")
    with pytest.raises(exceptions.MetadataLimitExceeded):
        world.create(metadata={"a": "1", "b": "2"})


def test_an_image_that_the_api_described_is_kept_for_every_later_build(world: World) -> None:
    kernel = objects.Image(id="k", name="kernel", checksum="ab", hash_algorithm="sha512")
    image = objects.Image(id="i", name="glance's", properties={"kernel_id": "k"})
    (uuid,) = world.create(image_ref="i", images={"i": image, "k": kernel})
    for _ in range(2):
        world.lifecycle.build_instances(world.context(), [uuid])
        host, request = world.compute.builds[-1]
        assert (request.image, request.images) == (image, {"i": image, "k": kernel})
        world.reports.start_build(world.context(), uuid, host, request.generation)
        world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, "it could not be downloaded")
    assert len(world.compute.builds) == 2


def test_a_kernel_is_kept_as_it_was_at_create(world: World) -> None:
    kernel = world.db.write(images.create, objects.Image(id="k", name="kernel"))
    world.db.write(images.create, objects.Image(id="i", name="ami", properties={"kernel_id": "k"}))
    (uuid,) = world.create(image_ref="i")
    world.db.write(images.delete, world.context(admin=True), "k")
    world.lifecycle.build_instances(world.context(), [uuid])
    assert world.compute.builds[-1][1].images["k"] == kernel


def described(**changes: Any) -> dict[str, Any]:
    """Return a request for an image that only the API knows."""
    return {"image_ref": "i", "images": {"i": objects.Image(id="i", name="glance's", **changes)}}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"flavor_id": "none"}, exceptions.FlavorUnavailable),
        (
            {"image_ref": "i", "images": {"i": objects.Image(id="i", name="n", min_ram=257)}},
            exceptions.FlavorMemoryTooSmall,
        ),
        (
            {"image_ref": "i", "images": {"i": objects.Image(id="i", name="n", status="queued")}},
            exceptions.ImageNotActive,
        ),
        ({"image_ref": "none"}, exceptions.ImageUnavailable),
        ({"key_name": "none"}, exceptions.KeypairUnavailable),
        ({"networks": [objects.NetworkRequest(network_id="none")]}, exceptions.NetworkUnavailable),
        ({"availability_zone": "none"}, exceptions.AvailabilityZoneUnavailable),
        ({"availability_zone": "internal"}, exceptions.AvailabilityZoneUnavailable),
        ({"forced_host": "none"}, exceptions.ComputeHostUnknown),
        ({"requested_destination": objects.RequestedDestination(host="none")}, exceptions.ComputeHostUnknown),
        ({"requested_destination": objects.RequestedDestination(node="none")}, exceptions.ComputeHostUnknown),
        (
            {"requested_destination": objects.RequestedDestination(host="host1", node="host2")},
            exceptions.ComputeHostUnknown,
        ),
        ({"security_groups": ["none"]}, exceptions.SecurityGroupUnavailable),
        ({"security_groups": [security_group.default_id("other")]}, exceptions.SecurityGroupUnavailable),
        ({"metadata": {str(n): "" for n in range(129)}}, exceptions.MetadataLimitExceeded),
        ({"injected_files": {str(n): "" for n in range(6)}}, exceptions.InjectedFileLimitExceeded),
        ({"networks": [objects.NetworkRequest(fixed_ip="10.0.0.9")]}, exceptions.FixedIpForbidden),
    ],
)
def test_invalid_create_is_refused_and_leaves_nothing(
    world: World, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        world.create(**changes)
    assert world.instances_used() == 0
    assert world.count(models.Instance) == 0


def test_a_build_is_claimed_sent_and_finished(world: World) -> None:
    uuid, _, generation = world.built(admin_password="s3cret")
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.task_state, instance.host, generation) == ("active", None, "host1", 1)
    assert instance.vifs[0].address.startswith("10.0.0.")
    assert world.used() == {"host1": 1, "host2": 0}
    assert world.open_actions() == []
    row = world.db.read(lambda uow: instances.rows_by_uuid(uow, [uuid])[uuid])
    assert row.request == {}, "what only the build needed, its password among it, is gone"


def test_security_group_is_found_by_name_or_id(world: World) -> None:
    (uuid,) = world.create(security_groups=["default", security_group.default_id(world.context().project_id)])
    assert world.instance(uuid).security_groups == ["default"]


def test_unknown_requested_host_is_in_the_error(world: World) -> None:
    with pytest.raises(exceptions.ComputeHostUnknown) as caught:
        world.create(requested_destination=objects.RequestedDestination(host="host3"))
    assert caught.value.message == "Compute host host3 could not be found."
    assert caught.value.code == 400


def test_requested_destination_is_passed_at_every_attempt(world: World) -> None:
    wanted = objects.RequestedDestination(host="host1", node="host1")
    (uuid,) = world.create(requested_destination=wanted)
    world.scheduler.error = exceptions.SchedulerNotReady()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.scheduler.error = None
    world.let_time_pass(5)
    world.reconciler.sweep()
    world.reports.start_build(world.context(), uuid, "host1", 1)
    world.report(uuid, "host1", 1, BuildOutcome.RESCHEDULED, "no disk")
    world.lifecycle.build_instances(world.context(), [uuid])
    assert [spec.requested_destination for spec in world.scheduler.specs] == [wanted] * 3


def test_repeated_wakeup_builds_once(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.lifecycle.build_instances(world.context(), [uuid])
    assert len(world.compute.builds) == 1
    assert world.used() == {"host1": 1, "host2": 0}


def test_reconciler_builds_without_a_wakeup(world: World) -> None:
    (uuid,) = world.create()
    assert world.reconciler.sweep() == 0, "the nudge has a moment to arrive"
    world.let_time_pass(3)
    assert world.reconciler.sweep() == 1
    assert [request.instance.uuid for _, request in world.compute.builds] == [uuid]


def test_lost_build_command_is_repeated_with_the_same_generation(world: World) -> None:
    (uuid,) = world.create()
    world.compute.away = True
    world.lifecycle.build_instances(world.context(), [uuid])
    assert world.compute.builds == []
    world.compute.away = False
    world.let_time_pass(31)
    world.reconciler.sweep()
    world.let_time_pass(31)
    world.reconciler.sweep()
    assert [(host, request.generation) for host, request in world.compute.builds] == [("host1", 1)] * 2
    assert world.used() == {"host1": 1, "host2": 0}


def test_a_build_that_no_queue_takes_does_not_wait_for_its_lease(world: World) -> None:
    (uuid,) = world.create()
    world.compute.away = True
    world.lifecycle.build_instances(world.context(), [uuid])
    world.compute.away = False
    assert world.conf.conductor.retry_backoff[0] < 3 < world.conf.conductor.lease_seconds
    assert world.reconciler.sweep() == 0
    world.let_time_pass(3)
    assert world.reconciler.sweep() == 1
    assert [(host, request.generation) for host, request in world.compute.builds] == [("host1", 1)]
    assert world.used() == {"host1": 1, "host2": 0}


def test_unavailable_scheduler_delays_the_build(world: World) -> None:
    world.scheduler.error = exceptions.MessagingUnavailable(what="select_destinations")
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert world.instance(uuid).vm_state == states.BUILDING
    world.scheduler.error = None
    world.let_time_pass(5)
    world.reconciler.sweep()
    assert len(world.compute.builds) == 1


def test_no_valid_host_is_an_error_that_says_why_and_holds_nothing(world: World) -> None:
    world.scheduler.hosts = []
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.task_state) == ("error", None)
    assert instance.fault is not None
    assert instance.fault.message == "No valid host was found. Of 2 hosts, 2 failed RetryFilter."
    assert instance.fault.details == "host1, host2"
    assert world.open_actions() == []


def test_a_full_host_gives_way_to_the_alternate_and_capacity_is_never_exceeded(world: World) -> None:
    uuids = world.create(max_count=10)
    world.lifecycle.build_instances(world.context(), uuids)
    assert sorted(host for host, _ in world.compute.builds) == ["host1"] * 4 + ["host2"] * 4
    assert world.used() == {"host1": 4, "host2": 4}
    assert world.open_actions().count(("create", "schedule")) == 2, "they wait for room"
    assert len(world.scheduler.specs) == scheduling.CLAIM_ROUNDS


def test_a_rescheduled_build_goes_to_another_host_with_a_new_generation(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.reports.start_build(world.context(), uuid, "host1", 1)
    address = world.instance(uuid).vifs[0].address
    world.report(uuid, "host1", 1, BuildOutcome.RESCHEDULED, "no disk")
    assert world.used() == {"host1": 0, "host2": 0}
    assert world.conductor.nudged == [uuid]
    world.lifecycle.build_instances(world.context(), [uuid])
    assert [(host, request.generation) for host, request in world.compute.builds] == [("host1", 1), ("host2", 2)]
    assert world.instance(uuid).vifs[0].address == address
    with pytest.raises(exceptions.StaleReport):
        world.report(uuid, "host1", 1, BUILT)


def test_retries_end_in_error_with_the_last_cause(world: World) -> None:
    (uuid,) = world.create()
    for _ in range(2):
        world.lifecycle.build_instances(world.context(), [uuid])
        host, request = world.compute.builds[-1]
        world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, f"{host} is broken")
    world.lifecycle.build_instances(world.context(), [uuid])
    instance = world.instance(uuid)
    assert instance.vm_state == states.ERROR
    assert instance.fault is not None
    assert "host2 is broken" in instance.fault.message
    assert world.used() == {"host1": 0, "host2": 0}


def test_addresses_are_allocated_with_the_claim(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    instance, (_, request) = world.instance(uuid), world.compute.builds[-1]
    assert (instance.task_state, len(instance.vifs)) == (states.SPAWNING, 1)
    assert (request.connected, request.instance.vifs) == ("0/", instance.vifs)
    world.let_time_pass(31)
    world.reconciler.sweep()
    _, again = world.compute.builds[-1]
    assert (len(world.compute.builds), again.connected, again.instance.vifs) == (2, "0/", instance.vifs)


def test_start_build_returns_the_cause_of_missing_addresses(world: World) -> None:
    full = objects.Network(
        id="22222222-2222-4222-8222-222222222222",
        name="full",
        cidr="10.1.0.0/24",
        gateway="10.1.0.1",
        bridge="br1",
        start="10.1.0.2",
        end="10.1.0.2",
    )
    world.db.write(builtin_networks.create, full)
    free = "11111111-1111-4111-8111-111111111111"
    wanted = [objects.NetworkRequest(network_id=free), objects.NetworkRequest(network_id=full.id)]
    world.built(networks=wanted)
    (uuid,) = world.create(networks=wanted)
    world.lifecycle.build_instances(world.context(), [uuid])
    instance, (host, request) = world.instance(uuid), world.compute.builds[-1]
    assert (request.instance.uuid, request.connected) == (uuid, "")
    assert (instance.task_state, instance.vifs) == (states.SCHEDULING, []), "what was taken is given back"
    with pytest.raises(exceptions.NoMoreFixedIps):
        world.reports.start_build(world.context(), uuid, host, request.generation)


def test_report_without_an_action_id_is_accepted(world: World) -> None:
    world.told = False
    uuid, host, generation = world.built()
    world.report(uuid, host, generation, BUILT)
    assert world.instance(uuid).vm_state == states.ACTIVE
    with pytest.raises(exceptions.StaleReport):
        world.report(uuid, host, generation + 1, BUILT)


def test_an_aborted_build_releases_all(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.reports.start_build(world.context(), uuid, "host1", 1)
    world.report(uuid, "host1", 1, BuildOutcome.ABORTED, "the image is corrupt")
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.host, instance.vifs) == ("error", None, [])
    assert instance.fault is not None
    assert instance.fault.message == "the image is corrupt"
    assert world.used() == {"host1": 0, "host2": 0}


def test_reports_that_come_twice_change_nothing(world: World) -> None:
    uuid, host, generation = world.built()
    world.report(uuid, host, generation, BUILT)
    world.report(uuid, host, generation, BuildOutcome.ABORTED, "late nonsense")
    assert world.instance(uuid).vm_state == states.ACTIVE


def test_delete_before_a_host_was_chosen_is_done_at_once(world: World) -> None:
    (uuid,) = world.create()
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert command.host is None
    assert world.instance(uuid).deleted
    assert world.instances_used() == 0
    world.lifecycle.build_instances(world.context(), [uuid])
    assert world.compute.builds == []


def test_delete_during_a_build_stops_it_and_releases_everything(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.reports.start_build(world.context(), uuid, "host1", 1)
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert (command.host, command.generation) == ("host1", 1)
    with pytest.raises(exceptions.InstanceGone):
        world.report(uuid, "host1", 1, BUILT)
    world.reports.finish_action(world.context(), ActionReport(host="host1", action_id=command.action_id))
    assert world.instance(uuid).deleted
    assert world.used() == {"host1": 0, "host2": 0}
    assert (world.count(models.Port), world.count(models.Allocation), world.instances_used()) == (0, 0, 0)


def test_delete_while_the_host_is_down_is_done_for_its_owner_and_cleaned_up_later(world: World) -> None:
    uuid, host, _ = world.built()
    world.silence(host)
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    with pytest.raises(exceptions.InstanceNotFound):
        world.lifecycle.accept_action(world.context(), uuid, "stop", {})
    assert world.instances_used() == 0
    assert world.used() == {"host1": 1, "host2": 0}, "the guest may still run there"
    assert world.open_actions() == [("delete", "cleanup")]
    world.is_heard(host)
    world.reconciler.sweep()
    assert [sent.action_id for sent in world.compute.commands] == [command.action_id]
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))
    assert world.used() == {"host1": 0, "host2": 0}
    assert world.open_actions() == []


def test_a_delete_that_fails_on_its_host_is_tried_again(world: World) -> None:
    uuid, host, _ = world.built()
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.reports.finish_action(
        world.context(), ActionReport(host=host, action_id=command.action_id, error="the disk is busy")
    )
    assert world.open_actions() == [("delete", "perform")]
    world.let_time_pass(3)
    world.reconciler.sweep()
    assert len(world.compute.commands) == 1


def test_definition_decides_which_states_allow_an_action(world: World) -> None:
    uuid, host, _ = world.built()
    with pytest.raises(
        exceptions.InstanceInvalidState, match=r"Cannot 'start' instance .* while it is in vm_state active"
    ):
        world.lifecycle.accept_action(world.context(), uuid, "start", {})
    stop = world.lifecycle.accept_action(world.context(), uuid, "stop", {})
    with pytest.raises(exceptions.InstanceInvalidState, match="task_state powering-off"):
        world.lifecycle.accept_action(world.context(), uuid, "reboot", {"reboot_type": "SOFT"})
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=stop.action_id, power_state=4))
    assert (world.instance(uuid).vm_state, world.instance(uuid).power_state) == ("stopped", 4)
    world.reports.finish_action(
        world.context(), ActionReport(host=host, action_id=stop.action_id, power_state=1, error="a late failure")
    )
    assert world.instance(uuid).vm_state == "stopped"


#: Operations whose only step is a command that changes the vm state, without a handler of their own.
ORDERS = [
    row
    for row in operations.OPERATIONS.values()
    if len(row.steps) == 1 and isinstance(row.steps[0], operations.HostStep) and row.allowed
    if row.steps[0].becomes and type(handler_for(row.kind)) is OperationHandler
]


@pytest.mark.parametrize("row", ORDERS, ids=lambda row: row.kind)
def test_operation_follows_its_definition(world: World, row: operations.Operation) -> None:
    """Every allowed state leads to the new one. Other states, and a running task, are refused."""
    uuid, host, _ = world.built()
    (step,) = row.steps

    def become(vm_state: str, task_state: str | None = None) -> None:
        def change(uow: UnitOfWork) -> None:
            found = instances.lock(uow, uuid)
            assert found is not None
            found.vm_state, found.task_state = vm_state, task_state

        world.db.write(change)

    for vm_state in (states.ACTIVE, states.STOPPED, states.PAUSED, states.SUSPENDED, states.ERROR):
        become(vm_state)
        if vm_state not in row.allowed:
            with pytest.raises(exceptions.InstanceInvalidState, match=f"Cannot '{row.kind}' .* vm_state {vm_state}"):
                world.lifecycle.accept_action(world.context(), uuid, row.kind, {})
            continue
        command = world.lifecycle.accept_action(world.context(), uuid, row.kind, {})
        assert (world.instance(uuid).task_state, command.host, command.method) == (step.task, host, step.method)
        with pytest.raises(exceptions.InstanceInvalidState, match=f"task_state {step.task}"):
            world.lifecycle.accept_action(world.context(), uuid, row.kind, {})
        power_state = states.EXPECTED_POWER_STATES[step.becomes][0]
        world.reports.finish_action(
            world.context(), ActionReport(host=host, action_id=command.action_id, power_state=power_state)
        )
        found = world.instance(uuid)
        assert (found.vm_state, found.task_state, found.power_state) == (step.becomes, None, power_state)


@pytest.mark.parametrize("row", ORDERS, ids=lambda row: row.kind)
def test_an_operation_past_its_deadline_leaves_the_server_as_it_is(world: World, row: operations.Operation) -> None:
    uuid, _, _ = world.built()
    world.db.write(lambda uow: setattr(instances.lock(uow, uuid), "vm_state", row.allowed[0]))  # type: ignore[index]
    context = world.context()
    world.lifecycle.accept_action(context, uuid, row.kind, {})
    world.let_time_pass(1000)
    world.reconciler.sweep()
    found = world.instance(uuid)
    assert (found.vm_state, found.task_state, found.fault) == (row.allowed[0], None, None)  # type: ignore[index]
    action = world.db.read(action_log.get, context, uuid, context.request_id)
    assert action.message == "Error"
    assert f"The {row.kind} was not finished within" in str(action.events[-1].details)


def test_a_failed_action_leaves_the_instance_as_its_guest_is(world: World) -> None:
    uuid, host, _ = world.built()
    command = world.lifecycle.accept_action(world.context(), uuid, "reboot", {"reboot_type": "HARD"})
    world.reports.finish_action(
        world.context(), ActionReport(host=host, action_id=command.action_id, power_state=4, error="it did not come up")
    )
    assert (world.instance(uuid).vm_state, world.instance(uuid).task_state) == ("stopped", None)


def test_repeated_action_request_returns_the_same_command(world: World) -> None:
    uuid, _, _ = world.built()
    context = world.context("req-stop")
    first = world.lifecycle.accept_action(context, uuid, "stop", {})
    assert world.lifecycle.accept_action(context, uuid, "stop", {}).action_id == first.action_id


def test_actions_on_other_projects_and_locked_instances_are_refused(world: World) -> None:
    uuid, _, _ = world.built()
    with pytest.raises(exceptions.InstanceNotFound):
        world.lifecycle.accept_action(world.context(project="p2"), uuid, "delete", {})

    def lock(uow: UnitOfWork) -> None:
        row = instances.lock(uow, uuid)
        assert row is not None
        row.locked = True

    world.db.write(lock)
    with pytest.raises(exceptions.InstanceIsLocked):
        world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.lifecycle.accept_action(world.context(admin=True), uuid, "delete", {})


def test_a_build_past_its_deadline_ends_in_error_and_holds_its_claim_until_the_host_confirms(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.compute.fenced = exceptions.MessagingUnavailable(what="fence_instance")
    world.silence("host1")
    world.let_time_pass(1000)
    world.reconciler.sweep()
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.task_state) == ("error", None)
    assert instance.fault is not None
    assert "its compute host does not answer" in instance.fault.message
    assert world.used()["host1"] == 1
    assert world.reconciler.sweep() == 0, "whoever gave it up is asking the host; nobody else does"
    world.compute.fenced = True
    world.is_heard("host1")
    world.reconciler.sweep()
    assert world.used()["host1"] == 0
    assert world.open_actions() == []


def test_a_build_past_its_deadline_that_runs_after_all_is_active(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.compute.fenced = False
    world.let_time_pass(1000)
    world.reconciler.sweep()
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.fault) == ("active", None)
    assert world.open_actions() == []


def test_a_build_that_is_reported_after_its_deadline_and_before_its_fence_is_active(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)

    def fence(*_: Any, **__: Any) -> bool:
        world.report(uuid, host, request.generation, BUILT)
        return False

    world.compute.fence_instance = fence  # type: ignore[method-assign]
    world.let_time_pass(1000)
    world.reconciler.sweep()
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.fault) == ("active", None)
    assert world.open_actions() == []


def test_a_delete_past_its_deadline_shows_and_still_ends(world: World) -> None:
    uuid, host, _ = world.built()
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.let_time_pass(1000)
    world.reconciler.sweep()
    instance = world.instance(uuid)
    assert (instance.vm_state, instance.task_state) == ("error", "deleting")
    assert world.lifecycle.accept_action(world.context(), uuid, "delete", {}).action_id == command.action_id
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))
    assert world.instance(uuid).deleted
    assert world.used() == {"host1": 0, "host2": 0}
    assert world.open_actions() == []


def test_a_create_that_cannot_be_scheduled_until_its_deadline_says_why(world: World) -> None:
    world.scheduler.error = exceptions.MessagingUnavailable(what="select_destinations")
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.let_time_pass(1000)
    world.reconciler.sweep()
    fault = world.instance(uuid).fault
    assert fault is not None
    assert "select_destinations" in fault.message


def test_domains_are_judged_by_host_and_generation(world: World) -> None:
    uuid, host, generation = world.built()
    gone, _, _ = world.built()
    command = world.lifecycle.accept_action(world.context(), gone, "delete", {})
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))

    def judge(reporter: str, found: str, number: int) -> list[str]:
        report = objects.DomainReport(uuid=found, generation=number, power_state=1)
        return [v.verdict for v in world.reports.reconcile_domains(world.context(), reporter, [report], [])]

    assert judge(host, uuid, generation) == [Verdict.KEEP]
    assert judge("host2", uuid, generation) == [Verdict.DESTROY]
    assert judge(host, uuid, generation - 1) == [Verdict.DESTROY]
    assert judge(host, uuid, generation + 1) == [], "a newer one than we know: not ours to judge"
    assert judge(host, gone, 1) == [Verdict.DESTROY]
    assert judge(host, "22222222-2222-4222-8222-222222222222", 1) == [], "another database may know it"
    leftovers = world.reports.reconcile_domains(world.context(), host, [], [gone, uuid, "unknown"])
    assert [(v.uuid, v.verdict) for v in leftovers] == [(gone, Verdict.DESTROY)]


def second_end(world: World, uuid: str) -> None:
    """Give the instance an allocation on host2, too, at generation 7, as during a move."""

    def claim(uow: UnitOfWork) -> None:
        row = instances.lock(uow, uuid)
        assert row is not None
        host, generation = row.host, row.generation
        row.generation = 6
        assert claims.claim(uow, row, Selection(host="host2", node="host2"))
        row.host = row.node = host
        row.generation = generation

    world.db.write(claim)


def test_domains_at_both_hosts_of_a_move_belong_there(world: World) -> None:
    uuid, host, generation = world.built()
    second_end(world, uuid)

    def judge(reporter: str, number: int) -> list[str]:
        report = objects.DomainReport(uuid=uuid, generation=number, power_state=4)
        return [v.verdict for v in world.reports.reconcile_domains(world.context(), reporter, [report], [])]

    assert (judge("host2", 7), judge(host, generation)) == ([Verdict.KEEP], [Verdict.KEEP])
    assert world.instance(uuid).vm_state == "stopped", "by its own host's word"
    assert judge("host2", generation) == [Verdict.DESTROY]
    assert world.reports.reconcile_domains(world.context(), "host2", [], [uuid]) == []


def test_delete_goes_to_both_hosts_and_waits_for_both(world: World) -> None:
    uuid, host, _ = world.built()
    second_end(world, uuid)
    assert world.used() == {"host1": 1, "host2": 1}
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert (command.host, command.generation) == (host, 1)
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))
    assert not world.instance(uuid).deleted
    assert world.used() == {"host1": 0, "host2": 1}
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))
    assert not world.instance(uuid).deleted, "the first one's answer again is none of the second's"
    world.reconciler.sweep()
    assert [(sent.host, sent.generation) for sent in world.compute.commands] == [("host2", 7)]
    world.reports.finish_action(world.context(), ActionReport(host="host2", action_id=command.action_id))
    assert world.instance(uuid).deleted
    assert (world.used(), world.open_actions()) == ({"host1": 0, "host2": 0}, [])


def test_delete_begins_at_the_host_that_is_up(world: World) -> None:
    uuid, host, _ = world.built()
    second_end(world, uuid)
    world.silence(host)
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert command.host == "host2"
    world.reports.finish_action(world.context(), ActionReport(host="host2", action_id=command.action_id))
    assert (world.instance(uuid).deleted, world.open_actions()) == (True, [("delete", "cleanup")])
    assert world.used() == {"host1": 1, "host2": 0}


def test_a_guest_that_shut_itself_down_is_stopped(world: World) -> None:
    uuid, host, generation = world.built()
    report = objects.DomainReport(uuid=uuid, generation=generation, power_state=4)
    world.reports.reconcile_domains(world.context(), host, [report], [])
    assert world.instance(uuid).vm_state == "stopped"


def test_domain_report_from_before_a_command_is_ignored(world: World) -> None:
    uuid, host, generation = world.built()
    command = world.lifecycle.accept_action(world.context(), uuid, "stop", {})
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id, power_state=4))

    def tell(last_action_id: int | None) -> str:
        report = objects.DomainReport(uuid=uuid, generation=generation, power_state=1, last_action_id=last_action_id)
        world.reports.reconcile_domains(world.context(), host, [report], [])
        return world.instance(uuid).vm_state

    assert tell(0) == "stopped"
    assert tell(command.action_id) == "active", "somebody has started it since"


@pytest.mark.parametrize(
    ("vm_state", "power_state", "found"),
    [
        ("stopped", 1, "active"),
        ("suspended", 4, "suspended"),
        ("suspended", 1, "active"),
        ("paused", 3, "paused"),
        ("paused", 4, "stopped"),
        ("active", 3, "active"),
    ],
)
def test_guests_power_state_changes_the_row(world: World, vm_state: str, power_state: int, found: str) -> None:
    uuid, host, generation = world.built()
    world.db.write(lambda uow: setattr(instances.lock(uow, uuid), "vm_state", vm_state))
    report = objects.DomainReport(uuid=uuid, generation=generation, power_state=power_state)
    world.reports.reconcile_domains(world.context(), host, [report], [])
    assert (world.instance(uuid).vm_state, world.instance(uuid).power_state) == (found, power_state)


def test_heartbeats_extend_the_leases_of_running_commands(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.let_time_pass(29)
    world.db.write(actions.renew_leases, world.conf, "host1", {uuid: 1}, [])
    world.let_time_pass(29)
    assert world.reconciler.sweep() == 0
    world.db.write(actions.renew_leases, world.conf, "host2", {uuid: 1}, [])
    world.let_time_pass(2)
    assert world.reconciler.sweep() == 1, "another host cannot keep it"


@pytest.mark.parametrize(("kind", "step"), [("teleport", "perform"), ("create", "dematerialize")])
def test_an_action_of_a_later_version_does_not_stop_the_sweep(world: World, kind: str, step: str) -> None:
    (strange,) = world.create()
    (uuid,) = world.create()

    def change(uow: UnitOfWork) -> None:
        action = actions.find_open(uow, strange)
        assert action is not None
        action.action, action.step = kind, step

    world.db.write(change)
    world.let_time_pass(3)
    world.reconciler.sweep()
    assert [request.instance.uuid for _, request in world.compute.builds] == [uuid]
    assert (kind, step) in world.open_actions()


def test_a_restarted_host_gets_its_work_again_at_once(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    world.db.write(actions.make_due, "host1")
    world.reconciler.sweep()
    assert len(world.compute.builds) == 2


def test_a_silent_host_goes_down_but_not_while_the_conductor_could_not_hear(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(reconciler.clock, "monotonic", lambda: clock[0])

    def age(host: str, seconds: float) -> None:
        def change(uow: UnitOfWork) -> None:
            for row in uow.session.scalars(sa.select(models.Service).where(models.Service.host == host)):
                row.last_seen_up = uow.now - datetime.timedelta(seconds=seconds)

        world.db.write(change)

    def is_up(host: str) -> bool:
        return world.db.read(hosts.is_up, host)

    def sweep_for(seconds: int) -> None:
        for _ in range(seconds):
            clock[0] += 1
            world.reconciler.sweep()

    age("host1", 100)
    age("host2", 100)
    sweep_for(40)
    assert is_up("host1"), "nobody was heard for 100 s: that is our own deafness"
    age("host2", 0)
    sweep_for(20)
    assert is_up("host1"), "we only just hear again"
    clock[0] += 1000
    sweep_for(20)
    assert is_up("host1"), "we stood still"
    sweep_for(20)
    assert not is_up("host1")
    assert is_up("host2")


@pytest.mark.parametrize(
    ("name", "suffix", "expected"),
    [
        ("vm", "", "vm"),
        ("My Server_1", "-2", "my-server-1-2"),
        ("a" * 80, "-12", "a" * 60 + "-12"),
        ("--", "", "server-u"),
        ("日本", "-1", "server-u"),
    ],
)
def test_hostnames_are_legal(name: str, suffix: str, expected: str) -> None:
    assert hostname(name, suffix, "u") == expected


# --- server groups


def a_group(world: World, policy: str) -> str:
    group = objects.ServerGroup(name="g", policy=policy)
    return world.db.write(server_groups.create, world.conf, world.context(), group).id


@pytest.mark.parametrize("hint", ["id", ["id"], "g"])
def test_group_members_are_scheduled_together_and_checked_again_by_the_claim(world: World, hint: Any) -> None:
    group = a_group(world, "anti-affinity")
    hints = {"group": {"id": group, "g": "g"}.get(hint, group) if isinstance(hint, str) else [group]}
    uuids = world.create(scheduler_hints=hints, min_count=2, max_count=2)
    world.lifecycle.build_instances(world.context(), uuids)
    asked = world.scheduler.specs[-1].instance_group
    assert asked is not None
    assert (asked.id, asked.policy, asked.hosts) == (group, "anti-affinity", [])
    assert sorted(str(world.instance(uuid).host) for uuid in uuids) == ["host1", "host2"], (
        "though host1 was chosen twice"
    )
    (third,) = world.create(scheduler_hints=hints)
    world.lifecycle.build_instances(world.context(), [third])
    again = world.scheduler.specs[-1].instance_group
    assert again is not None
    assert again.hosts == ["host1", "host2"]
    assert world.instance(third).host is None
    assert world.used() == {"host1": 1, "host2": 1}


def test_a_deleted_member_makes_room(world: World) -> None:
    hints = {"group": a_group(world, "anti-affinity")}
    world.scheduler.hosts = ["host1"]
    uuid, host, _ = world.built(scheduler_hints=hints)
    command = world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    world.reports.finish_action(world.context(), ActionReport(host=host, action_id=command.action_id))
    assert world.built(scheduler_hints=hints)[1] == "host1"


def test_an_unknown_group_is_refused_and_leaves_nothing(world: World) -> None:
    with pytest.raises(exceptions.ServerGroupUnavailable):
        world.create(scheduler_hints={"group": "none"})
    assert world.count(models.Instance) == 0
    assert world.instances_used() == 0


# --- texts of faults


def test_a_long_fault_is_cut_after_a_clause_and_whole_in_the_details(world: World) -> None:
    clauses = ", ".join(f"{number} failed Filter{number} (with a reason)" for number in range(20))
    world.scheduler.error = exceptions.NoValidHost(reason=f"Of 20 hosts, {clauses}.", details="host1 (why)")
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    fault = world.instance(uuid).fault
    assert fault is not None
    assert len(fault.message) <= 255
    assert fault.message.endswith("(with a reason), …")
    assert fault.details.startswith("No valid host was found. Of 20 hosts, 0 failed Filter0")
    assert "19 failed Filter19 (with a reason).\nhost1 (why)" in fault.details


@pytest.mark.parametrize(
    ("message", "short"),
    [("x" * 255, "x" * 255), ("x" * 256, "x" * 252 + "…"), ("word " * 60, "word " * 49 + "word …")],
)
def test_shortened_messages_end_after_a_clause_or_word(message: str, short: str) -> None:
    assert faults.shortened(message) == short
    assert len(short) <= 255


def test_build_that_says_nothing_about_its_host_is_rescheduled_and_not_counted(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)
    message = "Connection to the hypervisor is broken"
    world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, message, blames_host=False)
    assert {state.failed_builds for state in world.db.read(hosts.states)} == {0}
    world.lifecycle.build_instances(world.context(), [uuid])
    assert world.compute.builds[-1][1].generation == 2


def test_failed_builds_are_counted_for_the_host(world: World) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.reports.start_build(world.context(), uuid, host, request.generation)
    world.report(uuid, host, request.generation, BuildOutcome.RESCHEDULED, "boom")
    failed = {state.host: state.failed_builds for state in world.db.read(hosts.states)}
    assert failed == {"host1": 1, "host2": 0}
    world.built()
    assert {state.failed_builds for state in world.db.read(hosts.states)} == {0}


def test_report_or_check_of_another_request_does_not_concern_the_action(world: World) -> None:
    """A database that lost its last commits assigns action ids again."""
    uuid, host, _ = world.built()
    command = world.lifecycle.accept_action(world.context("req-new"), uuid, "stop", {})
    address = (host, command.action_id)
    assert not world.reports.is_command_open(world.context(), *address, command.sequence, "req-lost")
    assert not world.reports.is_command_open(world.context(), "host9", command.action_id, command.sequence, "req-new")
    assert not world.reports.is_command_open(world.context(), *address, command.sequence + 1, "req-new")
    assert world.reports.is_command_open(world.context(), *address, command.sequence, "req-new")
    assert world.reports.is_command_open(world.context(), *address, None, "req-new")
    report = ActionReport(host=host, action_id=command.action_id, power_state=4, sequence=command.sequence)
    world.reports.finish_action(world.context(), msgspec.structs.replace(report, request_id="req-lost"))
    assert world.open_actions() == [("stop", "perform")]
    world.reports.finish_action(world.context(), msgspec.structs.replace(report, request_id="req-new"))
    assert (world.open_actions(), world.instance(uuid).vm_state) == ([], states.STOPPED)
    assert not world.reports.is_command_open(world.context(), *address, command.sequence, "req-new")
