"""Typed values that cross the bus: no I/O, no behaviour beyond what follows from their own fields.

All are `msgspec.Struct`; unknown fields are ignored on decode, and new fields get defaults, so that daemons of two
neighbouring versions can talk. Sizes are MB (MiB) for memory and swap, GB (GiB) for disks, times are naive UTC.
"""

from __future__ import annotations

import msgspec

from nova_lite.objects.action import ActionCommand, ActionReport, InstanceAction, InstanceActionEvent
from nova_lite.objects.aggregate import Aggregate
from nova_lite.objects.block_device import BlockDevice, DeviceState
from nova_lite.objects.build import (
    BuildNetworks,
    BuildRequest,
    BuildResult,
    CreateRequest,
    CreateResult,
    Creation,
    DomainExpected,
    DomainReport,
    DomainVerdict,
    NetworkRequest,
    Outcome,
    Verdict,
    digest_of_domains,
)
from nova_lite.objects.console import Console, ConsoleTarget
from nova_lite.objects.diagnostics import CpuDiagnostics, Diagnostics, DiskDiagnostics, NicDiagnostics
from nova_lite.objects.flavor import Flavor
from nova_lite.objects.floating_ip import FloatingIp, FloatingIpPool
from nova_lite.objects.host import (
    AvailabilityZone,
    ComputeNode,
    HostAggregate,
    HostReport,
    HostState,
    Inventory,
    RetiredServer,
    Retirement,
    Service,
)
from nova_lite.objects.image import Image
from nova_lite.objects.instance import VIF, Fault, FixedIp, Instance, InstanceFilters, InstanceQuery
from nova_lite.objects.keypair import KeyPair
from nova_lite.objects.live_migration import LiveDestination, LiveSource, MigrationProgress, Wish
from nova_lite.objects.migration import DiskFile, DiskSource, MigrationFilters, ServerMigration
from nova_lite.objects.network import Network, NetworkRecord, Port
from nova_lite.objects.numa import (
    InstanceNUMACell,
    InstanceNUMATopology,
    NUMACell,
    NUMACellUsage,
    NUMAPages,
    NUMAUsage,
)
from nova_lite.objects.quota import Limits, QuotaUsage
from nova_lite.objects.ready import make_ready
from nova_lite.objects.request_spec import (
    Destination,
    InstanceGroup,
    Placement,
    RequestedDestination,
    RequestSpec,
    Selection,
)
from nova_lite.objects.security_group import PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.objects.server_group import ServerGroup
from nova_lite.objects.usage import InstanceUsage
from nova_lite.objects.volume import (
    NetworkDisk,
    Volume,
    VolumeConnection,
    VolumeFilters,
    VolumeSnapshot,
    VolumeSource,
    VolumeUse,
    VolumeVerb,
    VolumeWork,
)

__all__ = [
    "VIF",
    "ActionCommand",
    "ActionReport",
    "Aggregate",
    "AvailabilityZone",
    "BlockDevice",
    "BuildNetworks",
    "BuildRequest",
    "BuildResult",
    "ComputeNode",
    "Console",
    "ConsoleTarget",
    "CpuDiagnostics",
    "CreateRequest",
    "CreateResult",
    "Creation",
    "Destination",
    "DeviceState",
    "Diagnostics",
    "DiskDiagnostics",
    "DiskFile",
    "DiskSource",
    "DomainExpected",
    "DomainReport",
    "DomainVerdict",
    "Fault",
    "FixedIp",
    "Flavor",
    "FloatingIp",
    "FloatingIpPool",
    "HostAggregate",
    "HostReport",
    "HostState",
    "Image",
    "Instance",
    "InstanceAction",
    "InstanceActionEvent",
    "InstanceFilters",
    "InstanceGroup",
    "InstanceNUMACell",
    "InstanceNUMATopology",
    "InstanceQuery",
    "InstanceUsage",
    "Inventory",
    "KeyPair",
    "Limits",
    "LiveDestination",
    "LiveSource",
    "MigrationFilters",
    "MigrationProgress",
    "NUMACell",
    "NUMACellUsage",
    "NUMAPages",
    "NUMAUsage",
    "Network",
    "NetworkDisk",
    "NetworkRecord",
    "NetworkRequest",
    "NicDiagnostics",
    "Outcome",
    "Placement",
    "Port",
    "PortFilters",
    "QuotaUsage",
    "RequestSpec",
    "RequestedDestination",
    "RetiredServer",
    "Retirement",
    "SecurityGroup",
    "SecurityGroupRule",
    "Selection",
    "ServerGroup",
    "ServerMigration",
    "Service",
    "Verdict",
    "Volume",
    "VolumeConnection",
    "VolumeFilters",
    "VolumeSnapshot",
    "VolumeSource",
    "VolumeUse",
    "VolumeVerb",
    "VolumeWork",
    "Wish",
    "digest_of_domains",
]

make_ready(
    *(kind for kind in map(globals().get, __all__) if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
)
