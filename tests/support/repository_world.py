"""World of a conductor whose backups are in a repository, which is in memory."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nova_lite.backups import disk_data, disk_parts
from nova_lite.backups.disk_data import DiskHeader, DiskPart
from nova_lite.backups.repository import Stored
from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.backups.scheduled_backups import ScheduledBackups
from nova_lite.conductor.backups.stored_backups import StoredBackups
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.core import models
from nova_lite.db.image import images
from nova_lite.db.servers import instances
from nova_lite.db.volume import block_devices
from nova_lite.image import qcow2, store
from nova_lite.objects import ActionReport, BackupStatus, BlockDevice, ImageQuery, ServerBackup
from nova_lite.objects.block_device import DeviceSource
from nova_lite.operations.states import PowerState
from tests.support.backup_world import HOUR, Backups

SIZE = 4 * 65536


class FakeRepository:
    """Repositories of all projects in memory.

    ``broken``: number of the next operations that fail; ``broken_forgets`` and ``broken_prunes``: of these alone.
    """

    def __init__(self) -> None:
        self.snapshots: dict[str, tuple[str, bytes]] = {}
        self.broken = 0
        self.broken_forgets = 0
        self.broken_prunes = 0
        self.pruned = 0
        self.project = ""
        self.may_be_missing = False
        self._numbers = itertools.count()

    def of_project(self, project_id: str, may_be_missing: bool = False) -> FakeRepository:
        self.project, self.may_be_missing = project_id, may_be_missing
        return self

    def _may_fail(self) -> None:
        if self.broken:
            self.broken -= 1
            raise exceptions.BackupRepositoryError(reason="no space left on device")

    def store(self, tag: str, write: Callable[[Any], None]) -> Stored:
        self._may_fail()
        target = io.BytesIO()
        write(target)
        name = f"{next(self._numbers):064}"
        self.snapshots[name] = (tag, target.getvalue())
        return Stored(name, hashlib.sha256(target.getvalue()).hexdigest(), len(target.getvalue()))

    @contextlib.contextmanager
    def read(self, snapshot: str, digest: str) -> Iterator[Any]:
        self._may_fail()
        data = self.snapshots[snapshot][1]
        yield io.BytesIO(data)
        if hashlib.sha256(data).hexdigest() != digest:
            raise exceptions.BackupDataInvalid(reason="their digest is not the recorded one")

    def present(self, tags: Sequence[str]) -> set[str]:
        self._may_fail()
        return {name for name, (tag, _) in self.snapshots.items() if tag in tags}

    def require(self) -> None:
        self._may_fail()

    def forget(self, tag: str) -> None:
        self._may_fail()
        if self.broken_forgets:
            self.broken_forgets -= 1
            raise exceptions.BackupRepositoryError(reason="it is locked")
        self.snapshots = {name: stored for name, stored in self.snapshots.items() if stored[0] != tag}

    def prune(self) -> None:
        if self.broken_prunes:
            self.broken_prunes -= 1
            raise exceptions.BackupRepositoryError(reason="it is locked")
        self.pruned += 1


class Conductor:
    """Conductors, as the image backend calls them."""

    def __init__(self, world: Backups) -> None:
        self._world = world

    def image_update(self, context: Any, image_id: str, changes: dict[str, Any], expected: str | None) -> Any:
        return self._world.db.write(images.update, context, image_id, changes, expected)


class InRepository(Backups):
    """A server whose backups are in a repository. ``disk`` and ``volumes``: contents of its disks."""

    #: Power state that the host reports of its guest.
    power_state = PowerState.RUNNING

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for name, value in {"engine": "restic", "full_every": 4}.items():
            self.conf.set_override(name, value, "server_backups")
        self.db.write(backup_policies.update, self.context(), self.policy.id, {"volumes": True})
        self.make_due()
        self.repository = FakeRepository()
        self.disk = bytearray(b"a" * SIZE)
        self.volumes: dict[str, bytearray] = {}
        self.uploaded: bytes | None = None
        self.engine.images.conductor = Conductor(self)  # type: ignore[assignment]
        self.begin_anew()

    def begin_anew(self) -> None:
        """Restart the conductor."""
        timing = ConductorTiming(backup_retention_interval=0.0, backup_status_interval=0.0, backup_prune_interval=0.0)
        self.stored = StoredBackups(self.engine, self.repository, timing)  # type: ignore[arg-type]
        self.backups = ScheduledBackups(self.engine, timing, self.stored)

    @property
    def request(self) -> dict[str, Any]:
        """Request in the last command."""
        return self.compute.commands[-1].payload["backup"]

    def finish(self, error: str | None = None) -> None:
        """Upload the disk, or the part of it that is no ``a`` as an increment of the base that the host was given."""
        command = self.compute.commands[-1]
        if error is None:
            image = command.payload["image"]["id"]
            data = self.stream(self.request.get("base")) if self.uploaded is None else self.uploaded
            Path(store.prepare_below(self.store, store.UPLOADS, str(command.host)), image).write_bytes(data)
            self.db.write(images.update, self.context(admin=True), image, {"status": "saving", "size": len(data)})
        power = int(self.power_state)
        self.reports.finish_action(
            self.context(),
            ActionReport(host=str(command.host), action_id=command.action_id, power_state=power, error=error),
        )

    def attach(self, volume_id: str, content: bytes, boot_index: int | None = None, encrypted: bool = False) -> None:
        """Attach a volume with this content to the server."""
        self.volumes[volume_id] = bytearray(content)
        device = BlockDevice(
            uuid=str(uuid.uuid4()),
            source_type=DeviceSource.VOLUME,
            destination_type="volume",
            boot_index=boot_index,
            device_name=f"/dev/vd{'abcdef'[len(self.volumes) if boot_index is None else 0]}",
            volume_id=volume_id,
        )

        def write(uow: Any) -> None:
            row = instances.get_row(uow, self.context(admin=True), self.uuid)
            block_devices.keep(row, [*block_devices.of(row), device])
            key_id = str(uuid.uuid4()) if encrypted else None
            values = {"id": volume_id, "project_id": row.project_id, "size": 1, "status": "in-use"}
            uow.session.add(models.Volume(**values, created_at=uow.now, encryption_key_id=key_id))

        self.db.write(write)

    def stream_of_disks(self, names: list[str], base: str | None) -> bytes:
        """Return a stream of the disks that the command names. An increment has volumes as a whole."""
        made = []
        target = io.BytesIO()
        for name in names:
            content = self.volumes.get(name, self.disk)
            header = DiskHeader(size=len(content), data=[(0, len(content))])
            made.append((DiskPart(volume_id=name, size=len(content)), header))
        disk_data.write_header(target, disk_parts.joined(made, base))
        for name in names:
            target.write(self.volumes.get(name, self.disk))
        return target.getvalue()

    def stream(self, base: str | None) -> bytes:
        if "disks" in self.request:
            return self.stream_of_disks(self.request["disks"], base)
        target, changed = io.BytesIO(), SIZE - len(self.disk.lstrip(b"a")) if base else 0
        extents = [(changed, SIZE - changed)] if changed < SIZE else []
        disk_data.write_header(target, DiskHeader(size=SIZE, data=extents, base=base))
        target.write(self.disk[changed:] if extents else b"")
        return target.getvalue()

    def begin(self) -> None:
        self.make_due()
        self.backups.run()

    def store_once(self) -> None:
        self.backups.run()
        self.stored.run()

    def make(self) -> ServerBackup:
        """Make a complete backup, an hour later than the others."""
        self.begin()
        self.finish()
        self.store_once()
        self.stored.run()
        made = self.row
        assert made.status is BackupStatus.COMPLETE, made.reason
        self.age(scheduled_for=HOUR, started_at=HOUR)
        return made

    def delete_images(self) -> None:
        """Delete the images that were made of backups, as their owner does."""
        for image in self.db.read(images.list_, self.context(), ImageQuery(limit=1000)):
            self.db.write(images.drop, [image.id])
        for name in self.files():
            Path(self.store, name).unlink()

    def restored(self, backup: ServerBackup) -> bytes:
        """Request an image of a backup, and return its disk."""
        self.db.write(server_backups.want_image, self.context(), backup.id)
        self.stored.run()
        shown = self.db.read(server_backups.get, self.context(), backup.id)
        assert (shown.restore_status, shown.restore_reason) == ("ready", None)
        path = Path(store.file_path(str(self.store), str(shown.restored_image_id)))
        header = qcow2.read(str(path))
        assert header is not None
        assert (header.size, header.backing) == (SIZE, "")
        links = self.db.read(server_backups.chain, backup.id)
        layers = []
        for link in links:
            source = io.BytesIO(self.repository.snapshots[str(link.snapshot)][1])
            layers.append((disk_data.read_header(source), source))
        _, chunks = disk_data.fold(layers)
        disk = bytearray(SIZE)
        for offset, chunk in chunks:
            disk[offset : offset + len(chunk)] = chunk
            assert chunk in path.read_bytes()
        return bytes(disk)
