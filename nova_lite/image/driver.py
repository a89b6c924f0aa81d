"""Port to the image service: metadata for the API, data for compute hosts, changes for conductors."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, faults, plugins
from nova_lite.base.context import RequestContext
from nova_lite.objects import Image

if TYPE_CHECKING:  # the message bus takes long to load, and nova-lite-manage does not need it
    from nova_lite.rpcapi.conductor import ConductorRPC

NAMESPACE = "nova_lite.image.backends"

#: Failpoints of a backend's methods.
POINTS = {verb: f"image/{verb}" for verb in ("publish", "activate", "discard", "rotate")} | {"upload": "upload"}


class ImageCall(msgspec.Struct, kw_only=True, frozen=True):
    """Request of a conductor to the backend, outside any transaction. A repeated request is harmless.

    ``host``: the host that uploads the image, in the format ``disk_format``. For `ImageBackend.rotate`: keep
    ``rotation`` backups of the type ``backup_type`` of the server ``instance_uuid`` in ``project_id``.
    ``removed_ids``: ids of the other backups, if images are rows of the database.
    """

    image_id: str
    host: str | None = None
    disk_format: str = "qcow2"
    project_id: str | None = None
    instance_uuid: str = ""
    backup_type: str = ""
    rotation: int = 0
    removed_ids: list[str] = msgspec.field(default_factory=list)


class ImageBackend(abc.ABC):
    """Source of images.

    The API reads and changes metadata with the user's rights. Compute hosts download data, and upload the data of
    snapshots. Conductors publish or remove an uploaded image. The data of an image never change. Methods raise
    `ServiceUnavailable` if the source does not respond.
    """

    #: True if images are rows of the conductor's database. Its transactions then change them.
    has_local_rows = False

    def __init__(self, conf: cfg.ConfigOpts, conductor: ConductorRPC) -> None:
        self.conf = conf
        self.conductor = conductor

    # --- for the API

    @abc.abstractmethod
    def list_images(self, context: RequestContext, name: str | None, marker: str | None = None) -> Iterator[Image]:
        """Yield the images that the user may see, the newest first, and read no more of them than the caller takes.

        ``name``: only images with exactly this name. ``marker``: only those after the image with this id. Raises
        `MarkerNotFound`.
        """

    @abc.abstractmethod
    def get(self, context: RequestContext, image_id: str) -> Image:
        """Return an image. Raises `ImageNotFound`, also for an image that the user may not see."""

    @abc.abstractmethod
    def change_properties(self, context: RequestContext, image_id: str, changes: Mapping[str, str | None]) -> Image:
        """Set properties, and remove properties whose value is None. Return the changed image.

        Raises `ImageNotFound`, `Forbidden`, or `Invalid` for an impossible name.
        """

    @abc.abstractmethod
    def delete(self, context: RequestContext, image_id: str) -> None:
        """Delete an image. Raises `ImageNotFound`, `Forbidden`, or `Conflict` while it cannot be deleted."""

    @abc.abstractmethod
    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        """Return these images with their kernels and ramdisks by id, for the conductor, which has no user's rights.

        Empty if the conductor has the images in its database. Raises `ImageUnavailable`, or `InvalidInput` for an image
        whose kernel or ramdisk does not exist.
        """

    @abc.abstractmethod
    def register(self, context: RequestContext, image: Image) -> Image | None:
        """Create the user's queued ``image`` before the operation that fills it is accepted, and return it with its id.

        None if the operation itself stores the image.
        """

    @abc.abstractmethod
    def withdraw(self, context: RequestContext, image_id: str) -> None:
        """Delete a registered image whose operation was refused."""

    # --- for compute hosts

    @abc.abstractmethod
    def fetch(self, image: Image, target: str) -> None:
        """Write the image's data to the file ``target`` (mode 0600), and check size and checksum.

        Raises `ImageGone` if no host can read the data, another `VirtDriverError` if other hosts might. After an error
        the file does not exist.
        """

    @abc.abstractmethod
    def upload(self, image: Image, source: str, host: str, progress: Callable[[int], None]) -> None:
        """Upload the file ``source`` as the data of the queued image, which is ``saving`` meanwhile.

        ``progress`` receives the number of bytes sent, and stops the upload by raising. A repeated upload starts again.
        Raises `ImageNotFound` if the image was deleted, or `ImageUploadFailed`. Then nothing of the upload remains.
        """

    @abc.abstractmethod
    def sweep_uploads(self, host: str) -> None:
        """Remove leftovers of this host's interrupted uploads, unless the service does so itself."""

    # --- for conductors

    @abc.abstractmethod
    def register_for_owner(self, image: Image) -> Image | None:
        """Create the queued ``image``, with its id, for the project that owns it, as `register` does for a user.

        A repeated call returns the image of the first.
        """

    @abc.abstractmethod
    def publish(self, call: ImageCall) -> Image | None:
        """Activate an uploaded image. Return it, or None if the conductor's database has it.

        Raises `ImageNotFound`, `ImageFileMissing` or `ImageUnacceptable`.
        """

    @abc.abstractmethod
    def activate(self, call: ImageCall) -> Image | None:
        """Activate an image without data. Returns and raises like `publish`."""

    @abc.abstractmethod
    def discard(self, call: ImageCall) -> None:
        """Remove the image in any state. Does nothing if it does not exist."""

    @abc.abstractmethod
    def rotate(self, call: ImageCall) -> None:
        """Remove the oldest backups. Logs backups that cannot be removed."""


def load_backend(conf: cfg.ConfigOpts, conductor: ConductorRPC) -> ImageBackend:
    """Return the backend that ``[image] backend`` names. Raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.image.backend], "[image] backend")
    backend: ImageBackend = loaded(conf, conductor)
    return faults.methods(backend, POINTS, _refused)


def _refused() -> exceptions.ServiceUnavailable:
    return exceptions.ServiceUnavailable("A test refuses the call to the image backend.")
