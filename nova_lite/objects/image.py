"""Images, as Glance describes them."""

from __future__ import annotations

import datetime

import msgspec


class Image(msgspec.Struct, kw_only=True):
    """``size`` in bytes, ``min_disk`` GB, ``min_ram`` MB; ``checksum`` is SHA-256 in hex.

    ``status``: queued, saving, active, deleted. ``visibility``: public, private, shared, community.
    An AMI-style image names its kernel and ramdisk images in ``properties`` (``kernel_id``, ``ramdisk_id``).
    """

    id: str
    name: str
    status: str = "active"
    disk_format: str = "qcow2"
    container_format: str = "bare"
    size: int = 0
    checksum: str = ""
    min_disk: int = 0
    min_ram: int = 0
    visibility: str = "public"
    owner: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None

    @property
    def kernel_id(self) -> str | None:
        return self.properties.get("kernel_id") or None

    @property
    def ramdisk_id(self) -> str | None:
        return self.properties.get("ramdisk_id") or None
