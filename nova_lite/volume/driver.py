"""The port to volumes: how a compute host gets at their bytes, and changes them.

Who has a volume is the conductor's to say, in its database. Every method may be asked twice.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from oslo_config import cfg

from nova_lite.base import exceptions, plugins
from nova_lite.objects import BlockDevice, Image, VolumeConnection, VolumeSource, VolumeWork

NAMESPACE = "nova_lite.volume.backends"

#: Writes an image's bytes to a file: `nova_lite.image.driver.ImageBackend.fetch`.
FetchImage = Callable[[Image, str], None]

#: Writes volumes as they are at one moment to files, which are as big: paths by the volumes' ids.
CopyVolumes = Callable[[Mapping[str, str]], None]


class VolumeBackend(abc.ABC):
    """Errors are `exception.VirtDriverError` where another host may do better, and `Invalid` where none can."""

    #: Whether volumes are another service's, and have to be connected: then `connect` says where they are, else `path`.
    remote = False

    def __init__(self, conf: cfg.ConfigOpts, fetch_image: FetchImage) -> None:
        self.conf = conf
        self.fetch_image = fetch_image

    def connector(self) -> dict[str, Any]:
        """What the other service has to know of this host to connect a volume to it."""
        raise NotImplementedError

    def connect(self, instance_uuid: str, connection: VolumeConnection) -> VolumeSource:
        """Get at a volume that is connected to this host, for an instance. Raises `VirtDriverError`."""
        raise NotImplementedError

    def disconnect(self, instance_uuid: str, volume_id: str | None = None) -> None:  # noqa: B027 most have nothing to do
        """The instance's guest does not use this volume here any more, or (None) none. Quiet if it never did."""

    @abc.abstractmethod
    def path(self, volume_id: str) -> str:
        """Where the volume is, or would be, on this host: a raw file or a block device."""

    @abc.abstractmethod
    def require(self, volume_id: str) -> str:
        """`path` of a volume that is there; raises `exception.VolumeFileMissing`."""

    @abc.abstractmethod
    def create(self, work: VolumeWork) -> None:
        """Make the volume; one that is there already stays as it is."""

    @abc.abstractmethod
    def delete(self, volume_id: str) -> None: ...

    @abc.abstractmethod
    def extend(self, volume_id: str, size: int) -> None:
        """Have it ``size`` GB, if it is smaller."""

    @abc.abstractmethod
    def create_snapshot(self, volume_id: str, snapshot_id: str) -> None: ...

    def create_snapshots_in_use(self, wanted: Mapping[str, str], copy: CopyVolumes) -> None:
        """Snapshots of volumes that a guest of this host has: ``wanted`` are their ids, by those of the volumes. Those
        that are there already stay as they are."""
        raise exceptions.NotImplementedByDriver(operation="a snapshot of a volume in use")

    @abc.abstractmethod
    def delete_snapshot(self, snapshot_id: str) -> None: ...

    @abc.abstractmethod
    def prepare(self, devices: Sequence[BlockDevice], images: Mapping[str, Image]) -> None:
        """Before a guest is made: the volumes among its devices that are to be made with it are there."""

    def reimage(self, volume_id: str, image: Image, size: int) -> None:
        """Nobody has the volume: have it be of this image from now on, whatever it was. ``size``: GB that it has."""
        raise exceptions.NotImplementedByDriver(operation="making a volume of another image")

    @abc.abstractmethod
    def sweep(self) -> None:
        """Remove what work that was killed has left; called when a host begins to serve."""


def load_backend(conf: cfg.ConfigOpts, fetch_image: FetchImage) -> VolumeBackend:
    """The backend named by ``[volume] backend``; raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.volume.backend], "[volume] backend")
    backend: VolumeBackend = loaded(conf, fetch_image)
    return backend
