"""Typed values that cross the bus: no I/O, no behaviour beyond what follows from their own fields.

All are `msgspec.Struct`; unknown fields are ignored on decode, and new fields get defaults, so that daemons of two
neighbouring versions can talk. Sizes are MB (MiB) for memory and swap, GB (GiB) for disks, times are naive UTC.
"""

from __future__ import annotations

import msgspec

from nova_lite.objects.action import ActionTicket, InstanceAction, InstanceActionEvent
from nova_lite.objects.aggregate import Aggregate
from nova_lite.objects.build import (
    BuildNetworks,
    BuildRequest,
    BuildResult,
    CreateRequest,
    CreateResult,
    DomainExpected,
    DomainReport,
    DomainVerdict,
    NetworkRequest,
    Outcome,
    Verdict,
)
from nova_lite.objects.console import Console, ConsoleTarget
from nova_lite.objects.diagnostics import CpuDiagnostics, Diagnostics, DiskDiagnostics, NicDiagnostics
from nova_lite.objects.flavor import Flavor
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
from nova_lite.objects.instance import VIF, Fault, Instance, InstanceFilters
from nova_lite.objects.keypair import KeyPair
from nova_lite.objects.live_migration import LiveDestination, LiveSource, MigrationProgress, Wish
from nova_lite.objects.migration import DiskFile, DiskSource, MigrationFilters, ServerMigration
from nova_lite.objects.network import Network
from nova_lite.objects.quota import Limits, QuotaUsage
from nova_lite.objects.ready import make_ready
from nova_lite.objects.request_spec import Destination, InstanceGroup, RequestedDestination, RequestSpec, Selection
from nova_lite.objects.server_group import ServerGroup
from nova_lite.objects.usage import InstanceUsage

__all__ = [
    "VIF",
    "ActionTicket",
    "Aggregate",
    "AvailabilityZone",
    "BuildNetworks",
    "BuildRequest",
    "BuildResult",
    "ComputeNode",
    "Console",
    "ConsoleTarget",
    "CpuDiagnostics",
    "CreateRequest",
    "CreateResult",
    "Destination",
    "Diagnostics",
    "DiskDiagnostics",
    "DiskFile",
    "DiskSource",
    "DomainExpected",
    "DomainReport",
    "DomainVerdict",
    "Fault",
    "Flavor",
    "HostAggregate",
    "HostReport",
    "HostState",
    "Image",
    "Instance",
    "InstanceAction",
    "InstanceActionEvent",
    "InstanceFilters",
    "InstanceGroup",
    "InstanceUsage",
    "Inventory",
    "KeyPair",
    "Limits",
    "LiveDestination",
    "LiveSource",
    "MigrationFilters",
    "MigrationProgress",
    "Network",
    "NetworkRequest",
    "NicDiagnostics",
    "Outcome",
    "QuotaUsage",
    "RequestSpec",
    "RequestedDestination",
    "RetiredServer",
    "Retirement",
    "Selection",
    "ServerGroup",
    "ServerMigration",
    "Service",
    "Verdict",
    "Wish",
]

make_ready(
    *(kind for kind in map(globals().get, __all__) if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
)
