"""Events of operations and their payloads, held against Nova's documented samples."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects, operations
from nova_lite.base.timing import TIMING
from nova_lite.conductor.notifications import payloads
from nova_lite.conductor.notifications.events import Event, events_of
from nova_lite.conductor.notifications.recorder import Recorder
from nova_lite.conductor.notifications.service import Notifications
from nova_lite.db.core import models, outbox
from nova_lite.db.core.action_changes import ActionChange, Change
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.image import images
from nova_lite.db.servers import keypairs
from nova_lite.objects import BuildOutcome, ShareMapping, ShareState
from nova_lite.operations import OPERATIONS, SILENT, Notification, Payload, Phase
from tests.support import server_moves
from tests.support.server_moves import READY, RUNNING, SHUTDOWN, SOURCE, Live
from tests.support.world_interfaces import attach, detach, report
from tests.support.world_volumes import Volumes
from tests.unit.conductor.notifications import nova_facts
from tests.unit.conductor.notifications.bodies import checked, data, rows
from tests.unit.conductor.notifications.sinks import CHANNELS

SECRETS = ("the-admin-password", "the-user-data", "the-personality")


def turn_on(db: Database) -> None:
    Notifications(db, db.conf, TIMING.conductor, CHANNELS)


def types(db: Database, channel: str = "versioned") -> list[str]:
    """Return the types of all events without their common prefix."""
    prefix = "instance." if channel == "versioned" else "compute.instance."
    return [row.event_type.removeprefix(prefix) for row in rows(db, channel)]


@pytest.fixture
def world(tmp_path: Path) -> Live:
    """Return a world with a server that was made before notifications were turned on."""
    made = Live(tmp_path)
    made.conf.set_override("host", "conductor1")
    turn_on(made.db)
    return made


def named() -> Iterator[tuple[Notification, Phase | None]]:
    """Yield each event that a definition names."""
    for definition in OPERATIONS.with_variants():
        whole = operations.notification_of(definition)
        own = [whole, whole and whole.first, definition.rollback]
        for notification in [*own, *(step.notification for step in definition.all_steps())]:
            if notification is not None:
                yield from ((notification, phase) for phase in notification.phases or (None,))


@pytest.mark.parametrize("kind", OPERATIONS)
def test_operation_has_events_or_a_reason_for_none(kind: str) -> None:
    definition = OPERATIONS[kind]
    silent = operations.notification_of(definition) is None and definition.rollback is None
    assert silent == (kind in SILENT)


def test_events_have_the_names_classes_and_publishers_of_novas_samples() -> None:
    unknown = set()
    for notification, phase in named():
        event_type = notification.event_type(phase)
        if event_type not in nova_facts.SAMPLES:
            unknown.add(event_type)
            continue
        assert (notification.payload.value, notification.source.value) == nova_facts.SAMPLES[event_type], event_type
    assert all(event_type.endswith(".error") for event_type in unknown), "Nova has no sample of some failures"
    assert set(nova_facts.SAMPLES) <= {item.event_type(phase) for item, phase in named()}


def check_all(db: Database) -> None:
    for row in rows(db):
        checked(row.payload)
        sample = nova_facts.SAMPLES.get(row.event_type)
        if sample is not None:
            assert row.payload["nova_object.name"] == sample[0]
        assert row.priority == ("ERROR" if row.event_type.endswith(".error") else "INFO")
        assert (data(row)["fault"] is not None) == (row.priority == "ERROR")
        for secret in SECRETS:
            assert secret not in json.dumps([row.payload, row.context])


def test_create_has_start_and_end_with_novas_values(world: Live) -> None:
    key = objects.KeyPair(name="k", user_id="u1", public_key="ssh-rsa A", fingerprint="f")
    world.db.write(keypairs.create, world.conf, world.context(), key)
    uuid, host, _ = world.built(
        key_name="k",
        tags=["t"],
        metadata={"m": "v"},
        user_data=SECRETS[1],
        admin_password=SECRETS[0],
        injected_files={"/f": SECRETS[2]},
        description="d",
    )
    start, end = rows(world.db)
    assert (start.event_type, end.event_type) == ("instance.create.start", "instance.create.end")
    assert (start.publisher_id, end.publisher_id) == ("nova-conductor:conductor1", f"nova-compute:{host}")
    begun, built = data(start), data(end)
    assert (begun["state"], begun["task_state"], begun["power_state"]) == ("building", "scheduling", "pending")
    assert (begun["host"], begun["launched_at"], begun["ip_addresses"]) == (None, None, [])
    assert (built["state"], built["task_state"], built["power_state"]) == ("active", None, "running")
    assert (built["uuid"], built["host"], built["tenant_id"], built["user_id"]) == (uuid, host, "p1", "u1")
    assert (built["metadata"], built["tags"], built["display_description"]) == ({"m": "v"}, ["t"], "d")
    assert built["instance_name"] == f"instance-{uuid}"
    assert built["auto_disk_config"] == "MANUAL"
    assert built["created_at"].endswith("Z") and "." not in built["created_at"]
    assert built["keypairs"][0]["nova_object.data"] == {
        "user_id": "u1",
        "name": "k",
        "fingerprint": "f",
        "public_key": "ssh-rsa A",
        "type": "ssh",
    }
    (ip,) = built["ip_addresses"]
    address = world.instance(uuid).vifs[0].address
    assert (ip["nova_object.data"]["address"], ip["nova_object.data"]["version"]) == (address, 4)
    assert ip["nova_object.data"]["label"] == "private"
    flavor = built["flavor"]["nova_object.data"]
    assert (flavor["flavorid"], flavor["memory_mb"], flavor["vcpus"]) == ("1", 256, 1)
    assert start.context == {"request_id": begun["request_id"], "user_id": "u1", "project_id": "p1"}
    assert start.message_id != end.message_id
    check_all(world.db)


def test_create_that_finds_no_host_has_an_error(world: Live) -> None:
    world.scheduler.hosts = []
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    assert types(world.db) == ["create.start", "create.error"]
    failure = data(rows(world.db)[1])
    assert failure["state"] == "error"
    assert failure["fault"]["nova_object.data"]["exception"] == "NoValidHost"
    assert "failed RetryFilter" in failure["fault"]["nova_object.data"]["exception_message"]
    assert failure["fault"]["nova_object.data"]["traceback"] == ""
    check_all(world.db)


def test_build_that_fails_on_its_host_has_one_error(world: Live) -> None:
    (uuid,) = world.create()
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    world.report(uuid, host, request.generation, BuildOutcome.ABORTED, "the image is bad")
    assert types(world.db) == ["create.start", "create.error"]
    assert data(rows(world.db)[1])["fault"]["nova_object.data"]["exception_message"] == "the image is bad"


@pytest.mark.parametrize(
    ("kind", "name", "task", "power_state", "state"),
    [
        ("stop", "power_off", "powering-off", SHUTDOWN, "stopped"),
        ("pause", "pause", "pausing", 3, "paused"),
        ("suspend", "suspend", "suspending", 7, "suspended"),
        ("reboot", "reboot", "rebooting", RUNNING, "active"),
    ],
)
def test_operation_of_a_host_has_start_and_end(
    world: Live, kind: str, name: str, task: str, power_state: int, state: str
) -> None:
    world.act(kind)
    world.answer(power_state)
    start, end = rows(world.db)
    assert types(world.db) == [f"{name}.start", f"{name}.end"]
    assert (data(start)["task_state"], data(end)["task_state"], data(end)["state"]) == (task, None, state)
    assert {start.publisher_id, end.publisher_id} == {"nova-compute:host1"}
    check_all(world.db)


def test_operation_that_fails_has_an_error_in_place_of_the_end(world: Live) -> None:
    world.act("pause")
    world.answer(RUNNING, error="the guest hangs")
    assert types(world.db) == ["pause.start", "pause.error"]
    fault = data(rows(world.db)[1])["fault"]["nova_object.data"]
    assert (fault["exception"], fault["exception_message"]) == ("OperationFailed", "the guest hangs")
    check_all(world.db)


def test_operation_that_a_delete_supersedes_has_an_error(world: Live) -> None:
    world.act("pause")
    world.act("delete")
    world.answer()
    assert types(world.db) == ["pause.start", "pause.error", "delete.start", "delete.end"]
    ended = data(rows(world.db)[3])
    assert (ended["state"], ended["ip_addresses"], ended["power_state"]) == ("deleted", [], "pending")
    assert ended["deleted_at"] == ended["terminated_at"] is not None
    check_all(world.db)


def test_delete_ends_for_others_when_it_ends_for_the_owner(world: Live) -> None:
    """The action stays open until the host is back, and has no second end then."""
    world.silence("host1")
    world.act("delete")
    assert types(world.db) == ["delete.start", "delete.end"]
    assert world.open_actions() == [("delete", "cleanup")]
    world.is_heard("host1")
    world.swept()
    world.answer()
    assert world.open_actions() == []
    assert types(world.db) == ["delete.start", "delete.end"]


def test_delete_of_a_server_without_a_host_has_start_and_end(world: Live) -> None:
    (uuid,) = world.create()
    world.lifecycle.accept_action(world.context(), uuid, "delete", {})
    assert types(world.db) == ["create.start", "create.error", "delete.start", "delete.end"]
    assert rows(world.db)[-1].publisher_id == "nova-conductor:conductor1"


def test_soft_delete_and_restore_have_novas_names(world: Live) -> None:
    world.act("delete", soft=True)
    world.answer(SHUTDOWN)
    world.act("restore")
    world.answer(RUNNING)
    assert types(world.db) == ["soft_delete.start", "soft_delete.end", "restore.start", "restore.end"]
    check_all(world.db)


def test_resize_has_the_events_of_its_steps_and_their_hosts(world: Live) -> None:
    world.resized()
    world.act("confirmResize")
    world.answer()
    assert types(world.db) == [
        "resize_prep.start",
        "resize_prep.end",
        "resize.start",
        "resize.end",
        "resize_finish.start",
        "resize_finish.end",
        "resize_confirm.start",
        "resize_confirm.end",
    ]
    found = {row.event_type: row for row in rows(world.db)}
    assert found["instance.resize.start"].publisher_id == "nova-compute:host1"
    assert found["instance.resize_finish.end"].publisher_id == "nova-compute:host2"
    new = data(found["instance.resize_prep.start"])["new_flavor"]["nova_object.data"]
    assert (new["flavorid"], new["vcpus"]) == ("2", 2)
    assert data(found["instance.resize_finish.end"])["flavor"]["nova_object.data"]["flavorid"] == "2"
    check_all(world.db)


def test_resize_that_fails_has_an_error(world: Live) -> None:
    world.act("resize", flavor_id="2")
    world.answer(RUNNING, error="no space")
    assert types(world.db)[-1] == "resize.error"
    check_all(world.db)


def test_revert_of_a_resize_has_start_and_end(world: Live) -> None:
    world.resized()
    world.act("revertResize")
    world.answer()
    world.answer(RUNNING)
    assert types(world.db)[-2:] == ["resize_revert.start", "resize_revert.end"]


def test_live_migration_has_the_events_of_both_hosts(world: Live) -> None:
    world.prepared()
    world.answer(RUNNING)
    world.answer()
    world.answer()
    assert [(row.event_type, row.publisher_id) for row in rows(world.db)] == [
        ("instance.live_migration_pre.start", "nova-compute:host2"),
        ("instance.live_migration_pre.end", "nova-compute:host2"),
        ("instance.live_migration_post_dest.start", "nova-compute:host2"),
        ("instance.live_migration_post_dest.end", "nova-compute:host2"),
        ("instance.live_migration_post.start", "nova-compute:host1"),
        ("instance.live_migration_post.end", "nova-compute:host1"),
    ]
    check_all(world.db)


def test_live_migration_that_fails_has_a_rollback(world: Live) -> None:
    world.act("live-migration", host=None)
    world.answer(RUNNING, answer=SOURCE)
    world.answer(answer=READY)
    world.answer(RUNNING, error="the network broke")
    world.asked()
    world.dropped()
    assert types(world.db) == [
        "live_migration_pre.start",
        "live_migration_pre.end",
        "live_migration_rollback.start",
        "live_migration_rollback_dest.start",
        "live_migration_rollback_dest.end",
        "live_migration_rollback.end",
    ]
    check_all(world.db)


def test_evacuation_and_rebuild_have_their_first_event_and_novas_rebuild(world: Live) -> None:
    world.silence("host1")
    server_moves.force_down(world, "host1")
    server_moves.evacuate(world, world.uuid)
    world.lifecycle.build_instances(world.context(), [world.uuid])
    host, request = world.compute.builds[-1]
    world.report(world.uuid, host, request.generation, BuildOutcome.BUILT)
    assert [(row.event_type, row.publisher_id) for row in rows(world.db)] == [
        ("instance.evacuate", "nova-api:conductor1"),
        ("instance.rebuild.start", "nova-conductor:conductor1"),
        ("instance.rebuild.end", "nova-compute:host2"),
    ]
    check_all(world.db)


def test_rebuild_is_announced_and_has_no_secrets(world: Live) -> None:
    world.db.write(images.create, objects.Image(id="i", name="image"))
    payload = {"image_ref": "i", "changes": {"user_data": SECRETS[1]}, "admin_password": SECRETS[0]}
    world.act("rebuild", images={}, injected_files={"/f": SECRETS[2]}, **payload)
    assert types(world.db) == ["rebuild_scheduled", "rebuild.start"]
    assert data(rows(world.db)[1])["image_uuid"] == "i"
    check_all(world.db)


def test_rescue_names_its_image_and_has_no_secrets(world: Live) -> None:
    world.db.write(images.create, objects.Image(id="i", name="image"))
    world.act("rescue", image_ref="i", images={}, admin_password=SECRETS[0])
    world.answer(RUNNING)
    world.act("unrescue")
    world.answer(RUNNING)
    assert types(world.db) == ["rescue.start", "rescue.end", "unrescue.start", "unrescue.end"]
    assert [data(row)["rescue_image_ref"] for row in rows(world.db)[:2]] == ["i", "i"]
    check_all(world.db)


def test_snapshot_names_its_image(world: Live) -> None:
    image = {"id": "33333333-3333-4333-8333-333333333333", "name": "s", "owner": "p1", "status": "queued"}
    world.act("createImage", image=image)
    assert types(world.db) == ["snapshot.start"]
    assert data(rows(world.db)[0])["snapshot_image_id"] == image["id"]
    check_all(world.db)


def test_lock_and_unlock_have_one_event_without_a_phase(world: Live) -> None:
    world.act("lock", reason="repair")
    world.act("unlock", may_override=True)
    locked, unlocked = rows(world.db)
    assert types(world.db) == ["lock", "unlock"]
    assert locked.publisher_id == "nova-api:host1"
    assert (data(locked)["locked"], data(locked)["locked_reason"]) == (True, "repair")
    assert (data(unlocked)["locked"], data(unlocked)["locked_reason"]) == (False, None)
    assert data(locked)["action_initiator_user"] == "u1"
    check_all(world.db)


def test_interfaces_have_start_and_end(world: Live) -> None:
    command = attach(world, world.uuid, network_id="11111111-1111-4111-8111-111111111111")
    report(world, command)
    (port, *_) = command.instance.vifs
    report(world, detach(world, world.uuid, port.id))
    assert types(world.db) == [
        "interface_attach.start",
        "interface_attach.end",
        "interface_detach.start",
        "interface_detach.end",
    ]
    assert [len(data(row)["ip_addresses"]) for row in rows(world.db)] == [2, 2, 2, 1]
    check_all(world.db)


def test_volumes_have_start_and_end_and_are_listed(tmp_path: Path) -> None:
    world = Volumes(tmp_path)
    turn_on(world.db)
    volume_id = world.make()
    world.finish(world.attach(volume_id))
    world.finish(world.detach(volume_id))
    assert types(world.db) == [
        "volume_attach.start",
        "volume_attach.end",
        "volume_detach.start",
        "volume_detach.end",
    ]
    assert {data(row)["volume_id"] for row in rows(world.db)} == {volume_id}
    attached, detached = data(rows(world.db)[1])["block_devices"], data(rows(world.db)[3])["block_devices"]
    assert [device["nova_object.data"]["volume_id"] for device in attached] == [volume_id]
    assert detached == []
    check_all(world.db)
    assert types(world.db, "unversioned") == ["volume.attach", "volume.detach"]


#: The part of an action's payload that each class of notification shows.
SHOWN: dict[Payload, dict[str, Any]] = {
    Payload.RESCUE: {"image": {"id": "i"}},
    Payload.RESIZE_PREP: {"flavor": {"flavorid": "2", "name": "m2", "vcpus": 2, "memory_mb": 512, "root_gb": 2}},
    Payload.SNAPSHOT: {"image_id": "i"},
    Payload.SHARE: {"share_id": "s"},
    Payload.VOLUME: {"volume_id": "old"},
    Payload.VOLUME_SWAP: {"volume_id": "old", "new_volume_id": "new"},
}


@pytest.mark.parametrize("kind", Payload)
@pytest.mark.parametrize("phase", Phase)
def test_payload_has_the_keys_of_novas_class(world: Live, kind: Payload, phase: Phase) -> None:
    secrets = {"admin_password": SECRETS[0], "injected_files": {"/f": SECRETS[2]}}
    action = models.InstanceAction(action="pause", payload={**secrets, **SHOWN.get(kind, {})}, request_id="req-1")
    change = ActionChange(action, Change.OPENED, "host1", None, "a cause")
    instance = world.instance(world.uuid)
    instance.user_data = SECRETS[1]
    mapping = ShareMapping(uuid="m", share_id="s", tag="t", location="nfs/t", state=ShareState.ATTACHED)
    instance.shares = [mapping]
    payload = payloads.payload_of(Event(Notification("x", kind), phase, change), instance, None)
    assert checked(payload)["nova_object.name"] == kind.value
    assert not any(secret in json.dumps(payload) for secret in SECRETS)


def test_swap_of_a_volume_names_both(world: Live) -> None:
    action = models.InstanceAction(action="swap_volume", payload=SHOWN[Payload.VOLUME_SWAP], request_id="req-1")
    (start,) = events_of(ActionChange(action, Change.OPENED, "host1"))
    payload = payloads.payload_of(start, world.instance(world.uuid), None)["nova_object.data"]
    assert start.event_type == "instance.volume_swap.start"
    assert (payload["old_volume_id"], payload["new_volume_id"]) == ("old", "new")


def test_request_that_is_refused_or_repeated_has_no_event(world: Live) -> None:
    context = world.context("req-1", admin=True)
    for _ in range(2):
        world.lifecycle.accept_action(context, world.uuid, "pause", {})
    with pytest.raises(Exception, match="pausing"):
        world.act("stop")
    assert types(world.db) == ["pause.start"]


def test_notifications_that_are_off_write_no_row(tmp_path: Path) -> None:
    world = Live(tmp_path)
    Notifications(world.db, world.conf, TIMING.conductor, [])
    collected: list[Any] = []
    world.db.subscribe(lambda uow: collected.extend(uow.published(ActionChange)), always=True)
    world.act("pause")
    assert collected == []
    assert world.count(models.Notification) == 0


def test_payload_that_cannot_be_made_does_not_stop_its_operation(
    world: Live, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: Any) -> dict[str, Any]:
        raise ValueError("a corrupt row")

    monkeypatch.setattr("nova_lite.conductor.notifications.payloads.payload_of", broken)
    world.act("pause")
    world.answer(3)
    assert world.state[0] == "paused"
    assert types(world.db) == []
    assert "No notification instance.pause.start" in caplog.text


def test_notifications_of_one_transaction_need_three_statements(world: Live) -> None:
    """The instance, its parts, and one insert."""
    recorder = Recorder("c", CHANNELS)
    seen: list[str] = []

    def pause(uow: UnitOfWork) -> None:
        world.engine.acceptor.accept_in(uow, world.context(), world.uuid, "pause", {})
        uow.session.flush()
        sa.event.listen(world.db.engine, "before_cursor_execute", lambda *args: seen.append(args[2]))
        assert recorder.record(uow)

    world.db.subscriptions = []
    world.db.write(pause)
    assert len(seen) == 3


def test_unversioned_events_have_novas_older_names_and_publishers(world: Live) -> None:
    world.resized()
    world.act("lock")
    world.act("delete")
    assert types(world.db, "unversioned") == [
        "resize.prep.start",
        "resize.prep.end",
        "resize.start",
        "resize.end",
        "finish_resize.start",
        "finish_resize.end",
        "delete.start",
    ]
    start = rows(world.db, "unversioned")[2]
    assert start.publisher_id == "compute.host1"
    assert start.payload["instance_id"] == world.uuid
    assert (start.payload["instance_type"], start.payload["memory_mb"], start.payload["vcpus"]) == ("m1", 256, 1)
    assert (start.payload["state"], start.payload["state_description"]) == ("active", "resize_migrating")
    assert [ip["label"] for ip in start.payload["fixed_ips"]] == ["private"]
    assert start.payload["deleted_at"] == start.payload["terminated_at"] == ""


def test_unversioned_failure_has_its_message(world: Live) -> None:
    world.act("pause")
    world.answer(RUNNING, error="the guest hangs")
    failure = rows(world.db, "unversioned")[-1]
    assert (failure.event_type, failure.priority) == ("compute.instance.pause.error", "ERROR")
    assert failure.payload["message"] == "the guest hangs"


def test_both_formats_of_an_event_are_different_messages(world: Live) -> None:
    world.act("pause")
    (versioned,), (unversioned,) = rows(world.db), rows(world.db, "unversioned")
    assert versioned.message_id != unversioned.message_id


def test_outbox_rows_are_counted_by_channel(world: Live) -> None:
    world.act("pause")
    assert world.db.read(outbox.count) == {"versioned": 1, "unversioned": 1}
