"""Diagnostics of a running guest, as the hypervisor reports them. None stands for an unknown value."""

from __future__ import annotations

import msgspec


class CpuDiagnostics(msgspec.Struct, kw_only=True):
    """Use of a vCPU. ``time``: nanoseconds of host CPU since the guest was started; ``utilisation``: percent."""

    id: int
    time: int | None = None
    utilisation: int | None = None


class NicDiagnostics(msgspec.Struct, kw_only=True):
    """Traffic of an interface since the guest was started. ``name``: the host's end; ``*_rate``: bytes a second."""

    name: str
    mac_address: str | None = None
    rx_octets: int | None = None
    rx_packets: int | None = None
    rx_errors: int | None = None
    rx_drop: int | None = None
    rx_rate: int | None = None
    tx_octets: int | None = None
    tx_packets: int | None = None
    tx_errors: int | None = None
    tx_drop: int | None = None
    tx_rate: int | None = None


class DiskDiagnostics(msgspec.Struct, kw_only=True):
    """Reads and writes of a disk since the guest was started. ``name``: in the guest (vda)."""

    name: str
    read_bytes: int | None = None
    read_requests: int | None = None
    write_bytes: int | None = None
    write_requests: int | None = None
    errors_count: int | None = None


class Diagnostics(msgspec.Struct, kw_only=True):
    """Diagnostics of a guest. ``driver``: "libvirt" or "fake"; ``hypervisor``: "kvm" or "qemu". Memory is in MiB;
    ``memory_used`` is memory of the host."""

    driver: str
    hypervisor: str | None = None
    hypervisor_os: str | None = None
    config_drive: bool | None = None
    cpus: list[CpuDiagnostics] = msgspec.field(default_factory=list)
    nics: list[NicDiagnostics] = msgspec.field(default_factory=list)
    disks: list[DiskDiagnostics] = msgspec.field(default_factory=list)
    memory_maximum: int | None = None
    memory_used: int | None = None
