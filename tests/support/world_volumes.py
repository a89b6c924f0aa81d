"""Volumes of the servers of a `World`."""

from __future__ import annotations

import datetime
import uuid
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from nova_lite import objects
from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.volume import volumes
from nova_lite.objects import ActionReport, BlockDevice, DeviceState, Volume, VolumeWork
from nova_lite.objects.block_device import DeviceSource
from tests.support.conductor_world import Compute, World

NEW = {"name": "v", "size": 1}


class Hosts(Compute):
    """Hosts that record their commands about volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[tuple[str, VolumeWork]] = []

    def volume_work(self, context: Any, host: str, work: VolumeWork) -> None:
        if self.away:
            raise exceptions.MessagingUnavailable(what="volume_work")
        self.works.append((host, work))


class Volumes(World):
    """A world with an ACTIVE server ``uuid``. ``api``: the RPC methods about volumes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.hosts = Hosts()
        self.engine.compute = self.compute = self.hosts  # type: ignore[assignment]
        self.api = self.volumes
        self.uuid, self.host, self.generation = self.built()

    def accept(self, **values: Any) -> Volume:
        return self.api.volume_create(self.context(), Volume(id="", project_id="", **{**NEW, **values}), {})

    def make(self, **values: Any) -> str:
        """Make a volume and return its id."""
        volume_id = self.accept(**values).id
        self.done()
        assert self.show(volume_id).status == "available"
        return volume_id

    def done(self, error: str | None = None) -> None:
        host, work = self.hosts.works[-1]
        self.api.finish_volume_work(self.context(), host, work.id, error)

    def show(self, volume_id: str) -> Volume:
        return self.db.read(volumes.get, self.context(admin=True), volume_id)

    def status(self, volume_id: str) -> tuple[str, str | None]:
        shown = self.show(volume_id)
        return shown.status, shown.instance_uuid

    def attach(self, volume_id: str, server: str = "", **values: Any) -> objects.ActionCommand:
        payload = {
            "volume_id": volume_id,
            "attachment_id": str(uuid.uuid4()),
            "tag": None,
            "delete_on_termination": False,
        }
        uuid_ = server or self.uuid
        return self.lifecycle.accept_action(self.context(), uuid_, "attach_volume", {**payload, **values})

    def detach(self, volume_id: str) -> objects.ActionCommand:
        return self.lifecycle.accept_action(self.context(), self.uuid, "detach_volume", {"volume_id": volume_id})

    def finish(self, command: objects.ActionCommand, error: str | None = None, sequence: int = 0) -> None:
        self.reports.finish_action(
            self.context(),
            ActionReport(host=self.host, action_id=command.action_id, power_state=1, error=error, sequence=sequence),
        )

    def attached(self) -> str:
        volume_id = self.make()
        self.finish(self.attach(volume_id))
        assert self.status(volume_id) == ("in-use", self.uuid)
        return volume_id

    def devices(self) -> list[tuple[str | None, DeviceState]]:
        return [(item.volume_id, item.state) for item in self.instance(self.uuid).block_devices]

    def delete(self) -> objects.ActionCommand:
        return self.lifecycle.accept_action(self.context(), self.uuid, "delete", {})

    def let_leases_lapse(self, seconds: float) -> None:
        step = datetime.timedelta(seconds=seconds)

        def shift(uow: UnitOfWork) -> None:
            for row in uow.session.scalars(sa.select(models.VolumeTask)):
                row.lease_expires_at -= step
                row.deadline -= step

        self.db.write(shift)


def volume(volume_id: str, index: int | None = 0) -> BlockDevice:
    return BlockDevice(
        uuid="x", source_type=DeviceSource.VOLUME, destination_type="volume", volume_id=volume_id, boot_index=index
    )


def blank(**values: Any) -> BlockDevice:
    return BlockDevice(
        uuid="x",
        source_type=DeviceSource.BLANK,
        destination_type="volume",
        **{"volume_size": 1, "boot_index": 0, **values},
    )


def boot(world: Volumes, *devices: BlockDevice, **values: Any) -> str:
    (made,) = world.create(block_devices=list(devices), **values)
    return made
