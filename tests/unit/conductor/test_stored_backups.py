"""Backups in repositories, from the upload of a stream to the image that is made of it, and to its removal."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.backups import chain, disk_data
from nova_lite.backups.disk_data import DiskHeader
from nova_lite.backups.repository import Stored
from nova_lite.base import exceptions
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.scheduled_backups import ScheduledBackups
from nova_lite.conductor.stored_backups import StoredBackups
from nova_lite.db import images, server_backups
from nova_lite.image import qcow2, store
from nova_lite.objects import BackupStatus, ImageQuery, ServerBackup
from tests.support.backup_world import HOUR, Backups, Killed
from tests.support.backups import set_backup

SIZE = 4 * 65536


class FakeRepository:
    """Repositories of all projects in memory. ``broken``: the next operations fail. ``pruned``: their projects."""

    def __init__(self) -> None:
        self.snapshots: dict[str, tuple[str, bytes]] = {}
        self.broken = 0
        self.pruned = 0
        self.project = ""
        self._numbers = itertools.count()

    def of_project(self, project_id: str) -> FakeRepository:
        self.project = project_id
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

    def has(self, tag: str, snapshot: str) -> bool:
        return snapshot in self.snapshots

    def forget(self, tag: str) -> None:
        self._may_fail()
        self.snapshots = {name: stored for name, stored in self.snapshots.items() if stored[0] != tag}

    def prune(self) -> None:
        self.pruned += 1


class Conductor:
    """Conductors, as the image backend calls them."""

    def __init__(self, world: Backups) -> None:
        self._world = world

    def image_update(self, context: Any, image_id: str, changes: dict[str, Any], expected: str | None) -> Any:
        return self._world.db.write(images.update, context, image_id, changes, expected)


class InRepository(Backups):
    """A server whose backups are in a repository. ``disk``: its content."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        for name, value in {"engine": "restic", "full_every": 4}.items():
            self.conf.set_override(name, value, "server_backups")
        self.repository = FakeRepository()
        self.disk = bytearray(b"a" * SIZE)
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
        self.reports.finish_action(self.context(), str(command.host), command.action_id, 1, error, "")

    def stream(self, base: str | None) -> bytes:
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
        for image in self.db.read(images.page, self.context(), ImageQuery(limit=1000)):
            self.db.write(images.drop, [image.id])
        for name in self.files():
            Path(self.store, name).unlink()

    def restored(self, backup: ServerBackup) -> bytes:
        """Have an image made of a backup, and return its disk."""
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


@pytest.fixture
def world(tmp_path: Path) -> InRepository:
    return InRepository(tmp_path)


def test_backup_is_complete_only_when_its_data_are_in_the_repository(world: InRepository) -> None:
    world.begin()
    command = world.compute.commands[-1]
    assert (command.method, world.request) == ("backup_disk", {"backup_id": world.row.id})
    image = command.payload["image"]
    assert (image["disk_format"], image["hidden"]) == ("raw", True)
    world.finish()
    world.backups.run()
    assert (world.row.status, world.repository.snapshots) == (BackupStatus.STORING, {})
    world.stored.run()
    assert (world.row.status, world.row.base_id, world.row.disk_size) == (BackupStatus.COMPLETE, None, SIZE)
    assert [tag for tag, _ in world.repository.snapshots.values()] == [world.row.id]
    world.stored.run()
    assert (world.files(), world.row.has_image) == ([], False), "the upload is removed"


def test_increments_follow_a_whole_backup_until_the_next_whole_one(world: InRepository) -> None:
    made = [world.make() for _ in range(6)]
    assert [backup.base_id for backup in made] == [None, made[0].id, made[1].id, made[2].id, None, made[4].id]
    assert [backup.increments for backup in made] == [0, 1, 2, 3, 0, 1]


def test_each_backup_comes_back_as_it_was(world: InRepository) -> None:
    made = [(world.make(), bytes(world.disk))]
    for letter in (b"b", b"c"):
        world.disk[-70000:] = letter * 70000
        made.append((world.make(), bytes(world.disk)))
    assert [backup.base_id for backup, _ in made] == [None, made[0][0].id, made[1][0].id]
    assert [world.restored(backup) for backup, _ in made] == [disk for _, disk in made]


@pytest.mark.parametrize("change", ["host", "generation", "failed"])
def test_backup_of_another_host_or_build_is_no_base(world: InRepository, change: str) -> None:
    first = world.make()
    if change == "failed":
        world.db.write(server_backups.lose_backup, first.id)
    else:
        value = {"host": "another", "generation": 99}[change]
        set_backup(world.db, first.id, **{change: value})
    world.begin()
    assert "base" not in world.request


def test_host_may_answer_with_a_whole_backup(world: InRepository) -> None:
    world.make()
    world.uploaded = world.stream(None)
    assert (world.make().base_id, world.row.increments) == (None, 0)


def other_base(world: InRepository) -> bytes:
    return world.stream("00000000-0000-4000-8000-000000000000")


def other_size(world: InRepository) -> bytes:
    target = io.BytesIO()
    disk_data.write_header(target, DiskHeader(size=SIZE + 512, data=[], base=world.rows(status="complete")[0].id))
    return target.getvalue()


def cut_off(world: InRepository) -> bytes:
    return world.stream(None)[:-1]


def no_stream(world: InRepository) -> bytes:
    return b"x" * 5000


@pytest.mark.parametrize("upload", [other_base, other_size, cut_off, no_stream])
def test_upload_that_does_not_fit_is_a_failed_backup(
    world: InRepository, upload: Callable[[InRepository], bytes]
) -> None:
    first = world.make()
    world.disk[-100:] = b"b" * 100
    world.uploaded = upload(world)
    world.begin()
    world.finish()
    world.store_once()
    assert world.row.status is BackupStatus.FAILED
    assert str(world.row.reason).startswith("The data of a backup cannot be used")
    world.stored.run()
    assert world.files() == []
    world.uploaded = None
    world.age(scheduled_for=HOUR, started_at=HOUR)
    assert world.make().base_id == first.id, "the failed one is no base"
    assert world.restored(world.row) == bytes(world.disk)


def test_full_repository_is_tried_again(world: InRepository) -> None:
    world.begin()
    world.finish()
    world.repository.broken = 2
    world.store_once()
    assert (world.row.status, "no space left" in str(world.row.reason)) == (BackupStatus.STORING, True)
    world.stored.run()
    world.stored.run()
    assert (world.row.status, world.row.reason) == (BackupStatus.COMPLETE, None)


def test_repository_that_stays_full_is_a_failed_backup_after_a_day(world: InRepository) -> None:
    world.begin()
    world.finish()
    world.repository.broken = 2
    world.store_once()
    world.age(finished_at=25 * HOUR)
    world.stored.run()
    assert (world.row.status, "no space left" in str(world.row.reason)) == (BackupStatus.FAILED, True)


def test_deleted_upload_is_a_failed_backup(world: InRepository) -> None:
    world.begin()
    world.finish()
    world.backups.run()
    world.db.write(images.drop, [world.row.image_id])
    world.stored.run()
    assert world.row.status is BackupStatus.FAILED


def test_base_is_kept_while_increments_of_it_exist(world: InRepository) -> None:
    made = [world.make() for _ in range(4)]
    world.backups.run()
    world.stored.run()
    statuses = {backup.id: backup.status for backup in world.rows()}
    assert [statuses[backup.id] for backup in made] == ["deleting", "deleting", "complete", "complete"]
    assert len(world.repository.snapshots) == 4
    assert world.restored(made[3]) == bytes(world.disk)
    set_backup(world.db, made[3].id, held_until=None)
    for _ in range(2):
        made.append(world.make())
    for _ in range(6):
        world.backups.run()
        world.stored.run()
    assert {backup.id for backup in world.rows()} == {backup.id for backup in made[4:]}
    assert len(world.repository.snapshots) == 2
    assert world.repository.pruned >= 1


def test_newest_backup_without_data_is_lost_and_removes_no_other(world: InRepository) -> None:
    for _ in range(3):
        last = world.make()
    world.repository.snapshots.pop(str(last.snapshot))
    world.backups.run()
    assert world.row.status is BackupStatus.FAILED
    assert len(world.rows(status="complete")) == 2


def test_damaged_backup_makes_no_image(world: InRepository) -> None:
    made = world.make()
    tag, data = world.repository.snapshots[str(made.snapshot)]
    world.repository.snapshots[str(made.snapshot)] = (tag, data[:-1] + b"!")
    world.db.write(server_backups.want_image, world.context(), made.id)
    world.stored.run()
    assert (world.row.restore_status, "digest" in str(world.row.restore_reason)) == ("failed", True)
    assert world.files() == []
    with pytest.raises(exceptions.BackupDataInvalid):
        chain.verify(world.repository, world.row)  # type: ignore[arg-type]


def test_image_is_made_when_the_repository_is_back(world: InRepository) -> None:
    made = world.make()
    world.repository.broken = 1
    world.db.write(server_backups.want_image, world.context(), made.id)
    world.stored.run()
    assert (world.row.restore_status, "no space left" in str(world.row.restore_reason)) == ("wanted", True)
    assert world.restored(made) == bytes(world.disk)


def test_restore_needs_an_image(world: InRepository) -> None:
    made = world.make()
    with pytest.raises(exceptions.ServerBackupInRepository):
        world.db.write(server_backups.hold, world.context(), made.id)
    world.restored(made)
    held = world.db.write(server_backups.hold, world.context(), made.id)
    assert held.image_id == world.row.restored_image_id
    again = world.db.write(server_backups.want_image, world.context(), made.id)
    assert again.restored_image_id == held.image_id, "one image is enough"
    world.db.write(images.drop, [held.image_id])
    assert world.db.write(server_backups.want_image, world.context(), made.id).restored_image_id != held.image_id


class Killer:
    """Kills the conductor right before, or right after, a commit or an operation of the repository."""

    def __init__(self, world: InRepository, number: int, is_after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.is_after, self.where = number, is_after, ""
        write = world.db.write

        def named_write(function: Any, *arguments: Any, **named: Any) -> Any:
            if function.__module__ != server_backups.__name__:
                return write(function, *arguments, **named)
            return self.passing(function.__name__, lambda: write(function, *arguments, **named))

        monkeypatch.setattr(world.db, "write", named_write)
        for owner, names in (
            (world.repository, ("store", "forget")),
            (world.engine.images, ("upload", "publish", "discard")),
        ):
            for name in names:
                monkeypatch.setattr(owner, name, self.wrapped(name, getattr(owner, name)))

    def wrapped(self, name: str, function: Any) -> Any:
        return lambda *arguments: self.passing(name, lambda: function(*arguments))

    def passing(self, name: str, act: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left or self.where:
            return act()
        self.where = name
        if self.is_after:
            act()
        raise Killed


@pytest.mark.parametrize("is_after", [False, True])
def test_conductor_that_dies_at_any_step_never_takes_an_incomplete_backup_for_a_complete_one(
    world: InRepository, is_after: bool
) -> None:
    """Each life makes a backup and an image of it, and retention removes an old backup."""
    world.conf.set_override("full_every", 1, "server_backups")
    live(world)
    live(world)
    passed = set()
    for number in range(1, 100):
        world.disk[-2:] = number.to_bytes(2)
        with pytest.MonkeyPatch.context() as patched:
            killer = Killer(world, number, is_after, patched)
            with contextlib.suppress(Killed):
                live(world)
        passed.add(killer.where)
        world.begin_anew()
        world.let_time_pass(60)
        world.reconciler.sweep()
        live(world)
        rows = world.rows()
        assert [row.status for row in rows] == ["complete", "complete"], killer.where
        assert {str(row.snapshot) for row in rows} <= world.repository.snapshots.keys(), killer.where
        assert {tag for tag, _ in world.repository.snapshots.values()} == {row.id for row in rows}, killer.where
        for row in rows:
            chain.verify(world.repository, row)  # type: ignore[arg-type]
        assert world.restored(rows[0]) == bytes(world.disk)
        world.delete_images()
        assert world.files() == [], killer.where
        if not killer.where:
            break
    wanted = {"begin_storing", "store", "store_backup", "drop_backup_image", "discard", "image_dropped", "want_image"}
    wanted |= {"register_image", "upload", "publish", "restored_image", "end_restore", "forget", "forget_backup"}
    assert passed >= wanted


def live(world: InRepository) -> None:
    """Make a backup, or continue an interrupted backup, make an image of it, and remove old backups."""
    for row in world.rows():
        set_backup(world.db, row.id, held_until=None)
    if not any(row.status in ("running", "storing") for row in world.rows()):
        world.begin()
    world.finish_if_begun()
    world.store_once()
    world.store_once()
    newest = world.rows(status="complete")[0]
    world.db.write(server_backups.want_image, world.context(), newest.id)
    world.store_once()
    world.store_once()
    world.age(scheduled_for=HOUR, started_at=HOUR)
