"""The port to images: who holds their metadata, and how a compute host gets at their bytes."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from oslo_config import cfg

from nova_lite import plugins
from nova_lite.context import RequestContext
from nova_lite.objects import Image

if TYPE_CHECKING:  # nova-lite-manage needs no message bus, which takes long to load
    from nova_lite.conductor.rpcapi import ConductorRPC

NAMESPACE = "nova_lite.image.backends"


class ImageBackend(abc.ABC):
    """One source of images. The API asks for metadata, on behalf of its user; compute hosts fetch bytes.

    An image never changes its bytes under its id. A source that does not answer is `ServiceUnavailable`.
    """

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
    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        """What the conductor has to be told of these images, their kernels and ramdisks, by id: only here are they
        looked up with the user's rights. Empty when it knows them itself. Raises `ImageUnavailable`, or `InvalidInput`
        for an image whose kernel or ramdisk is not there."""

    # --- for compute hosts

    @abc.abstractmethod
    def fetch(self, image: Image, target: str) -> None:
        """Write the image's bytes to the file ``target`` (mode 0600), checked by its size and checksum.

        Raises `ImageFileMissing` or `ImageCorrupt` when no host can get them, `VirtDriverError` when another one
        might; then there is no such file.
        """


def load_backend(conf: cfg.ConfigOpts, conductor: ConductorRPC) -> ImageBackend:
    """The backend named by ``[image] backend``; raises `ConfigurationError`."""
    (loaded,) = plugins.load(NAMESPACE, [conf.image.backend], "[image] backend")
    backend: ImageBackend = loaded(conf, conductor)
    return backend
