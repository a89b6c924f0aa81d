"""A live migration, as its two hosts and the conductor tell each other of it."""

from __future__ import annotations

import enum

import msgspec

from nova_lite.objects.migration import DiskSource
from nova_lite.objects.numa import InstanceNUMATopology


class LiveSource(msgspec.Struct, kw_only=True, frozen=True):
    """What the destination has to make ready: disks by name, with their size in bytes as the guest sees it; ``files``:
    what it has to fetch besides, because the migration itself does not bring it."""

    driver: str
    disks: dict[str, int]
    files: DiskSource | None = None


class LiveDestination(msgspec.Struct, kw_only=True, frozen=True):
    """What is ready: where host ``host`` at ``address`` keeps each file, by its name. ``whole``: it does not have the
    image that the root disk begins with. ``vnc_listen``, ``serial_listen`` and ``serial_port``: where its consoles are
    to listen there; nothing where they are to stay as they are, or (no port) are not to be reached by TCP.
    ``numa``: its place in the NUMA cells there; ``shared_cpus``: by their ids, the CPUs that guests share in each of
    these, and by "" those of the whole host; nothing where guests are not bound to any."""

    driver: str
    host: str
    generation: int
    address: str
    paths: dict[str, str] = msgspec.field(default_factory=dict)
    whole: bool = False
    vnc_listen: str = ""
    serial_listen: str = ""
    serial_port: int | None = None
    numa: InstanceNUMATopology | None = None
    shared_cpus: dict[str, str] = msgspec.field(default_factory=dict)


class MigrationProgress(msgspec.Struct, kw_only=True, frozen=True):
    """Bytes of memory and of disks."""

    memory_total: int = 0
    memory_processed: int = 0
    memory_remaining: int = 0
    disk_total: int = 0
    disk_processed: int = 0
    disk_remaining: int = 0


class MigrationControl(enum.StrEnum):
    """What the user wants of a live migration that goes on."""

    GO_ON = "go_on"
    ABORT = "abort"
    FORCE_COMPLETE = "force_complete"
