"""Images, in the words of Glance."""

from __future__ import annotations

import datetime

import msgspec

#: The property of images whose guests run qemu's guest agent.
GUEST_AGENT = "hw_qemu_guest_agent"


class Image(msgspec.Struct, kw_only=True):
    """Image that servers are made of.

    ``size`` is in bytes, ``min_disk`` in GB, ``min_ram`` in MB. ``checksum``: in hex, by the algorithm
    ``hash_algorithm`` of hashlib. ``md5``: in hex, for clients that compare it; "" if unknown. ``virtual_size``: bytes
    of the disk that a guest sees, None if unknown. ``protected``: it cannot be deleted. ``hidden``: lists leave
    it out. ``member_status``: of the caller's project, if the image is shared with it. ``status``: queued, saving,
    active, deleted, and further ones of Glance.
    ``visibility``: public, private, shared, community. An AMI-style image names its kernel and ramdisk images in
    ``properties`` (``kernel_id``, ``ramdisk_id``).
    """

    id: str
    name: str
    status: str = "active"
    disk_format: str = "qcow2"
    container_format: str = "bare"
    size: int = 0
    checksum: str = ""
    hash_algorithm: str = "sha256"
    min_disk: int = 0
    min_ram: int = 0
    visibility: str = "public"
    owner: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    tags: list[str] = msgspec.field(default_factory=list)
    md5: str = ""
    virtual_size: int | None = None
    member_status: str | None = None
    protected: bool = False
    hidden: bool = False
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None

    @property
    def kernel_id(self) -> str | None:
        return self.properties.get("kernel_id") or None

    @property
    def ramdisk_id(self) -> str | None:
        return self.properties.get("ramdisk_id") or None

    def boot_parts(self) -> list[tuple[str, str]]:
        """Return the images that this one needs to boot: ``("kernel", id)``, ``("ramdisk", id)``."""
        parts = ((part, self.properties.get(f"{part}_id")) for part in ("kernel", "ramdisk"))
        return [(part, image_id) for part, image_id in parts if image_id]

    @property
    def needs_config_drive(self) -> bool:
        return self.properties.get("img_config_drive") == "mandatory"

    def as_metadata(self) -> dict[str, str]:
        """Return the properties in the form in which an instance keeps them in its system metadata."""
        return {f"image_{name}": str(value)[:255] for name, value in self.properties.items()}


class ImageMember(msgspec.Struct, kw_only=True):
    """Project that an image is shared with. ``status``: pending, accepted or rejected."""

    image_id: str
    member_id: str
    status: str
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
