"""The port to images: who holds their metadata, and how a compute host gets at their bytes."""

from __future__ import annotations

import abc
from typing import Any

from oslo_config import cfg
from stevedore import driver as stevedore_driver

from nova_lite import exception
from nova_lite.objects import Image

NAMESPACE = "nova_lite.image.backends"


class ImageBackend(abc.ABC):
    """One source of images. Metadata is asked for in the conductor, files on compute hosts."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self.conf = conf

    @abc.abstractmethod
    def path(self, image: Image) -> str:
        """A readable file on this host with the image's bytes; raises `ImageFileMissing` or `ImageCorrupt`."""


def load_backend(conf: cfg.ConfigOpts) -> ImageBackend:
    """The backend named by ``[image] backend``; raises `ConfigurationError`."""
    name = conf.image.backend
    try:
        plugin: Any = stevedore_driver.DriverManager(NAMESPACE, name, invoke_on_load=False)
    except Exception as error:
        raise exception.ConfigurationError(reason=f"[image] backend = {name} cannot be loaded: {error}") from error
    backend: ImageBackend = plugin.driver(conf)
    return backend
