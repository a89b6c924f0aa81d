"""Backups in a repository with the increments that belong to them: reads them, and checks them."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import BinaryIO, cast

from nova_lite.backups import disk_data, disk_parts, qcow2_file
from nova_lite.backups.disk_data import DiskHeader, Source, Target
from nova_lite.backups.repository import Repository, Stored
from nova_lite.base import exceptions, files
from nova_lite.objects import ServerBackup


def uploaded_header(backup: ServerBackup, file: BinaryIO) -> DiskHeader:
    """Read the header of an uploaded stream. Raises `BackupDataInvalid` if it is no stream, or of another backup."""
    header = disk_data.read_header(file)
    if header.base not in (None, backup.base_id):
        raise exceptions.BackupDataInvalid(reason="they are an increment of another backup")
    return header


def store(repository: Repository, backup: ServerBackup, header: DiskHeader, file: BinaryIO) -> Stored:
    """Store an uploaded stream, whose header was read. Raises `BackupDataInvalid` if it is incomplete."""

    def write(target: Target) -> None:
        disk_data.copy(header, file, target)

    return repository.store(backup.id, write)


def first_missing(repository: Repository, links: Sequence[ServerBackup]) -> ServerBackup | None:
    """Return the first of these backups whose data are not in the repository."""
    present = repository.present([link.id for link in links])
    return next((link for link in links if link.snapshot not in present), None)


def verify(repository: Repository, backup: ServerBackup) -> None:
    """Read a stored stream and check that it is whole and the recorded one. Raises `BackupDataInvalid`."""
    with repository.read(backup.snapshot or "", backup.digest or "") as source:
        header = _header(backup, source)
        for _ in disk_data.extents_of(header, source):
            pass


def extract(repository: Repository, links: Sequence[ServerBackup], paths: Mapping[str, str]) -> None:
    """Write disks of a backup to new qcow2 files. ``links``: the whole backup and its increments, oldest first.

    ``paths``: by the ids of volumes; "" is the server's own root disk. All are in one directory. The files exist only
    if all data are the recorded ones. Increments are in temporary files beside them.

    Raises `BackupDataInvalid`, also if a backup is not in the repository.
    """
    directory = os.path.dirname(next(iter(paths.values())))
    check_links(links)
    if (lost := first_missing(repository, links)) is not None:
        raise exceptions.BackupDataInvalid(reason=f"those of backup {lost.id} are not in the repository any more")
    try:
        with contextlib.ExitStack() as opened:
            layers = [_increment(repository, link, opened, directory) for link in links[1:]]
            source = opened.enter_context(repository.read(links[0].snapshot or "", links[0].digest or ""))
            whole = (_header(links[0], source), source)
            missing = set(paths)
            for disk in disk_parts.split(*disk_data.fold([whole, *layers])):
                if disk.volume_id in paths:
                    _write(disk, paths[disk.volume_id])
                    missing.remove(disk.volume_id)
        if missing:
            raise exceptions.BackupDataInvalid(reason="one of the disks is not in them")
    except BaseException:
        for path in paths.values():
            files.remove(path)
        raise


def _write(disk: disk_parts.Disk, path: str) -> None:
    with open(path, "wb", opener=files.private_opener) as file:
        qcow2_file.write(disk.header, disk.chunks, file)
        file.flush()
        os.fsync(file.fileno())


def check_links(links: Sequence[ServerBackup]) -> None:
    """Check that each backup is an increment of the one before. Raises `BackupDataInvalid`."""
    bases = [None, *(link.id for link in links[:-1])]
    if not links or [link.base_id for link in links] != bases:
        raise exceptions.BackupDataInvalid(reason="a backup that it is based on is missing")


def _increment(
    repository: Repository, link: ServerBackup, opened: contextlib.ExitStack, directory: str
) -> tuple[DiskHeader, Source]:
    """Copy an increment to a temporary file, which no other process can open."""
    file = cast(BinaryIO, opened.enter_context(tempfile.TemporaryFile(dir=directory)))  # noqa: SIM115 `opened` closes it
    with repository.read(link.snapshot or "", link.digest or "") as source:
        disk_data.copy(_header(link, source), source, file)
    file.seek(0)
    return disk_data.read_header(file), file


def _header(backup: ServerBackup, source: Source) -> DiskHeader:
    """Read a header, and check that it is the backup's."""
    header = disk_data.read_header(source)
    if (header.base, header.size) != (backup.base_id, backup.disk_size):
        raise exceptions.BackupDataInvalid(reason="their base or the size of their disk is not the recorded one")
    return header
