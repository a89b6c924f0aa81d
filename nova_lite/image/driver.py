"""The port to images: who holds their metadata, and how a compute host gets at their bytes."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from oslo_config import cfg

from nova_lite.base import plugins
from nova_lite.base.context import RequestContext
from nova_lite.objects import Image

if TYPE_CHECKING:  # nova-lite-manage needs no message bus, which takes long to load
    from nova_lite.conductor.rpcapi import ConductorRPC

NAMESPACE = "nova_lite.image.backends"


class ImageCall(msgspec.Struct, kw_only=True, frozen=True):
    """What a conductor asks of the backend, outside any transaction; asking again is harmless.

    ``host``: who uploads the image, or did. To rotate: the backups of kind ``backup_type`` of the server
    ``instance_uuid``, which belong to ``project_id``; ``rotation`` of them are kept, ``gone`` are the others, where
    they are rows.
    """

    image_id: str
    host: str | None = None
    project_id: str | None = None
    instance_uuid: str = ""
    backup_type: str = ""
    rotation: int = 0
    gone: list[str] = msgspec.field(default_factory=list)


class ImageBackend(abc.ABC):
    """One source of images. The API asks for metadata, on behalf of its user; compute hosts fetch bytes, and upload
    those of snapshots; conductors have an uploaded image be one, or remove it.

    An image never changes its bytes under its id. A source that does not answer is `ServiceUnavailable`.
    """

    #: Whether the images are rows of the conductor's database, which it changes in the transactions of the steps.
    has_local_rows = False

    def __init__(self, conf: cfg.ConfigOpts, conductor: ConductorRPC) -> None:
        self.conf = conf
        self.conductor = conductor

    # --- for the API

    @abc.abstractmethod
    def list_images(self, context: RequestContext, name: str | None) -> list[Image]:
        """What the user may see, newest first; ``name``: only those of exactly this name."""

    @abc.abstractmethod
    def get(self, context: RequestContext, image_id: str) -> Image:
        """`ImageNotFound` also for one that the user may not see."""

    @abc.abstractmethod
    def change_properties(self, context: RequestContext, image_id: str, changes: Mapping[str, str | None]) -> Image:
        """Set properties, and take away those that are None; returns what the image is then. Raises `ImageNotFound`,
        `Forbidden`, or `Invalid` for a name that no property can have."""

    @abc.abstractmethod
    def delete(self, context: RequestContext, image_id: str) -> None:
        """Raises `ImageNotFound`, `Forbidden`, or `Conflict` while it cannot be deleted."""

    @abc.abstractmethod
    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        """What the conductor has to be told of these images, their kernels and ramdisks, by id: only here are they
        looked up with the user's rights. Empty when it knows them itself. Raises `ImageUnavailable`, or `InvalidInput`
        for an image whose kernel or ramdisk is not there."""

    @abc.abstractmethod
    def register(self, context: RequestContext, image: Image) -> Image | None:
        """Have ``image``, queued, as the user's, before the operation that fills it is accepted; returns it with the id
        that it got. None: there was nothing to do, since the operation writes its row itself."""

    @abc.abstractmethod
    def withdraw(self, context: RequestContext, image_id: str) -> None:
        """The operation was not accepted: the image goes away again."""

    # --- for compute hosts

    @abc.abstractmethod
    def fetch(self, image: Image, target: str) -> None:
        """Write the image's bytes to the file ``target`` (mode 0600), checked by its size and checksum.

        Raises `ImageGone` when no host can get them, another `VirtDriverError` when one might; then there is no such
        file.
        """

    @abc.abstractmethod
    def upload(self, image: Image, source: str, host: str, progress: Callable[[int], None]) -> None:
        """Make the file ``source`` the data of the queued image; it is saving meanwhile. ``progress`` hears the bytes
        sent so far, and may end it by raising. A repeat begins again.

        Raises `ImageNotFound` when the image is gone, `ImageUploadFailed`; then nothing of the upload is left.
        """

    @abc.abstractmethod
    def sweep_uploads(self, host: str) -> None:
        """Remove what uploads of this host have left that was killed, where nobody else does."""

    # --- for conductors

    @abc.abstractmethod
    def publish(self, call: ImageCall) -> Image | None:
        """The host has uploaded the image: have it be active. What it is then, unless that is in its row. Raises
        `ImageNotFound`, `ImageFileMissing` or `ImageUnacceptable`."""

    @abc.abstractmethod
    def activate(self, call: ImageCall) -> Image | None:
        """The image has no data of its own: have it be active. Answers and raises as `publish`."""

    @abc.abstractmethod
    def discard(self, call: ImageCall) -> None:
        """Remove the image, whatever it is by now; quiet when it is not there."""

    @abc.abstractmethod
    def rotate(self, call: ImageCall) -> None:
        """Remove the oldest backups; those that cannot be removed are logged and stay."""


def load_backend(conf: cfg.ConfigOpts, conductor: ConductorRPC) -> ImageBackend:
    """The backend named by ``[image] backend``; raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.image.backend], "[image] backend")
    backend: ImageBackend = loaded(conf, conductor)
    return backend
