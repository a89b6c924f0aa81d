"""Backups in repositories: moves uploaded data there, makes images of them, and removes old ones.

One conductor does this, in a thread of its own, because it takes as long as the data are large. A step that was
interrupted is repeated: what a step has stored counts only when the backup's row names it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from nova_lite.backups import chain
from nova_lite.backups.repository import Repositories, Repository
from nova_lite.base import clock, concurrency, exceptions, files, metrics
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.db.backups import server_backups
from nova_lite.db.hosts import services
from nova_lite.db.image import images
from nova_lite.image import store
from nova_lite.image.driver import ImageCall
from nova_lite.objects import BackupDisk, BackupStatus, Image, RestoreStatus, ServerBackup

LOG = logging.getLogger(__name__)

#: Name of the conductors among the hosts that upload images: another conductor continues what one has begun.
_UPLOADER = "conductor backups"
#: Prefix of the files of images that are being made.
_TEMPORARY = ".backup-"
_ABANDONED_SECONDS = 3600.0

T = TypeVar("T")


class Interval:
    """A time that comes every ``seconds``, and at once for the first time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = float("-inf")

    def is_due(self) -> bool:
        """Return whether the time has come. The next one is counted from then on."""
        now = clock.monotonic()
        is_due = now - self._last >= self._seconds
        if is_due:
            self._last = now
        return is_due

    def restart(self) -> None:
        """Count the time to the next one from now on."""
        self._last = clock.monotonic()


class StoredBackups:
    """The conductor's periodic work for repositories of backups. ``repositories`` None: none are configured."""

    def __init__(
        self, engine: ActionEngine, repositories: Repositories | None, timing: ConductorTiming = TIMING.conductor
    ) -> None:
        self.engine = engine
        self.db = engine.db
        self.conf = engine.conf
        self.images = engine.images
        self.repositories = repositories
        self._pruned = Interval(timing.backup_prune_interval)

    def run_if_first(self) -> None:
        """Do the work if this is the oldest conductor that is up."""
        if self.repositories is not None and self.db.read(services.is_first, services.CONDUCTOR, self.conf.host):
            self.run()

    def run(self) -> None:
        """Do all work that is due."""
        if self.repositories is None:
            return
        for backup in self.db.read(server_backups.with_status, BackupStatus.STORING):
            self.engine.guarded(functools.partial(self._store, backup))
        for backup in self.db.read(server_backups.with_needless_image):
            self.engine.guarded(functools.partial(self._drop_upload, backup))
        for backup in self.db.read(server_backups.wanted_images):
            self.engine.guarded(functools.partial(self._make_images, backup))
        for backup in self.db.read(server_backups.to_forget):
            self.engine.guarded(functools.partial(self._forget, backup))
        unpruned = self.db.read(server_backups.unpruned)
        if unpruned and self._pruned.is_due():
            for project_id, removals in unpruned.items():
                self.engine.guarded(functools.partial(self._prune, project_id, removals))

    def missing_link(self, backup_id: str) -> str | None:
        """Return which of a stored backup and its bases lacks its data, the oldest if there are several, else None.

        Raises `BackupRepositoryError` if the repository is not reached.
        """
        try:
            links = self.db.read(server_backups.chain, backup_id)
        except exceptions.BackupDataInvalid:
            return backup_id
        missing = self._blocking(chain.first_missing, self._repository(links[-1].project_id), links)
        return None if missing is None else missing.id

    def lose(self, backup_id: str) -> None:
        """Record that the data of a complete backup are gone, and with them all increments of it."""
        LOG.warning("Backup %s has no data any more, and increments of it are useless", backup_id)
        self.db.write(server_backups.lose_backup, backup_id, "its data, or those that it is based on, are gone")

    @property
    def _repositories(self) -> Repositories:
        if self.repositories is None:
            raise exceptions.BackupRepositoryError(reason="[server_backups] repository is not set")
        return self.repositories

    def _repository(self, project_id: str) -> Repository:
        """Return a project's repository. It may be missing until the project has a stored backup."""
        is_made = self.db.read(server_backups.has_repository, project_id)
        return self._repositories.of_project(project_id, may_be_missing=not is_made)

    def _repository_for_new_data(self, project_id: str) -> Repository:
        """Return a project's repository. Before a project's first backup, check that those of others are reached."""
        repository = self._repository(project_id)
        newest = self.db.read(server_backups.newest_stored) if repository.may_be_missing else None
        if newest is not None:
            self._blocking(self._repository(newest.project_id).require)
        return repository

    @staticmethod
    def _blocking(function: Callable[..., T], *arguments: object) -> T:
        """Call a function that reads and writes much data, in a native thread if this daemon has green ones."""
        return concurrency.call_blocking(function, *arguments)

    # --- store

    def _store(self, backup: ServerBackup) -> None:
        """Store the uploaded data. Data that cannot be stored now are tried again until the row is too old.

        An increment is stored only if the repository has all that it is based on.
        """
        try:
            with self._uploaded(backup) as path, open(path, "rb") as file:
                header = self._blocking(chain.uploaded_header, backup, file)
                if header.base is not None:
                    self._require_base(header.base)
                repository = self._repository_for_new_data(backup.project_id)
                stored = self._blocking(chain.store, repository, backup, header, file)
            self.db.write(server_backups.store_backup, backup.id, header, *stored[:2])
        except (exceptions.BackupDataInvalid, exceptions.ImageGone, exceptions.ImageCorrupt) as error:
            self._fail(backup, error.message)
        except (exceptions.NovaLiteException, OSError) as error:
            reason = error.message if isinstance(error, exceptions.NovaLiteException) else str(error)
            LOG.warning("Backup %s cannot be stored now: %s", backup.id, reason)
            if self.db.write(server_backups.put_storing_off, backup.id, reason):
                self._fail(backup, reason)
        else:
            metrics.SERVER_BACKUPS.labels(BackupStatus.COMPLETE).inc()
            LOG.info(
                "Backup %s of server %s is complete: %s of %d bytes, %d bytes more in the repository",
                backup.id,
                backup.instance_uuid,
                "an increment" if header.base else "a whole disk",
                header.length,
                stored.added,
            )

    def _require_base(self, base_id: str) -> None:
        """Raise `BackupDataInvalid` unless the data of a base are there. The next backup has another base, or none."""
        missing = self.missing_link(base_id)
        if missing is not None:
            self.lose(missing)
            raise exceptions.BackupDataInvalid(reason=f"those of backup {missing}, which they are based on, are gone")

    @contextlib.contextmanager
    def _uploaded(self, backup: ServerBackup) -> Iterator[str]:
        """Yield the path of the uploaded data. Raises `ImageGone` if their image was deleted."""
        if self.images.has_local_rows:
            if self.db.read(images.by_id, backup.image_id) is None:
                raise exceptions.ImageGone(image_id=backup.image_id, reason="it was deleted")
            yield store.file_path(self.conf.image.store_path, backup.image_id)
            return
        with self._temporary() as path:
            image = Image(id=backup.image_id, name="", size=backup.size)
            self.images.fetch(image, path)
            yield path

    def _fail(self, backup: ServerBackup, reason: str) -> None:
        if self.db.write(server_backups.fail_backup, backup.id, BackupStatus.STORING, reason) is not None:
            metrics.SERVER_BACKUPS.labels(BackupStatus.FAILED).inc()
            LOG.warning("Backup %s has failed: %s", backup.id, reason)

    def _drop_upload(self, backup: ServerBackup) -> None:
        """Remove the uploaded data, which the repository has now, or no user needs.

        The repository may have data of a failed backup, too, which were refused or whose conductor died. Recorded data
        stay until the backup is removed.
        """
        self._drop_image(backup)
        if backup.status is BackupStatus.FAILED and backup.snapshot is None:
            self._blocking(self._repository(backup.project_id).forget, backup.id)
        self.db.write(server_backups.image_dropped, backup)

    def _drop_image(self, backup: ServerBackup) -> None:
        if self.images.has_local_rows:
            self.db.write(server_backups.drop_backup_image, backup.image_id)
        self.images.discard(_call(backup, backup.image_id))

    # --- restore

    def _make_images(self, backup: ServerBackup) -> None:
        """Make the images of a backup, unless an earlier attempt has done so."""
        image_id = str(backup.restored_image_id)
        wanted = _images(backup)
        try:
            self.make_images(wanted, self.db.read(server_backups.chain, backup.id))
        except (exceptions.ServiceUnavailable, exceptions.ImageUploadFailed, OSError) as error:
            reason = error.message if isinstance(error, exceptions.NovaLiteException) else str(error)
            LOG.warning("The image of backup %s cannot be made now: %s", backup.id, reason)
            self.db.write(server_backups.end_restore, backup.id, image_id, RestoreStatus.WANTED, reason)
            return
        except exceptions.NovaLiteException as error:
            LOG.warning("No image can be made of backup %s: %s", backup.id, error.message)
            for image in wanted.values():
                self.images.discard(_call(backup, image.id, _UPLOADER))
            self.db.write(server_backups.end_restore, backup.id, image_id, RestoreStatus.FAILED, error.message)
            return
        self.db.write(server_backups.end_restore, backup.id, image_id, RestoreStatus.READY, None)
        LOG.info("Image %s is made of backup %s", image_id, backup.id)

    def make_images(self, wanted: Mapping[str, Image], links: Sequence[ServerBackup]) -> None:
        """Make images of disks of a backup, unless an earlier attempt has done so. The quota of their owner holds.

        ``wanted``: images by the ids of volumes, "" for the server's own root disk. ``links``: the whole backup and its
        increments, oldest first. They may be of another site.
        """
        backup = links[-1]
        registered = {name: self._register(image) for name, image in wanted.items()}
        missing = {name: image for name, image in registered.items() if image.status != "active"}
        if not missing:
            return
        with contextlib.ExitStack() as stack:
            paths = {name: stack.enter_context(self._temporary()) for name in missing}
            for path in paths.values():
                os.remove(path)
            self._blocking(chain.extract, self._repositories.of_project(backup.project_id), links, paths)
            for name, image in missing.items():
                self.images.upload(image, paths[name], _UPLOADER, lambda _: None)
                self.images.publish(_call(backup, image.id, _UPLOADER, wanted[name].owner))
                files.remove(paths[name])
        for image in missing.values():
            if self.images.has_local_rows and self.db.write(server_backups.restored_image, image.id) is None:
                raise exceptions.ImageNotFound(image_id=image.id)

    def _register(self, wanted: Image) -> Image:
        return self.images.register_for_owner(wanted) or self.db.write(server_backups.register_image, wanted)

    # --- remove

    def _forget(self, backup: ServerBackup) -> None:
        """Remove the data, and then the row."""
        self._blocking(self._repository(backup.project_id).forget, backup.id)
        self._drop_image(backup)
        self.db.write(server_backups.forget_backup, backup)

    def _prune(self, project_id: str, removals: int) -> None:
        """Free the room of data that were removed from a repository. ``removals``: their number when this begins."""
        self._blocking(self._repository(project_id).prune)
        self.db.write(server_backups.pruned, project_id, removals)

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[str]:
        """Yield the path of a new file on the file system of images, or else of this daemon's state."""
        state = os.path.join(self.conf.state_path, "conductor")
        place = self.conf.image.store_path if self.images.has_local_rows else state
        store.prepare(place)
        for path in files.abandoned_parts(place, _TEMPORARY, _ABANDONED_SECONDS):
            files.remove(path)
        with files.large_part(place, _TEMPORARY) as path:
            yield path


def _images(backup: ServerBackup) -> dict[str, Image]:
    """Return the images to make of a backup, by the ids of volumes."""
    root = msgspec.convert(backup.server["image"], Image)
    root = msgspec.structs.replace(root, id=str(backup.restored_image_id), disk_format="qcow2", hidden=False)
    if any(disk.is_root and disk.volume_id for disk in backup.disks):
        root = msgspec.structs.replace(root, min_disk=0)
    if not backup.disks:
        return {"": root}
    return {disk.volume_id: root if disk.is_root else _image_of_volume(root, disk) for disk in backup.disks}


def _image_of_volume(root: Image, disk: BackupDisk) -> Image:
    """Return the image of an attached volume. No guest boots from it, so it has no properties of hardware."""
    name = f"{root.name} {disk.device or disk.volume_id}"
    properties = {key: root.properties[key] for key in ("backup_type", "backup_id") if key in root.properties}
    image_id = str(disk.image_id)
    return msgspec.structs.replace(root, id=image_id, name=name, properties=properties, min_disk=0, min_ram=0)


def _call(backup: ServerBackup, image_id: str, host: str | None = None, owner: str | None = None) -> ImageCall:
    project_id = owner or backup.project_id
    return ImageCall(image_id=image_id, host=host, project_id=project_id, instance_uuid=backup.instance_uuid)
