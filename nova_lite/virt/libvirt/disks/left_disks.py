"""Disks of an evacuated server that its last host has left in a directory or a pool that this host shares.

Nothing here is believed because of its name. The directory must contain a mark that the lost host has reported to the
conductor, and the server's directory must have the record of the generation that ran there. Disks in a pool of Ceph
have the generation in their names.
"""

from __future__ import annotations

import logging
import os
import stat

from nova_lite.base import exceptions
from nova_lite.objects import DiskPlace, LeftDisks
from nova_lite.virt.libvirt.disks.marks import Marks
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.disks.pool_marks import PoolMarks
from nova_lite.virt.libvirt.records import Records, TakenFrom, key_of

LOG = logging.getLogger(__name__)


class LeftDisksFinder:
    """``pool``: hosts share it instead of a directory."""

    def __init__(self, records: Records, marks: Marks | PoolMarks, pool: PoolDisks | None = None) -> None:
        self._records = records
        self._marks = marks
        self._pool = pool

    def take(self, instance_uuid: str, generation: int, image_ids: list[str], left: LeftDisks) -> str | None:
        """Take the disks, and return their directory. None: they are not here, and new ones may be made.

        Raises `DisksNotHere` if new ones must not be made.
        """
        reason = "no mark of its last host is there that the host has reported"
        places = [(place.host, place.generation) for place in left.places if self._is_shared_with(place)]
        if places and self._pool is not None:
            directory = self._clone(self._pool, instance_uuid, generation, image_ids, places)
            if directory is not None:
                return directory
            reason = f"pool {self._pool.pool.name} has no disks of that generation"
        elif places:
            found = self._records.find_left(instance_uuid, set(places))
            if found is not None:
                path, record = found
                _check_files(instance_uuid, path)
                directory = self._records.take(path, record, generation, image_ids)
                LOG.info("Instance %s: it gets the disks that host %s has left", instance_uuid, record.host)
                return directory
            reason = "no directory there has the record of its last host"
        if left.required:
            raise exceptions.DisksNotHere(instance_uuid=instance_uuid, reason=reason)
        LOG.warning("Instance %s: it gets new disks, because %s", instance_uuid, reason)
        return None

    def _clone(
        self, pool: PoolDisks, instance_uuid: str, generation: int, image_ids: list[str], places: list[tuple[str, int]]
    ) -> str | None:
        """Make clones of the disks at the first of these places that has any, and return the server's directory."""
        for host, number in places:
            old = key_of(instance_uuid, number)
            if pool.has_any(old):
                directory = self._records.create(
                    instance_uuid, generation, image_ids, beside=True, pooled=True, taken=TakenFrom(host, number, "")
                )
                pool.clone(old, key_of(instance_uuid, generation))
                LOG.info("Instance %s: it gets clones of the disks that host %s has left", instance_uuid, host)
                return directory
        return None

    def _is_shared_with(self, place: DiskPlace) -> bool:
        """Check whether the directory has a mark of the host that the host has reported to the conductor."""
        return not set(place.marks).isdisjoint(self._marks.read(place.host))


def _check_files(instance_uuid: str, path: str) -> None:
    """Raise `DisksNotHere` for anything but plain files: a link could lead to any file of this host."""
    for name in os.listdir(path):
        found = os.lstat(os.path.join(path, name))
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            raise exceptions.DisksNotHere(instance_uuid=instance_uuid, reason=f"{name} there is not a plain file")
