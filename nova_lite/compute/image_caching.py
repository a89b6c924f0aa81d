"""Fetching images before a guest needs them, one at a time, so that builds keep the disk for themselves."""

from __future__ import annotations

import logging
import threading

from nova_lite.objects import Image
from nova_lite.virt.driver import ComputeDriver, ImageCaching

LOG = logging.getLogger(__name__)


class ImageFetcher:
    """What fails or is lost is only logged: a build fetches what it lacks."""

    def __init__(self, driver: ComputeDriver) -> None:
        self._driver = driver
        self._one_at_a_time = threading.Lock()

    def start(self, images: list[Image]) -> None:
        """Returns at once; a thread of its own does the work."""
        if not isinstance(self._driver, ImageCaching):
            LOG.warning("This hypervisor keeps no images; %d of them are not fetched", len(images))
            return
        threading.Thread(target=self._run, args=(self._driver, images), name="image-cache", daemon=True).start()

    def _run(self, driver: ImageCaching, images: list[Image]) -> None:
        with self._one_at_a_time:
            for image in images:
                try:
                    driver.cache_image(image)
                except Exception as error:
                    LOG.warning("Image %s could not be fetched into the cache: %s", image.id, error)
