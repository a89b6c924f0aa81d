"""The image cache of this host, and the images in it that guests use."""

from __future__ import annotations

import contextlib
import dataclasses

import libvirt

from nova_lite.base import exceptions
from nova_lite.objects import Image
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.disks import disk_usage
from nova_lite.virt.libvirt.disks.image_cache import ImageCache
from nova_lite.virt.libvirt.disks.pool_disks import PoolDisks
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.records import file_errors


@dataclasses.dataclass(eq=False)
class CachedImages(HostPart, abilities.Images):
    _cache: ImageCache
    _pool: PoolDisks

    def cache(self, image: Image) -> None:
        self._cache.get(image)

    @file_errors()
    def remove_unused(self, minimum_age: float) -> list[str]:
        self._pool.sweep()
        return self._cache.remove_unused(minimum_age, self._used)

    def _used(self) -> set[str]:
        """Return the images in use, also by domains without a record, which start their kernels themselves."""
        used = disk_usage.used_images(self._records.instances_path)
        for info in self._domains.all():
            with contextlib.suppress(exceptions.DomainNotFound):
                domain, _ = self._domains.get(info.uuid)
                xml = self._connection.call(domain.XMLDesc, libvirt.VIR_DOMAIN_XML_INACTIVE)
                used |= guest_xml.boot_files(xml)
        return used
