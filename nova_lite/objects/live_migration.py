"""Live migration: messages between its two hosts and the conductor."""

from __future__ import annotations

import enum

import msgspec

from nova_lite.objects.cpu import GuestCpu
from nova_lite.objects.migration import DiskSource, PooledDisks
from nova_lite.objects.numa import InstanceNUMATopology
from nova_lite.objects.pci import PCIDevice


class LiveSource(msgspec.Struct, kw_only=True, frozen=True):
    """Source of a live migration. ``disks``: name to size in bytes, for the destination to create. ``files``: files
    that the destination has to fetch, because the hypervisor does not copy them. ``address``: address that the source
    connects from. ``encrypts``: whether host ``host`` has ``live_migration_tls``. ``guest_cpu``: processor and machine
    of the guest, and ``cpu_xml`` the processor in libvirt's words; None and empty: unknown. ``pooled``: disks that
    both hosts have open during the migration. ``has_layers``: the root disk lies on layers of clones, which the
    destination lacks."""

    driver: str
    disks: dict[str, int]
    files: DiskSource | None = None
    address: str = ""
    host: str = ""
    encrypts: bool = False
    guest_cpu: GuestCpu | None = None
    cpu_xml: str = ""
    pooled: PooledDisks | None = None
    has_layers: bool = False


class LiveDestination(msgspec.Struct, kw_only=True, frozen=True):
    """Prepared destination of a live migration: host ``host`` at ``address``.

    ``paths``: name of a disk to its file. ``whole``: the destination lacks the base image, so the root disk is copied
    with it. ``vnc_listen``, ``serial_listen`` and ``serial_port``: listening addresses of the consoles; empty to keep
    those of the source, no port without a console over TCP. ``serial_tls``: the serial console speaks TLS.
    ``spice_listen``: that of SPICE, as ``vnc_listen``.

    ``numa``: the place in the destination's NUMA cells. ``shared_cpus``: shared CPUs by id of the cell, and under ""
    those of the whole host; empty if guests are not pinned. ``below``: path and format of the files
    below the root disk. ``pci``: the PCI devices of the host for the guest, in the order of those at the source.
    """

    driver: str
    host: str
    generation: int
    address: str
    paths: dict[str, str] = msgspec.field(default_factory=dict)
    whole: bool = False
    vnc_listen: str = ""
    serial_listen: str = ""
    spice_listen: str = ""
    serial_port: int | None = None
    serial_tls: bool = False
    numa: InstanceNUMATopology | None = None
    shared_cpus: dict[str, str] = msgspec.field(default_factory=dict)
    below: list[tuple[str, str]] = msgspec.field(default_factory=list)
    pci: list[PCIDevice] = msgspec.field(default_factory=list)


class MigrationProgress(msgspec.Struct, kw_only=True, frozen=True):
    """Progress of a live migration: bytes of memory and of disks. ``queued``: it waits for others of its source."""

    memory_total: int = 0
    memory_processed: int = 0
    memory_remaining: int = 0
    disk_total: int = 0
    disk_processed: int = 0
    disk_remaining: int = 0
    queued: bool = False


class MigrationControl(enum.StrEnum):
    """User's control of a running live migration."""

    CONTINUE = "go_on"
    ABORT = "abort"
    FORCE_COMPLETE = "force_complete"
