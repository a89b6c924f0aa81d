"""Cinder's volumes in the conductor.

Whatever Cinder does, a volume belongs to at most one server, and nothing is left.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import ConductorTiming
from nova_lite.compute.user_volumes import UserVolumes
from nova_lite.conductor.volume import cinder as driving
from nova_lite.conductor.volume.cinder import CinderWorker
from nova_lite.conductor.volume.cinder_endpoints import CinderEndpoints
from nova_lite.conf import cinder as options
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import CinderWorkDue
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import block_devices
from nova_lite.db.volume import cinder as cinder_rows
from nova_lite.objects import ActionReport, BlockDevice, BuildOutcome, DeviceState, VolumeConnection, VolumeVerb
from nova_lite.objects.block_device import DeviceSource
from nova_lite.operations import states
from nova_lite.volume.cinder_client import MADE_FOR, CinderClient
from tests.support import cinder as fake
from tests.support.conductor_world import World

#: Failures of Cinder: at once, or after the time that the conductor waits.
QUICK, SLOW = (fake.ERROR_AFTER, fake.ERROR_BEFORE, fake.CUT), (fake.LATE, fake.DONE_LATE)
RESERVE, CONNECT = ("POST", "/attachments$"), ("PUT", "/attachments/")
CALLS = (RESERVE, CONNECT, ("GET", "/attachments"), ("POST", "/action$"), ("DELETE", "/attachments/"))


class Cloud(World):
    """A world with an ACTIVE server ``uuid`` on ``host``.

    ``worker``: processes the rows of Cinder's volumes. ``rpc``: the RPC methods about them. ``users``: Cinder as the
    API calls it.
    """

    def __init__(self, path: Path, cinder: fake.Cinder) -> None:
        super().__init__(path)
        self.cinder = cinder
        conf = self.conf
        options.register_opts(conf)
        conf.set_override("backend", "cinder", "volume")
        path.joinpath("cinder.conf").write_text(cinder.options(timeout=0.4))
        conf(["--config-file", str(path / "cinder.conf")])
        conf.set_override("connection", f"sqlite:///{path}/db.sqlite", "database")
        self.client = CinderClient(conf)
        self.engine.service_calls.snapshots = self.client
        timing = ConductorTiming(volume_lease_wait=0.0)
        self.worker = self.reconciler.cinder = CinderWorker(self.engine, self.client, timing)
        self.rpc = CinderEndpoints(self.engine, self.client, self.worker)
        self.users = UserVolumes(self.client, self.rpc)  # type: ignore[arg-type]
        self.db.subscribe(self.worker.announce, CinderWorkDue)
        self.uuid, self.host, self.generation = self.built()

    def user(self, project: str = "p1") -> RequestContext:
        context = self.context(project=project)
        context.auth_token = f"u1:{project}"
        return context

    def accept(self, volume_id: str, server: str = "", project: str = "p1") -> objects.ActionCommand:
        """Accept an attach after a look at the volume with the user's token, as the API does."""
        context = self.user(project)
        volume = self.users.attachable(context, volume_id)
        return self.accept_of(context, objects.Volume(**_fields(volume)), server or self.uuid)

    def accept_of(self, context: RequestContext, volume: objects.Volume, server: str) -> objects.ActionCommand:
        payload = {
            "volume_id": volume.id,
            "attachment_id": str(uuid.uuid4()),
            "tag": None,
            "delete_on_termination": False,
            "volume": _fields(volume),
            "multiattach": True,
        }
        return self.lifecycle.accept_action(context, server, "attach_volume", payload)

    def connect(self, device_uuid: str, host: str = "", server: str = "") -> VolumeConnection:
        connector = {"host": "whatever a host says"}
        return self.rpc.volume_connect(self.context(), host or self.host, server or self.uuid, device_uuid, connector)

    def finish(self, command: objects.ActionCommand, error: str | None = None) -> None:
        self.reports.finish_action(
            self.context(),
            ActionReport(host=str(command.host), action_id=command.action_id, power_state=1, error=error),
        )

    def attached(self, **values: Any) -> str:
        volume_id = self.cinder.volume(**values)
        command = self.accept(volume_id)
        self.connect(command.payload["device"])
        self.finish(command)
        assert self.cinder.held(volume_id) == [(self.uuid, "attached", self.host)]
        return volume_id

    def detach(self, volume_id: str) -> None:
        command = self.lifecycle.accept_action(self.context(), self.uuid, "detach_volume", {"volume_id": volume_id})
        self.finish(command)

    def delete(self, server: str = "") -> None:
        server = server or self.uuid
        command = self.lifecycle.accept_action(self.context(), server, "delete", {})
        if command.host is not None:
            self.finish(command)

    def devices(self, server: str = "") -> list[BlockDevice]:
        return self.instance(server or self.uuid).block_devices

    def rows(self) -> int:
        return self.count(models.CinderAttachment)

    def later(self, seconds: float = 60) -> None:
        """Let time pass and process what is due, several times, because one change may make another one due."""
        step = datetime.timedelta(seconds=seconds)

        def shift(uow: UnitOfWork) -> None:
            for row in uow.session.scalars(sa.select(models.CinderAttachment)):
                for name in ("due_at", "unsure_until", "deadline"):
                    if getattr(row, name) is not None:
                        setattr(row, name, getattr(row, name) - step)

        for _ in range(3):
            self.db.write(shift)
            self.reconciler.sweep()

    def is_settled(self) -> bool:
        query = sa.select(models.CinderAttachment.id).where(models.CinderAttachment.due_at.is_not(None))
        return not self.db.read(lambda uow: list(uow.session.scalars(query)))


def _fields(volume: objects.Volume) -> dict[str, Any]:
    return {"id": volume.id, "project_id": volume.project_id, "size": volume.size, "status": volume.status} | {
        "bootable": volume.bootable,
        "multiattach": volume.multiattach,
    }


@pytest.fixture
def cinder() -> Iterator[fake.Cinder]:
    made = fake.Cinder()
    made.seconds = 1.0
    yield made
    made.stop()


@pytest.fixture
def world(tmp_path: Path, cinder: fake.Cinder) -> Cloud:
    return Cloud(tmp_path, cinder)


# --- attach and detach


def test_volume_is_reserved_connected_attached_and_released(world: Cloud) -> None:
    volume_id = world.cinder.volume()
    command = world.accept(volume_id)
    assert world.cinder.held(volume_id) == [(world.uuid, "reserved", None)]
    device = command.payload["device"]
    connection = world.connect(device)
    assert (connection.volume_id, connection.size) == (volume_id, 1)
    assert connection.info["driver_volume_type"] == "rbd"
    assert world.cinder.held(volume_id) == [(world.uuid, "attaching", world.host)]
    assert world.connect(device).info == connection.info
    assert world.cinder.count("PUT", "/attachments/") == 1, "what is connected is not connected again"
    world.finish(command)
    assert world.cinder.held(volume_id) == [(world.uuid, "attached", world.host)]
    (shown,) = world.devices()
    assert shown.attachment_id in world.cinder.attachments
    assert world.is_settled()

    world.detach(volume_id)
    assert world.cinder.held(volume_id) == []
    assert (world.devices(), world.rows()) == ([], 0)
    assert world.cinder.volumes[volume_id]["status"] == "available"


def test_cinder_calls_carry_the_users_or_a_service_token(world: Cloud) -> None:
    """Cinder deletes a server's attachments only for a service."""
    world.detach(world.attached())
    assert {served for _, path, served in world.cinder.asked if "attachments" in path} == {True}


def test_volume_requested_by_two_servers_goes_to_one(world: Cloud) -> None:
    volume_id = world.cinder.volume()
    other, _, _ = world.built()
    context = world.user()
    seen = world.users.attachable(context, volume_id)
    world.accept_of(context, seen, world.uuid)
    with pytest.raises(exceptions.InvalidVolume, match="must be 'available'"):
        world.accept_of(world.user(), seen, other)
    assert world.cinder.held(volume_id) == [(world.uuid, "reserved", None)]


def test_volume_reserved_by_another_server_meanwhile_is_not_attached(world: Cloud) -> None:
    volume_id = world.cinder.volume()
    seen = world.users.attachable(world.user(), volume_id)
    world.client.reserve(volume_id, "another cloud's server")
    command = world.accept_of(world.user(), seen, world.uuid)
    with pytest.raises(exceptions.VolumeNotCreated, match="must be available"):
        world.connect(command.payload["device"])
    world.finish(command, "The volume is not to be had.")
    assert world.cinder.held(volume_id) == [("another cloud's server", "reserved", None)]
    assert (world.devices(), world.rows()) == ([], 0)


def test_a_volume_of_another_project_is_not_there(world: Cloud) -> None:
    volume_id = world.cinder.volume(project="p2")
    with pytest.raises(exceptions.VolumeNotFound):
        world.accept(volume_id)
    theirs = objects.Volume(id=volume_id, project_id="p2", size=1, status="available")
    with pytest.raises(exceptions.VolumeNotFound):
        world.accept_of(world.user(), theirs, world.uuid)
    assert world.cinder.held(volume_id) == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"status": "in-use"}, "status must be 'available'. Currently in 'in-use'"),
        ({"status": "reserved", "multiattach": True}, "must be 'available or in-use'. Currently in 'reserved'"),
        ({"status": "error"}, "Currently in 'error'"),
        ({"encrypted": True}, "encrypted, which is not supported"),
    ],
)
def test_volume_that_cannot_be_attached_is_refused(world: Cloud, values: dict[str, Any], told: str) -> None:
    volume_id = world.cinder.volume(**values)
    with pytest.raises(exceptions.InvalidVolume, match=told):
        world.accept(volume_id)
    assert (world.cinder.held(volume_id), world.rows()) == ([], 0)


def test_volume_with_multiattach_is_attached_to_two_servers(world: Cloud) -> None:
    volume_id = world.attached(multiattach=True, metadata={"readonly": "True"})
    other, host, _ = world.built()
    command = world.accept(volume_id, other)
    connection = world.connect(command.payload["device"], host, other)
    assert (connection.multiattach, connection.read_only) == (True, True)
    assert world.cinder.held(volume_id) == sorted([(world.uuid, "attached", world.host), (other, "attaching", host)])
    world.finish(command)
    assert {status for _, status, _ in world.cinder.held(volume_id)} == {"attached"}
    assert {device.multiattach for server in (world.uuid, other) for device in world.devices(server)} == {True}
    with pytest.raises(exceptions.InvalidVolume, match="already attached"):
        world.accept(volume_id, other)
    with pytest.raises(exceptions.VolumeBDMIsMultiAttach):
        world.db.read(cinder_rows.place_of, volume_id)
    world.detach(volume_id)
    assert world.cinder.held(volume_id) == [(other, "attached", host)]
    found = world.db.read(cinder_rows.place_of, volume_id)
    assert found is not None and found[0] == other


def test_volume_of_another_server_stays_when_a_server_that_would_delete_it_goes(world: Cloud) -> None:
    volume_id = world.attached(multiattach=True)
    other, host, _ = world.built()
    command = world.accept(volume_id, other)
    world.connect(command.payload["device"], host, other)
    world.finish(command)
    world.db.write(_delete_with, world.uuid)
    world.delete()
    world.later()
    assert world.cinder.held(volume_id) == [(other, "attached", host)]
    assert (world.rows(), world.is_settled()) == (1, True), "the deletion is not tried again"
    world.delete(other)
    world.later()
    assert world.cinder.volumes[volume_id]["status"] == "available"


def _delete_with(uow: UnitOfWork, server: str) -> None:
    """Let the volume go with its server."""
    row = instances.lock(uow, server)
    assert row is not None
    (device,) = block_devices.of(row)
    device.delete_on_termination = True
    block_devices.keep(row, [device])


def test_host_gets_only_its_own_connections(world: Cloud) -> None:
    volume_id = world.cinder.volume()
    device = world.accept(volume_id).payload["device"]
    elsewhere = "host1" if world.host == "host2" else "host2"
    other, _, _ = world.built()
    for host, server in ((elsewhere, world.uuid), (world.host, other)):
        with pytest.raises(exceptions.VolumeBDMNotFound):
            world.connect(device, host, server)
    assert world.cinder.held(volume_id) == [(world.uuid, "reserved", None)]


def test_failed_attachment_leaves_nothing(world: Cloud) -> None:
    volume_id = world.cinder.volume()
    command = world.accept(volume_id)
    world.connect(command.payload["device"])
    world.finish(command, "The guest does not want it.")
    assert world.cinder.held(volume_id) == []
    assert (world.devices(), world.rows()) == ([], 0)


def test_logs_never_contain_the_secret(world: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    volume_id = world.cinder.volume()
    command = world.accept(volume_id)
    world.cinder.troubles.append(("PUT", "/attachments/", fake.ERROR_AFTER))
    with pytest.raises(exceptions.VolumeServiceUnavailable):
        world.connect(command.payload["device"])
    connection = world.connect(command.payload["device"])
    assert connection.info["keyring"] == fake.SECRET
    assert fake.SECRET not in repr(connection)
    assert fake.SECRET not in caplog.text
    assert fake.SERVICE not in caplog.text


# --- failures of Cinder


@pytest.mark.parametrize(
    ("call", "trouble"),
    [*itertools.product(CALLS, QUICK), *itertools.product((RESERVE, CONNECT), SLOW)],
)
def test_failing_cinder_leaves_no_second_attachment(world: Cloud, call: tuple[str, str], trouble: str) -> None:
    """Cinder fails once, at each of its calls."""
    method, path = call
    volume_id = world.cinder.volume()
    world.cinder.troubles.append((method, path, trouble))
    command = world.accept(volume_id)
    for _ in range(4):
        try:
            world.connect(command.payload["device"])
            break
        except exceptions.ServiceUnavailable:
            world.cinder.wait_idle()
            world.later(15)
    world.finish(command)
    world.cinder.wait_idle()
    world.later(15)
    assert world.cinder.held(volume_id) == [(world.uuid, "attached", world.host)]
    world.detach(volume_id)
    world.later(15)
    assert world.cinder.troubles == [], "it did fail"
    assert (world.cinder.held(volume_id), world.rows()) == ([], 0)
    assert world.cinder.volumes[volume_id]["status"] == "available"


@pytest.mark.parametrize("trouble", [*QUICK, *SLOW])
def test_a_reservation_whose_answer_was_lost_does_not_outlive_the_server(world: Cloud, trouble: str) -> None:
    """Even a reservation that Cinder makes after the server was deleted."""
    volume_id = world.cinder.volume()
    world.cinder.troubles.append(("POST", "/attachments$", trouble))
    asked = time.monotonic()
    world.accept(volume_id)
    world.delete()
    rows = world.rows()
    if trouble == fake.DONE_LATE and time.monotonic() - asked < world.cinder.seconds:
        assert rows == 1, "it may still come"
    world.cinder.wait_idle()
    world.later()
    assert (world.cinder.held(volume_id), world.rows()) == ([], 0)


def test_unavailable_cinder_is_called_again_when_it_is_back(world: Cloud) -> None:
    volume_id = world.attached()
    world.cinder.stop()
    with pytest.raises(exceptions.VolumeServiceUnavailable):
        world.accept(world.cinder.volume())
    world.detach(volume_id)
    assert world.devices() == []
    world.later()
    assert world.rows() == 1
    world.cinder.start()
    world.later()
    assert (world.cinder.held(volume_id), world.rows()) == ([], 0)


def test_lease_of_a_dead_conductor_is_taken_over(world: Cloud) -> None:
    volume_id = world.cinder.volume()
    world.db.subscriptions = []  # it dies after the commit
    command = world.accept(volume_id)
    device = command.payload["device"]
    assert world.db.write(world.worker._take, device) is not None
    world.client.reserve(volume_id, world.uuid)  # and another one after this
    with pytest.raises(exceptions.VolumeNotReady):
        world.connect(device)
    world.later()
    assert world.connect(device).volume_id == volume_id
    assert world.cinder.held(volume_id) == [(world.uuid, "attaching", world.host)]


def accepted_unprocessed(world: Cloud, volume_id: str) -> objects.ActionCommand:
    """Accept the attachment of a volume, and let no conductor begin it yet."""
    subscriptions, world.db.subscriptions = world.db.subscriptions, []
    command = world.accept(volume_id)
    world.db.subscriptions = subscriptions
    return command


@pytest.mark.parametrize(("is_attached", "is_answered"), [(True, True), (True, False), (False, True)])
def test_late_reservation_of_a_paused_conductor_is_deleted(
    world: Cloud, monkeypatch: pytest.MonkeyPatch, is_attached: bool, is_answered: bool
) -> None:
    """Another conductor has taken its row over, and has attached or released the volume."""
    volume_id = world.cinder.volume()
    command = accepted_unprocessed(world, volume_id)
    real = world.client.reserve

    def late(*asked: Any) -> Any:
        monkeypatch.setattr(world.client, "reserve", real)
        world.later()
        if is_attached:
            world.connect(command.payload["device"])
        world.finish(command, None if is_attached else "its guest does not take it")
        world.later()
        assert (len(world.cinder.held(volume_id)), world.is_settled()) == (int(is_attached), True)
        if not is_answered:
            world.cinder.troubles.append((*RESERVE, fake.ERROR_AFTER))
        return real(*asked)

    monkeypatch.setattr(world.client, "reserve", late)
    with contextlib.suppress(exceptions.VolumeServiceUnavailable):
        world.worker.process(command.payload["device"])
    world.later()
    held = [(world.uuid, "attached", world.host)] if is_attached else []
    assert (world.cinder.held(volume_id), world.rows(), world.is_settled()) == (held, len(held), True)


def test_late_reservation_that_cannot_be_deleted_fails_nothing(
    world: Cloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    volume_id = world.cinder.volume()
    command = accepted_unprocessed(world, volume_id)
    real = world.client.reserve

    def late(*asked: Any) -> Any:
        monkeypatch.setattr(world.client, "reserve", real)
        world.later()
        world.finish(command, "its guest does not take it")
        world.later()
        world.cinder.troubles.append(("DELETE", "/attachments/", fake.ERROR_BEFORE))
        return real(*asked)

    monkeypatch.setattr(world.client, "reserve", late)
    world.worker.process(command.payload["device"])
    assert "is left at Cinder" in caplog.text
    assert (len(world.cinder.held(volume_id)), world.rows()) == (1, 0)


# --- servers that come with volumes


def boot(world: Cloud, *devices: BlockDevice, **values: Any) -> str:
    """Accept a create, and begin to create its volumes, as the API does."""
    context = world.user()
    request = objects.CreateRequest(
        **{"name": "vm", "flavor_id": "1", "block_devices": list(devices), **values},
        volumes=world.users.describe(context, devices),
    )
    result = world.lifecycle.create_instances(context, request)
    world.users.create(context, result.instances)
    world.lifecycle.build_instances(context, [result.instances[0].uuid])
    return result.instances[0].uuid


def device(source: DeviceSource, **values: Any) -> BlockDevice:
    return BlockDevice(uuid=str(uuid.uuid4()), source_type=source, destination_type="volume", **values)


def run(world: Cloud, server: str) -> list[str]:
    """Build the server on its host, and return the ids of its volumes."""
    host, request = world.compute.builds[-1]
    assert request.instance.uuid == server
    found = []
    for block_device in request.instance.block_devices:
        for _ in range(4):
            try:
                found.append(world.connect(block_device.uuid, host, server).volume_id)
                break
            except exceptions.ServiceUnavailable:
                world.later(3)
    world.report(server, host, request.generation, BuildOutcome.BUILT)
    return found


def test_boot_from_a_volume_and_one_of_a_snapshot_and_a_blank_one(world: Cloud) -> None:
    root = world.cinder.volume(bootable="true", volume_image_metadata={"image_id": "i", "hw_disk_bus": "virtio"})
    snapshot = world.cinder.snapshot(world.cinder.volume(size=3))
    server = boot(
        world,
        device(DeviceSource.VOLUME, volume_id=root, boot_index=0),
        device(DeviceSource.SNAPSHOT, snapshot_id=snapshot, delete_on_termination=True),
        device(DeviceSource.BLANK, volume_size=2, delete_on_termination=True),
    )
    made = [volume for volume in world.cinder.volumes.values() if MADE_FOR in volume["metadata"]]
    assert sorted((item["size"], item["os-vol-tenant-attr:tenant_id"]) for item in made) == [(2, "p1"), (3, "p1")]
    volumes = run(world, server)
    assert volumes[0] == root
    for volume_id in volumes:
        assert [item[1] for item in world.cinder.held(volume_id)] == ["attached"]
    assert [item.volume_id for item in world.devices(server)] == volumes
    world.delete(server)
    world.later()
    assert [volume_id in world.cinder.volumes for volume_id in volumes] == [True, False, False]
    assert (world.cinder.held(root), world.rows()) == ([], 0)


def test_a_volume_that_is_being_made_is_waited_for(world: Cloud) -> None:
    world.cinder.becomes = "creating"
    server = boot(world, device(DeviceSource.BLANK, volume_size=1, boot_index=0))
    (each,) = world.devices(server)
    with pytest.raises(exceptions.VolumeNotReady):
        world.connect(each.uuid, world.compute.builds[-1][0], server)
    world.cinder.volumes[str(each.volume_id)]["status"] = "available"
    world.later(3)
    assert run(world, server) == [each.volume_id]


@pytest.mark.parametrize(("status", "told"), [("creating", "creating after"), ("error", "is error")])
def test_volume_that_is_not_created_fails_the_build(world: Cloud, status: str, told: str) -> None:
    world.cinder.becomes = status
    server = boot(world, device(DeviceSource.BLANK, volume_size=1, boot_index=0))
    (each,) = world.devices(server)
    world.later(world.conf.cinder.create_timeout / 3 + 1)
    with pytest.raises(exceptions.VolumeNotCreated, match=told):
        world.connect(each.uuid, world.compute.builds[-1][0], server)
    world.cinder.volumes[str(each.volume_id)]["status"] = "error"
    world.delete(server)
    world.later()
    assert (world.rows(), each.volume_id in world.cinder.volumes) == (0, False)


def test_volume_refused_by_cinder_fails_the_build_with_the_cause(world: Cloud) -> None:
    server = boot(world, device(DeviceSource.BLANK, volume_size=101, boot_index=0))
    (each,) = world.devices(server)
    with pytest.raises(exceptions.VolumeNotCreated, match="VolumeSizeExceedsAvailableQuota"):
        world.connect(each.uuid, world.compute.builds[-1][0], server)
    world.delete(server)
    assert world.rows() == 0


@pytest.mark.parametrize("trouble", [fake.ERROR_AFTER, fake.LATE, fake.CUT])
def test_volume_whose_create_reply_was_lost_is_found(world: Cloud, trouble: str) -> None:
    world.cinder.troubles.append(("POST", "/volumes$", trouble))
    server = boot(world, device(DeviceSource.BLANK, volume_size=1, boot_index=0, delete_on_termination=True))
    (volume_id,) = run(world, server)
    assert list(world.cinder.volumes) == [volume_id]
    world.delete(server)
    world.later()
    assert (world.cinder.volumes, world.rows()) == ({}, 0)


def test_volume_that_nobody_requested_fails_the_build_in_time(world: Cloud) -> None:
    world.cinder.troubles.append(("POST", "/volumes$", fake.ERROR_BEFORE))
    server = boot(world, device(DeviceSource.BLANK, volume_size=1, boot_index=0))
    (each,) = world.devices(server)
    world.later(driving.BEGIN_TIMEOUT / 3 + 1)
    with pytest.raises(exceptions.VolumeNotCreated, match="never requested"):
        world.connect(each.uuid, world.compute.builds[-1][0], server)


def test_deleted_server_deletes_the_volumes_made_for_it(world: Cloud) -> None:
    context = world.user()
    request = objects.CreateRequest(
        name="vm", flavor_id="1", block_devices=[device(DeviceSource.BLANK, volume_size=1, boot_index=0)]
    )
    result = world.lifecycle.create_instances(context, request)
    world.delete(result.instances[0].uuid)
    world.later(driving.BEGIN_TIMEOUT)
    assert world.rows() == 0
    world.users.create(context, result.instances)
    assert world.cinder.volumes == {}


# --- moves


def test_a_build_that_goes_to_another_host_takes_its_volume_there(world: Cloud) -> None:
    root = world.cinder.volume(bootable="true")
    server = boot(world, device(DeviceSource.VOLUME, volume_id=root, boot_index=0))
    first, request = world.compute.builds[-1]
    world.connect(request.instance.block_devices[0].uuid, first, server)
    assert world.cinder.held(root) == [(server, "attaching", first)]
    world.scheduler.hosts = [item for item in ("host1", "host2") if item != first]  # type: ignore[attr-defined]
    world.report(server, first, request.generation, BuildOutcome.RESCHEDULED, "The disk is full.")
    assert world.cinder.held(root) == [(server, "reserved", None)], "nobody's host, and nobody else's volume"


def test_an_evacuated_server_has_its_volume_at_its_new_host_alone(world: Cloud) -> None:
    volume_id = world.attached()
    old = world.host
    new = "host1" if old == "host2" else "host2"
    (each,) = world.devices()

    def moved(uow: UnitOfWork) -> None:
        instance = instances.lock(uow, world.uuid)
        assert instance is not None
        instance.task_state = states.REBUILDING
        place = claims.take(uow, instance, objects.Selection(host=new, node=new), claims.needs(_flavor(instance)))
        assert place is not None
        claims.move(instance, place)

    world.db.write(moved)
    connection = world.connect(each.uuid, new)
    assert connection.volume_id == volume_id
    assert sorted(world.cinder.held(volume_id)) == sorted(
        [(world.uuid, "attached", old), (world.uuid, "attaching", new)]
    )

    def released(uow: UnitOfWork) -> None:
        instance = instances.lock(uow, world.uuid)
        assert instance is not None
        instance.task_state = None
        claims.release(uow, world.uuid, claims.HeldHost(old, world.generation))

    world.db.write(released)
    assert world.cinder.held(volume_id) == [(world.uuid, "attached", new)]
    assert world.devices()[0].attachment_id in world.cinder.attachments


def _flavor(instance: models.Instance) -> objects.Flavor:
    return objects.Flavor(**instance.flavor)


# --- extend


def test_extended_volume_is_reported_to_the_guest(world: Cloud) -> None:
    volume_id = world.attached()
    world.cinder.volumes[volume_id]["size"] = 5
    world.rpc.volume_extended(world.context(), world.uuid, volume_id)
    assert world.devices()[0].volume_size == 5
    works: list[tuple[str, objects.VolumeWork]] = []
    world.compute.volume_work = lambda context, host, work: works.append((host, work))  # type: ignore[attr-defined]
    world.reconciler.sweep()
    [(host, work)] = works
    assert (host, work.verb, work.size, work.instance_uuid) == (world.host, VolumeVerb.EXTEND, 5, world.uuid)
    world.reconciler.volumes.finish(host, work.id, None)
    assert world.count(models.VolumeTask) == 0
    with pytest.raises(exceptions.VolumeBDMNotFound):
        world.rpc.volume_extended(world.context(), world.uuid, world.cinder.volume())


def test_devices_show_the_state_of_their_volumes(world: Cloud) -> None:
    volume_id = world.attached()
    assert [(item.volume_id, item.state) for item in world.devices()] == [(volume_id, DeviceState.ATTACHED)]


# --- work on the files of volumes

NEW_FILE = "volume-x.new"


def in_file(world: Cloud) -> str:
    world.cinder.transport = "nfs"
    try:
        return world.attached()
    finally:
        world.cinder.transport = "rbd"


def snapshot(world: Cloud, volume_id: str, snapshot_id: str, **values: Any) -> objects.ActionCommand:
    payload = {"snapshot_id": snapshot_id, "new_file": NEW_FILE, **values}
    return world.rpc.accept_volume_snapshot(
        world.context("req-s", admin=True), volume_id, "volume_snapshot_create", payload
    )


def merge(world: Cloud, volume_id: str, snapshot_id: str) -> objects.ActionCommand:
    payload = {"snapshot_id": snapshot_id, "file_to_merge": None, "merge_target_file": None}
    return world.rpc.accept_volume_snapshot(
        world.context("req-m", admin=True), volume_id, "volume_snapshot_delete", payload
    )


def task_of(world: Cloud) -> str | None:
    return world.instance(world.uuid).task_state


@pytest.mark.parametrize(
    ("request_", "before", "task", "well", "badly"),
    [
        (snapshot, "creating", states.SNAPSHOTTING_VOLUME, "creating", "error"),
        (merge, "deleting", states.MERGING_VOLUME, "deleting", "error_deleting"),
    ],
)
@pytest.mark.parametrize("error", [None, "the hypervisor refused it"])
def test_cinder_is_told_how_the_work_on_its_files_has_ended(
    world: Cloud, request_: Any, before: str, task: str, well: str, badly: str, error: str | None
) -> None:
    """A repeated request and a repeated report change nothing."""
    volume_id = in_file(world)
    snapshot_id = world.cinder.begun(volume_id, before)
    command = request_(world, volume_id, snapshot_id)
    assert request_(world, volume_id, snapshot_id).action_id == command.action_id
    assert (task_of(world), command.payload["volume_id"], command.host) == (task, volume_id, world.host)
    for _ in range(2):
        world.finish(command, error)
    expected = badly if error else well
    assert world.cinder.reports == [(snapshot_id, expected)]
    assert world.cinder.snapshots[snapshot_id]["progress"] == "90%"
    assert (task_of(world), world.open_actions(), world.instance(world.uuid).vm_state) == (None, [], states.ACTIVE)


@pytest.mark.parametrize("trouble", QUICK)
def test_report_to_cinder_is_repeated_beside_the_servers_next_operation(world: Cloud, trouble: str) -> None:
    volume_id = in_file(world)
    snapshot_id = world.cinder.begun(volume_id)
    world.cinder.troubles.append(("POST", "/snapshots/", trouble))
    world.finish(snapshot(world, volume_id, snapshot_id))
    assert task_of(world) is None
    stop = world.lifecycle.accept_action(world.context(), world.uuid, "stop", {})
    world.reports.finish_action(world.context(), ActionReport(host=world.host, action_id=stop.action_id, power_state=4))
    world.let_time_pass(60)
    world.reconciler.sweep()
    assert world.cinder.snapshots[snapshot_id]["progress"] == "90%"
    assert (world.open_actions(), world.instance(world.uuid).vm_state) == ([], states.STOPPED)


def test_snapshot_that_cinder_has_given_up_needs_no_report(world: Cloud) -> None:
    volume_id = in_file(world)
    snapshot_id = world.cinder.begun(volume_id)
    command = snapshot(world, volume_id, snapshot_id)
    world.cinder.snapshots[snapshot_id]["status"] = "error"
    world.finish(command)
    assert (world.cinder.reports, world.open_actions()) == ([], [])


@pytest.mark.parametrize("done", [False, True])
def test_silent_host_is_asked_whether_the_guest_has_the_new_file(world: Cloud, done: bool) -> None:
    volume_id = in_file(world)
    snapshot_id = world.cinder.begun(volume_id)
    snapshot(world, volume_id, snapshot_id)
    world.let_time_pass(3600)
    world.reconciler.sweep()
    undo = world.compute.commands[-1]
    assert (undo.method, task_of(world)) == ("rollback_volume_snapshot_create", states.SNAPSHOTTING_VOLUME)
    assert world.cinder.reports == []
    world.reports.finish_action(
        world.context(),
        ActionReport(
            host=world.host, action_id=undo.action_id, power_state=1, sequence=undo.sequence, answer={"done": done}
        ),
    )
    assert world.cinder.reports == [(snapshot_id, "creating" if done else "error")]
    assert (task_of(world), world.open_actions()) == (None, [])


def test_deleted_server_ends_the_work_on_its_volumes_files(world: Cloud) -> None:
    volume_id = in_file(world)
    snapshot_id = world.cinder.begun(volume_id, "deleting")
    command = merge(world, volume_id, snapshot_id)
    world.delete()
    world.finish(command)
    assert world.cinder.reports == [(snapshot_id, "error_deleting")]
    assert world.open_actions() == []


def test_work_on_files_is_refused_for_other_volumes(world: Cloud) -> None:
    by_rbd, free, in_a_file = world.attached(), world.cinder.volume(), in_file(world)
    snapshot_id = world.cinder.begun(by_rbd)
    for volume_id, values, message in (
        (by_rbd, {}, "connected by rbd, and only those by nfs are files here"),
        (free, {}, "no server on a host has volume"),
        (in_a_file, {"new_file": "../disk"}, "names of files have no directory"),
    ):
        with pytest.raises(exceptions.InvalidVolume, match=message):
            snapshot(world, volume_id, snapshot_id, **values)
    with pytest.raises(exceptions.InvalidInput, match="no work on the files"):
        world.rpc.accept_volume_snapshot(world.context(), in_a_file, "delete", {})
    with pytest.raises(exceptions.InvalidVolume, match="Use its API, with force"):
        CinderEndpoints(world.engine, None, world.worker).accept_volume_snapshot(
            world.context(), free, "volume_snapshot_create", {}
        )
    assert (world.cinder.reports, world.open_actions()) == ([], [])
