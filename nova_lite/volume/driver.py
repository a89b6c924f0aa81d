"""Port to the volume service: how compute hosts connect volumes and do the work on their data.

The conductor decides which server has a volume. A repeated call of any method is harmless.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, faults, plugins
from nova_lite.objects import BlockDevice, Image, VolumeConnection, VolumeKey, VolumeSource, VolumeWork

NAMESPACE = "nova_lite.volume.backends"

#: Failpoints of a backend's methods.
POINTS = {
    "create": "volume/create",
    "delete": "volume/delete",
    "extend": "volume/extend",
    "create_snapshot": "volume/snapshot",
    "delete_snapshot": "volume/delete_snapshot",
    "create_snapshots_in_use": "snapshot",
    "create_backup": "volume/backup",
    "create_backup_in_use": "volume/backup_in_use",
    "restore_backup": "volume/restore",
    "delete_backup": "volume/delete_backup",
    "verify_backup": "volume/verify_backup",
}

#: Writes an image's data to a file: `nova_lite.image.driver.ImageBackend.fetch`.
FetchImage = Callable[[Image, str], None]

#: Copies volumes, all at the same moment, to existing files of the same size. Paths by the volumes' ids.
CopyVolumes = Callable[[Mapping[str, str]], None]

#: Returns a context in which the guest does not write to volumes, given by their ids.
HoldVolumes = Callable[[Sequence[str]], contextlib.AbstractContextManager[None]]

#: Returns the key of an encrypted volume that this host has or works on. Raises `VolumeKeyUnavailable`.
GetVolumeKey = Callable[[str], VolumeKey]


def _no_key(volume_id: str) -> VolumeKey:
    raise exceptions.VolumeKeyUnavailable(volume_id=volume_id, reason="this host has no conductor")


class VolumeBackend(abc.ABC):
    """Source of volumes. Raises `VirtDriverError` if another host may succeed, `Invalid` if none can."""

    #: True if another service has the volumes. Then hosts use `connect` to reach a volume, else `path`.
    remote = False

    def __init__(self, conf: cfg.ConfigOpts, fetch_image: FetchImage) -> None:
        self.conf = conf
        self.fetch_image = fetch_image
        #: Returns the key of an encrypted volume. The host sets it.
        self.volume_key: GetVolumeKey = _no_key

    def connector(self) -> dict[str, Any]:
        """Return the properties of this host that the other service needs to connect a volume to it."""
        raise NotImplementedError

    def connect(self, instance_uuid: str, connection: VolumeConnection) -> VolumeSource:
        """Connect a volume to this host for an instance. Return its location. Raises `VirtDriverError`."""
        raise NotImplementedError

    def disconnect(self, instance_uuid: str, volume_id: str | None = None) -> None:  # noqa: B027 optional
        """Disconnect a volume of the instance, or all of them (None). Does nothing if none is connected."""

    def is_in_file(self, instance_uuid: str, volume_id: str) -> bool:
        """Check whether a connected volume is in files of another service that lie on top of each other."""
        return False

    def switched(self, instance_uuid: str, volume_id: str, new_file: str) -> None:
        """Record that the guest uses this file of a volume now, in place of the one below it. See `is_in_file`."""
        raise NotImplementedError

    @abc.abstractmethod
    def path(self, volume_id: str) -> VolumeSource:
        """Return the place that the volume has, or would have: the path of a raw file or block device, or an image."""

    def is_encrypted(self, path: str) -> bool:
        """Check whether the volume at this path is encrypted, in the format LUKS."""
        return False

    @abc.abstractmethod
    def require(self, volume_id: str) -> VolumeSource:
        """Return the `path` of an existing volume. Raises `VolumeFileMissing`."""

    @abc.abstractmethod
    def create(self, work: VolumeWork) -> None:
        """Create the volume, unless it exists."""

    @abc.abstractmethod
    def delete(self, volume_id: str) -> None: ...

    @abc.abstractmethod
    def extend(self, volume_id: str, size: int) -> None:
        """Extend the volume to ``size`` GB, if it is smaller."""

    @abc.abstractmethod
    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None: ...

    def create_snapshots_in_use(self, snapshots: Mapping[str, str], copy: CopyVolumes, hold: HoldVolumes) -> None:
        """Create snapshots of volumes that a guest of this host uses, unless all exist. They are of one moment.

        ``snapshots``: ids of the snapshots by the ids of the volumes. A backend either lets the hypervisor ``copy``
        them, or makes snapshots itself in the context ``hold``, which lasts as short as possible.
        """
        raise exceptions.NotImplementedByDriver(operation="a snapshot of a volume in use")

    @abc.abstractmethod
    def delete_snapshot(self, snapshot_id: str) -> None: ...

    def create_backup(self, work: VolumeWork) -> None:
        """Copy a snapshot, or a volume that no guest has, into the backup ``work.backup_id``, unless it exists."""
        raise exceptions.NotImplementedByDriver(operation="a backup of a volume")

    def create_backup_in_use(self, work: VolumeWork, copy: CopyVolumes, hold: HoldVolumes) -> None:
        """Make a backup of a volume that a guest of this host has, unless it exists.

        ``copy`` and ``hold`` as in `create_snapshots_in_use`.
        """
        raise exceptions.NotImplementedByDriver(operation="a backup of a volume in use")

    def delete_backup(self, data_id: str) -> None:
        """Delete the data of a backup, if there are any."""
        raise exceptions.NotImplementedByDriver(operation="a backup of a volume")

    def verify_backup(self, data_id: str) -> None:
        """Check that the data of a backup are complete. Raises `BackupDamaged`."""
        raise exceptions.NotImplementedByDriver(operation="a backup of a volume")

    def restore_backup(self, work: VolumeWork) -> None:
        """Copy the backup ``work.data_id`` into a volume: a new one, or in place of an unused one's data.

        Raises `BackupDamaged`. Then the volume is as it was.
        """
        raise exceptions.NotImplementedByDriver(operation="a backup of a volume")

    @abc.abstractmethod
    def prepare(self, devices: Sequence[BlockDevice], images: Mapping[str, Image]) -> None:
        """Create the volumes that a new guest's devices define, before the guest is built."""

    def exported(self, volume_id: str, disk_format: str) -> contextlib.AbstractContextManager[str]:
        """Yield the path of a file with the data of an unused volume, in the format ``raw`` or ``qcow2``."""
        raise exceptions.NotImplementedByDriver(operation="an image of a volume")

    def reimage(self, volume_id: str, image: Image, size: int) -> None:
        """Replace the data of an unused volume by an image. ``size``: of the volume in GB."""
        raise exceptions.NotImplementedByDriver(operation="replacing a volume's data by an image")

    @abc.abstractmethod
    def sweep(self) -> None:
        """Remove leftovers of interrupted work, at the start of a host's daemon."""


def load_backend(conf: cfg.ConfigOpts, fetch_image: FetchImage) -> VolumeBackend:
    """Return the backend that ``[volume] backend`` names. Raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.volume.backend], "[volume] backend")
    backend: VolumeBackend = loaded(conf, fetch_image)
    return faults.methods(backend, POINTS)
