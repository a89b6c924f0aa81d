"""Flavors."""

from __future__ import annotations

import msgspec


class Flavor(msgspec.Struct, kw_only=True):
    """Size of a server. ``flavorid`` is the public id, ``id`` that of the row. ``swap`` is in MB, disks are in GB."""

    id: int = 0
    flavorid: str
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int = 0
    swap: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    disabled: bool = False
    description: str | None = None
    extra_specs: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def disk_gb(self) -> int:
        """Disk space of one instance on its host, rounded up to whole GB."""
        return self.root_gb + self.ephemeral_gb + -(-self.swap // 1024)
