"""Disks that hosts share, and the check that the files of disks are there."""

from __future__ import annotations

import dataclasses
import logging
import os

from nova_lite.objects import StorageView
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks.marks import Marks
from nova_lite.virt.libvirt.disks.pool_marks import PoolMarks
from nova_lite.virt.libvirt.records import file_errors

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(eq=False)
class SharedDisks(HostPart, abilities.SharedDisks):
    _marks: Marks | PoolMarks

    @file_errors()
    def view(self) -> StorageView:
        return self._marks.look()

    @file_errors()
    def own(self, instance_uuid: str) -> None:
        self._records.own(instance_uuid)

    @file_errors()
    def taken(self) -> set[str]:
        return self._records.has_taken()

    @file_errors()
    def keep(self, instance_uuid: str) -> None:
        self._records.keep(instance_uuid)


class DiskChecks(HostPart, abilities.DiskChecks):
    def missing(self) -> set[str]:
        places = self._records.instances_path, self._conf.volume.store_path
        roots = tuple(os.path.join(path, "") for path in places)
        return {
            uuid
            for uuid, paths in self._domains.disk_files().items()
            if any(path.startswith(roots) and _is_missing(path) for path in paths)
        }


def _is_missing(path: str) -> bool:
    """Check whether a file does not exist. Of a disk that cannot be read, this is unknown."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        LOG.warning("It is unknown whether %s exists: %s", path, error.strerror)
    return False
