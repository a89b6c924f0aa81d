"""Image cache of this host: fetches images in advance, and removes images that have not been used for long.

Images are fetched one at a time, so that builds keep most of the disk's bandwidth.
"""

from __future__ import annotations

import logging
import threading

from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)


class ImageFetcher:
    """Fetches and removes images. Errors are only logged, because a build fetches a missing image itself."""

    def __init__(self, driver: ComputeDriver) -> None:
        self._driver = driver
        self._one_at_a_time = threading.Lock()

    def start(self, images: list[Image]) -> None:
        """Fetch images in a separate thread. Returns immediately."""
        if not self._driver.images:
            LOG.warning("This hypervisor has no image cache; %d images are not fetched", len(images))
            return
        threading.Thread(target=self._run, args=(images,), name="image-cache", daemon=True).start()

    def remove_unused(self, minimum_age: float) -> None:
        """Remove images that were neither used nor requested for ``minimum_age`` seconds."""
        if not self._driver.images:
            return
        try:
            removed = self._driver.images.remove_unused(minimum_age)
        except exceptions.VirtDriverError as error:
            LOG.warning("No image is removed from the cache, because the images in use are unknown: %s", error.message)
            return
        for image_id in removed:
            LOG.info("Image %s is removed from the cache: it has not been used for long", image_id)

    def _run(self, images: list[Image]) -> None:
        with self._one_at_a_time:
            for image in images:
                try:
                    self._driver.images.cache(image)
                except Exception as error:
                    LOG.warning("Image %s could not be fetched into the cache: %s", image.id, error)
