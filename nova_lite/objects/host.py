"""Compute hosts: what they have, what is used, and whether they are alive."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import msgspec

from nova_lite.objects.numa import NUMACell, NUMAUsage


class Service(msgspec.Struct, kw_only=True):
    """A daemon that reports in. ``up``: its lease has not lapsed and it is not forced down."""

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


def admission(epoch: int, identity: str | None) -> str:
    """What a host's registration is called: another one begins when the host was forced down, or is another machine."""
    return f"{epoch}/{identity or ''}"


class Inventory(msgspec.Struct, kw_only=True):
    """What one hypervisor has (totals), as the virt driver reports it. Memory MB, disk GB. ``vcpus``: CPUs that guests
    share; those that are for one vCPU each are in ``numa``, which is empty from hosts that do not tell.

    ``tunnel_ip``: where other hosts send what is for its guests on networks that span hosts; None: there are none.
    """

    node: str
    vcpus: int
    memory_mb: int
    disk_gb: int
    hypervisor_type: str
    hypervisor_version: int = 0
    host_ip: str | None = None
    tunnel_ip: str | None = None
    cpu_arch: str = "x86_64"
    cpu_info: dict[str, Any] = msgspec.field(default_factory=dict)
    supported_hv_types: list[str] = msgspec.field(default_factory=list)
    supported_vm_modes: list[str] = msgspec.field(default_factory=lambda: ["hvm"])
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    disk_available_least: int | None = None
    running_vms: int = 0
    uptime: str | None = None
    numa: list[NUMACell] = msgspec.field(default_factory=list)


class HostReport(msgspec.Struct, kw_only=True):
    """A compute host's heartbeat: its inventories and the work it is at, whose leases the conductor extends.

    ``boot_id`` is new at every start of the daemon. ``building``: instance uuid to generation of builds in progress;
    ``acting``: ids of actions in progress. ``epoch``: what `register_host` answered.
    ``serving``: whether it takes orders yet; a host that does not is alive, and not up.
    ``hypervisor_up``: whether its hypervisor has answered lately; a host whose does not is alive, and not up.
    ``identity``: what tells it from another machine of the same name; empty from hosts that do not tell.
    ``number``: of the reports since that start, from 1 on; 0 from hosts that do not tell.
    ``domains``: where the host asks whether all that it has is what its rows say, `digest_of_domains` of it.
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
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_cpus: int = 0
    reserved_memory_mb: int = 0
    reserved_disk_gb: int = 0


class ComputeNode(msgspec.Struct, kw_only=True):
    """A hypervisor with its totals, its use (the sum of its allocations) and its service. ``numa_used``: by NUMA cell,
    what guests have of it that are bound to it."""

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
    """An aggregate as a host that is in it shows it to the scheduler."""

    id: int
    name: str
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class HostState(msgspec.Struct, kw_only=True):
    """A host as the scheduler sees it. ``generation`` grows with every change of its row: newer wins. ``uuid`` tells
    the row from an earlier one of the same id; empty from conductors that do not say it.

    ``vcpus``, ``memory_mb``, ``disk_gb`` are what may be given out: (total - reserved) * allocation ratio, rounded
    down. The ``*_used`` are sums of allocations. ``instances``: uuids of the instances placed here; ``flavors``: how
    many of them have which flavor (its public id); ``io_ops``: how many have a task under way, as of this row's
    reading. ``failed_builds``: builds in a row that went wrong here. ``disk_available_least``: GB that are free when
    all disks there have grown as far as they may; None: not told, or more is meant to be given out than there is.
    ``numa``: its NUMA cells, ``numa_used``: by the cell's id, what guests have that are bound to it.
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


class RetiredServer(msgspec.Struct, kw_only=True):
    """A server that is on a host that is to be retired, and what becomes of it, or has."""

    uuid: str
    name: str
    vm_state: str
    outcome: str


class Retirement(msgspec.Struct, kw_only=True):
    """``done``: the host is retired; else its ``servers`` are in the way. ``closed``: how many actions, cleanups
    included, have ended by that."""

    done: bool
    servers: list[RetiredServer] = msgspec.field(default_factory=list)
    closed: int = 0


class AvailabilityZone(msgspec.Struct, kw_only=True):
    """``hosts``: host name to its services."""

    name: str
    available: bool
    hosts: dict[str, list[Service]] = msgspec.field(default_factory=dict)
