"""Pure checks that several operations share: does an image fit a flavor, are metadata and files within their limits.

Each raises the error that the user gets.
"""

from __future__ import annotations

from collections.abc import Mapping

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.db.core.models import Instance
from nova_lite.image.snapshots import DEVICES
from nova_lite.objects import Flavor, Image, protection
from nova_lite.operations.states import PowerState

_GIB = 1024**3


def boot_image(images: Mapping[str, Image], image_id: str, needs_data: bool = True) -> tuple[Image, dict[str, Image]]:
    """Return an active image, and its kernel and ramdisk by id. ``images``: by id, as the user sees them.

    An image that names snapshots of volumes has no data. It is accepted unless ``needs_data``.
    """
    image = images.get(image_id)
    if image is None:
        raise exceptions.ImageUnavailable()
    if image.status != "active":
        raise exceptions.ImageNotActive(image_id=image.id)
    if needs_data and not image.size and DEVICES in image.properties:
        raise exceptions.ImageUnacceptable(
            image_id=image.id, reason="it has no data, it names snapshots of volumes: create a server of it"
        )
    return image, boot_parts(images, image)


def boot_parts(images: Mapping[str, Image], image: Image) -> dict[str, Image]:
    """Return kernel and ramdisk of the image by id."""
    parts = {}
    for part, part_id in image.boot_parts():
        if part_id not in images:
            raise exceptions.InvalidInput(reason=f"image {image.id} names a {part} {part_id} that does not exist")
        parts[part_id] = images[part_id]
    return parts


def require_free_port(instance: Instance) -> None:
    """Raise `NoFreePort` if the guest runs, and its machine has no place for another device."""
    is_on = instance.power_state in (PowerState.RUNNING, PowerState.PAUSED)
    if is_on and (instance.guest_devices or {}).get("free_ports") == 0:
        raise exceptions.NoFreePort(instance_id=instance.uuid)


def least_disk_gb(image: Image) -> int:
    """Return the size in GB that a disk made of the image has at least.

    A file in qcow2 format may be larger than its disk, so its own size counts only if that of the disk is unknown.
    """
    size = image.size if image.virtual_size is None else image.virtual_size
    return max(image.min_disk, -(-size // _GIB))


def check_flavor_fits(image: Image, flavor: Flavor) -> None:
    """Check disk, memory and hardware of a server that boots from a local disk. A root disk of 0 GB has no limit."""
    needed_gb = least_disk_gb(image)
    if flavor.root_gb and needed_gb > flavor.root_gb:
        raise exceptions.FlavorDiskTooSmall(flavor_size=flavor.root_gb, image_min_disk=needed_gb)
    check_guest_fits(image, flavor)


def check_guest_fits(image: Image, flavor: Flavor) -> None:
    """Check memory, and that one guest can have the hardware that both flavor and image ask for."""
    if image.min_ram > flavor.memory_mb:
        raise exceptions.FlavorMemoryTooSmall(flavor_mb=flavor.memory_mb, image_mb=image.min_ram)
    hardware.resolve(flavor, image)


def check_limits(limits: Mapping[str, int], metadata: Mapping[str, str], injected_files: Mapping[str, str]) -> None:
    """Check the limits that count within one request; -1 is no limit. ``injected_files``: path to base64."""
    protection.check(metadata)
    if 0 <= limits["metadata_items"] < len(metadata):
        raise exceptions.MetadataLimitExceeded(allowed=limits["metadata_items"])
    if 0 <= limits["injected_files"] < len(injected_files):
        raise exceptions.InjectedFileLimitExceeded(reason="Maximum number of injected files exceeded")
    for path, content in injected_files.items():
        if 0 <= limits["injected_file_path_length"] < len(path):
            raise exceptions.InjectedFileLimitExceeded(reason=f"Injected file path too long: {path[:64]}...")
        if 0 <= limits["injected_file_content_bytes"] < len(content) * 3 // 4:
            raise exceptions.InjectedFileLimitExceeded(reason=f"Injected file content too long: {path}")
