"""Compute hosts: capacity, use, and state."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from nova_lite.objects.health import HostProblem
from nova_lite.objects.numa import NUMACell, NUMAUsage
from nova_lite.objects.pci import PCIDevice


class Service(msgspec.Struct, kw_only=True):
    """Daemon that sends heartbeats. ``up``: its lease has not expired, and it is not forced down."""

    id: int
    uuid: str
    host: str
    binary: str
    topic: str
    up: bool
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False
    availability_zone: str = "internal"
    last_seen_up: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    created_at: datetime.datetime | None = None
    version: str = ""
    version_since: datetime.datetime | None = None


def admission(epoch: int, identity: str | None) -> str:
    """Return the name of a registration of a host. It changes if the host is forced down, or replaced by another
    machine."""
    return f"{epoch}/{identity or ''}"


class Inventory(msgspec.Struct, kw_only=True):
    """Inventory of one hypervisor: its totals, as the virt driver reports them. Memory is in MB, disk in GB.

    ``vcpus``: CPUs that guests share. CPUs for one vCPU each are in ``numa``.
    ``tunnel_ip``: the address that other hosts send tunnelled traffic to; None: this host has no tunnels. ``networks``:
    ranges that the host uses outside of the cloud's bridges (`nova_lite.base.machine_networks`). ``pci``: devices that
    guests may have, used or not.
    """

    node: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    hypervisor_type: str
    hypervisor_version: int = 0
    host_ip: str | None = None
    tunnel_ip: str | None = None
    networks: list[str] = msgspec.field(default_factory=list)
    cpu_arch: str = "x86_64"
    cpu_info: dict[str, Any] = msgspec.field(default_factory=dict)
    supported_hv_types: list[str] = msgspec.field(default_factory=list)
    supported_vm_modes: list[str] = msgspec.field(default_factory=lambda: ["hvm"])
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    disk_available_least: int | None = None
    running_vms: int = 0
    uptime: str | None = None
    numa: list[NUMACell] = msgspec.field(default_factory=list)
    pci: list[PCIDevice] = msgspec.field(default_factory=list)


class HostReport(msgspec.Struct, kw_only=True):
    """Heartbeat of a compute host: its inventories, and the work whose leases the conductor extends.

    ``boot_id`` is new at every start of the daemon. ``building``: instance uuid to generation of builds in progress.
    ``acting``: ids of actions in progress. ``epoch``: the reply of `register_host`. ``number``: grows with each report
    since the start, from 1. ``identity``: distinguishes the machine from another one of the same
    name.

    A host is alive but not up unless both ``serving`` (it accepts commands) and ``hypervisor_up`` (its hypervisor has
    replied lately) are true. ``domains``: the host's `digest_of_domains`; then the conductor replies whether it matches
    the rows. ``health``: all problems of the machine, if they have changed since a heartbeat was confirmed; otherwise
    None.
    """

    host: str
    boot_id: str
    inventories: list[Inventory]
    building: dict[str, int] = msgspec.field(default_factory=dict)
    acting: list[int] = msgspec.field(default_factory=list)
    version: str = ""
    epoch: int = 0
    serving: bool = True
    identity: str = ""
    hypervisor_up: bool = True
    number: int = 0
    domains: str | None = None
    health: list[HostProblem] | None = None
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_cpus: int = 0
    reserved_memory_mb: int = 0
    reserved_disk_gb: int = 0


class ReportNumber(msgspec.Struct, kw_only=True, frozen=True):
    """Number of a report among all heartbeats and comparisons since the start of the daemon (``boot_id``)."""

    boot_id: str
    number: int


class ComputeNode(msgspec.Struct, kw_only=True):
    """Hypervisor with its totals, its use (the sum of its allocations) and its service. ``numa_used``: use by NUMA
    cell."""

    id: int
    uuid: str
    host: str
    node: str
    service: Service
    inventory: Inventory
    vcpus_used: int = 0
    memory_mb_used: int = 0
    disk_gb_used: int = 0
    running_vms: int = 0
    current_workload: int = 0
    generation: int = 0
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    numa_used: NUMAUsage = msgspec.field(default_factory=dict)


class HostAggregate(msgspec.Struct, kw_only=True):
    """Aggregate of a host, as the scheduler sees it."""

    id: int
    name: str
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class HostState(msgspec.Struct, kw_only=True):
    """State of a compute node, as the scheduler sees it.

    ``generation`` grows with every change of its row: the newest wins. ``uuid`` identifies the row, because ids are
    reused.

    ``vcpus``, ``memory_mb`` and ``disk_gb`` are capacities: (total - reserved) * allocation ratio, rounded down. The
    ``*_used`` are sums of allocations. ``disk_available_least``: GB that remain free if all disks grow to their full
    size; None: unknown, or disk space is overcommitted.

    ``instances``: uuids of the instances placed here. ``flavors``: public flavor id to number of instances. ``io_ops``:
    number of instances with a task when the row was read. ``failed_builds``: builds that failed here in a row.
    ``numa``: NUMA cells of the host; ``numa_used``: use by id of the cell. ``pci``: devices for guests; ``pci_used``:
    addresses of the claimed ones.
    """

    id: int
    host: str
    node: str
    generation: int
    up: bool
    disabled: bool
    vcpus: int
    memory_mb: int
    disk_gb: int
    vcpus_used: int = 0
    memory_mb_used: int = 0
    disk_gb_used: int = 0
    availability_zone: str = "nova"
    hypervisor_type: str = ""
    hypervisor_version: int = 0
    cpu_arch: str = "x86_64"
    supported_hv_types: list[str] = msgspec.field(default_factory=list)
    supported_vm_modes: list[str] = msgspec.field(default_factory=list)
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    instances: Sequence[str] = msgspec.field(default_factory=list)
    deleted: bool = False
    flavors: dict[str, int] = msgspec.field(default_factory=dict)
    io_ops: int = 0
    failed_builds: int = 0
    host_ip: str | None = None
    aggregates: list[HostAggregate] = msgspec.field(default_factory=list)
    uuid: str = ""
    disk_available_least: int | None = None
    numa: list[NUMACell] = msgspec.field(default_factory=list)
    numa_used: NUMAUsage = msgspec.field(default_factory=dict)
    cpu_allocation_ratio: float = 1.0
    ram_allocation_ratio: float = 1.0
    pci: list[PCIDevice] = msgspec.field(default_factory=list)
    pci_used: list[str] = msgspec.field(default_factory=list)


class HostVersion(msgspec.Struct, kw_only=True):
    """Version of a compute node, by which a scheduler finds that its state of it is current.

    ``generation`` grows with every change of the node's row, except those of the other two: ``io_ops`` and
    ``disk_available_least`` have the meaning that they have in `HostState`.
    """

    id: int
    generation: int
    io_ops: int = 0
    disk_available_least: int | None = None


class RetiredServer(msgspec.Struct, kw_only=True):
    """Server on a host that is being retired. ``outcome``: what is done, or was done, with it."""

    uuid: str
    name: str
    vm_state: str
    outcome: str


class Retirement(msgspec.Struct, kw_only=True):
    """Progress of retiring a host. ``done``: the host is retired; otherwise ``servers`` prevent it. ``closed``: number
    of actions, cleanups included, that it ended."""

    done: bool
    servers: list[RetiredServer] = msgspec.field(default_factory=list)
    closed: int = 0


class AvailabilityZone(msgspec.Struct, kw_only=True):
    """Availability zone. ``hosts``: name of a host to its services."""

    name: str
    available: bool
    hosts: dict[str, list[Service]] = msgspec.field(default_factory=dict)
