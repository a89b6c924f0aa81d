"""Values that cross the message bus, as typed structs.

They have no I/O, and no behaviour beyond what follows from their own fields. There is one module for each subject:

- `instance`, `flavor`, `image`, `metadef`, `keypair`, `block_device`, `server_group`, `usage`, `diagnostics`,
  `console`, `guest_device`: servers
- `backup`, `replication`: backups of servers, and servers with a replica at another site
- `build`, `action`, `migration`, `live_migration`, `incident`: operations: requests, builds, actions, moves, and
  failures of guests
- `host`, `request_spec`, `numa`, `aggregate`, `placement`: placement: services, nodes, host states, requests, and
  views
- `join`, `fencing`, `protection`, `storage`: hosts that join, and hosts that are lost
- `balance`, `health`: load and health of hosts
- `identity`, `network`, `ipv6`, `network_api_resources`, `network_bulk`, `router`, `floating_ip`, `security_group`,
  `volume`, `quota`: other services
- `audit`: events of the audit log
- `listing`, `ready`: parts of lists, and preparation of structs for threads

All are `msgspec.Struct`. Unknown fields are ignored on decode, and new fields get defaults, so that daemons of two
neighbouring versions understand each other. A field whose Python name changed keeps its old name on the wire
(``msgspec.field(name=...)``). Sizes are MiB for memory and swap, GiB for disks. Times are naive UTC.
"""

from __future__ import annotations

import msgspec

from nova_lite.objects.action import ActionCommand, ActionReport, InstanceAction, InstanceActionEvent
from nova_lite.objects.aggregate import Aggregate
from nova_lite.objects.audit import AuditEvent, AuditQuery
from nova_lite.objects.backup import (
    BackupDisk,
    BackupEngine,
    BackupPolicy,
    BackupQuery,
    BackupStatus,
    PolicyStatus,
    RestoreStatus,
    ServerBackup,
    ServerProtection,
)
from nova_lite.objects.balance import BalancePlan, HostLoad, LoadRequest
from nova_lite.objects.block_device import BlockDevice, DeviceState
from nova_lite.objects.build import (
    BatchedCreate,
    BatchedDelete,
    BuildNetworks,
    BuildOutcome,
    BuildRequest,
    BuildResult,
    CreateRequest,
    CreateResult,
    DomainReport,
    DomainVerdict,
    ExpectedDomain,
    NetworkRequest,
    SettledRecords,
    Verdict,
    digest_of_domains,
)
from nova_lite.objects.console import Console, ConsolePort, ConsoleTarget
from nova_lite.objects.diagnostics import CpuDiagnostics, Diagnostics, DiskDiagnostics, NicDiagnostics
from nova_lite.objects.fencing import HostFencing, Lease, LeaseRequest
from nova_lite.objects.flavor import Flavor
from nova_lite.objects.floating_ip import FloatingIp, FloatingIpPool
from nova_lite.objects.guest_device import GuestDevice, GuestDevices
from nova_lite.objects.health import HostHealth, HostProblem, ProblemKind
from nova_lite.objects.host import (
    AvailabilityZone,
    ComputeNode,
    HostAggregate,
    HostReport,
    HostState,
    HostVersion,
    Inventory,
    ReportNumber,
    RetiredServer,
    Retirement,
    Service,
)
from nova_lite.objects.identity import IdentityRecord, IdentityRecords, SealedIdentityRecords
from nova_lite.objects.image import Image, ImageMember
from nova_lite.objects.incident import Incident, IncidentKind
from nova_lite.objects.instance import (
    VIF,
    FixedIp,
    HostedInstance,
    Instance,
    InstanceFault,
    InstanceFilters,
    InstanceQuery,
)
from nova_lite.objects.join import (
    Controller,
    FrontEnd,
    JoinReply,
    JoinRequest,
    JoinState,
    JoinTokenInfo,
    PendingJoin,
    TrustList,
)
from nova_lite.objects.keypair import KeyPair
from nova_lite.objects.listing import ImageQuery, ListQuery
from nova_lite.objects.live_migration import LiveDestination, LiveSource, MigrationControl, MigrationProgress
from nova_lite.objects.metadef import MetadefNamespace
from nova_lite.objects.migration import DiskFile, DiskSource, MigrationFilters, ServerMigration
from nova_lite.objects.network import Network, NetworkRecord, Port, Subnet6
from nova_lite.objects.network_api_resources import AddressGroup, AddressScope, NetworkObject, RbacPolicy, SubnetPool
from nova_lite.objects.network_bulk import NetworkResources
from nova_lite.objects.numa import (
    InstanceNUMACell,
    InstanceNUMATopology,
    NUMACell,
    NUMACellUsage,
    NUMAPages,
    NUMAUsage,
)
from nova_lite.objects.placement import ResourceAllocation, ResourceInventory, ResourceProvider
from nova_lite.objects.quota import ProjectLimits, QuotaUsage
from nova_lite.objects.ready import prepare_decoders
from nova_lite.objects.request_spec import (
    Destination,
    InstanceGroup,
    Placement,
    RequestedDestination,
    RequestSpec,
    Selection,
)
from nova_lite.objects.router import HostRouter, Router, StaticRoute
from nova_lite.objects.security_group import PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.objects.server_group import ServerGroup
from nova_lite.objects.storage import DiskPlace, LeftDisks, StorageReport, StorageView
from nova_lite.objects.usage import InstanceUsage
from nova_lite.objects.volume import (
    BackedUpVolume,
    EncryptedDisk,
    FileMerge,
    NetworkDisk,
    Qcow2Disk,
    Volume,
    VolumeAttachment,
    VolumeBackup,
    VolumeConnection,
    VolumeEncryption,
    VolumeFilters,
    VolumeKey,
    VolumeQosSpecs,
    VolumeSnapshot,
    VolumeSource,
    VolumeTransfer,
    VolumeType,
    VolumeUse,
    VolumeVerb,
    VolumeWork,
)

__all__ = [
    "VIF",
    "ActionCommand",
    "ActionReport",
    "AddressGroup",
    "AddressScope",
    "Aggregate",
    "AuditEvent",
    "AuditQuery",
    "AvailabilityZone",
    "BackedUpVolume",
    "BackupDisk",
    "BackupEngine",
    "BackupPolicy",
    "BackupQuery",
    "BackupStatus",
    "BalancePlan",
    "BatchedCreate",
    "BatchedDelete",
    "BlockDevice",
    "BuildNetworks",
    "BuildOutcome",
    "BuildRequest",
    "BuildResult",
    "ComputeNode",
    "Console",
    "ConsolePort",
    "ConsoleTarget",
    "Controller",
    "CpuDiagnostics",
    "CreateRequest",
    "CreateResult",
    "Destination",
    "DeviceState",
    "Diagnostics",
    "DiskDiagnostics",
    "DiskFile",
    "DiskPlace",
    "DiskSource",
    "DomainReport",
    "DomainVerdict",
    "EncryptedDisk",
    "ExpectedDomain",
    "FileMerge",
    "FixedIp",
    "Flavor",
    "FloatingIp",
    "FloatingIpPool",
    "FrontEnd",
    "GuestDevice",
    "GuestDevices",
    "HostAggregate",
    "HostFencing",
    "HostHealth",
    "HostLoad",
    "HostProblem",
    "HostReport",
    "HostRouter",
    "HostState",
    "HostVersion",
    "HostedInstance",
    "IdentityRecord",
    "IdentityRecords",
    "Image",
    "ImageMember",
    "ImageQuery",
    "Incident",
    "IncidentKind",
    "Instance",
    "InstanceAction",
    "InstanceActionEvent",
    "InstanceFault",
    "InstanceFilters",
    "InstanceGroup",
    "InstanceNUMACell",
    "InstanceNUMATopology",
    "InstanceQuery",
    "InstanceUsage",
    "Inventory",
    "JoinReply",
    "JoinRequest",
    "JoinState",
    "JoinTokenInfo",
    "KeyPair",
    "Lease",
    "LeaseRequest",
    "LeftDisks",
    "ListQuery",
    "LiveDestination",
    "LiveSource",
    "LoadRequest",
    "MetadefNamespace",
    "MigrationControl",
    "MigrationFilters",
    "MigrationProgress",
    "NUMACell",
    "NUMACellUsage",
    "NUMAPages",
    "NUMAUsage",
    "Network",
    "NetworkDisk",
    "NetworkObject",
    "NetworkRecord",
    "NetworkRequest",
    "NetworkResources",
    "NicDiagnostics",
    "PendingJoin",
    "Placement",
    "PolicyStatus",
    "Port",
    "PortFilters",
    "ProblemKind",
    "ProjectLimits",
    "Qcow2Disk",
    "QuotaUsage",
    "RbacPolicy",
    "ReportNumber",
    "RequestSpec",
    "RequestedDestination",
    "ResourceAllocation",
    "ResourceInventory",
    "ResourceProvider",
    "RestoreStatus",
    "RetiredServer",
    "Retirement",
    "Router",
    "SealedIdentityRecords",
    "SecurityGroup",
    "SecurityGroupRule",
    "Selection",
    "ServerBackup",
    "ServerGroup",
    "ServerMigration",
    "ServerProtection",
    "Service",
    "SettledRecords",
    "StaticRoute",
    "StorageReport",
    "StorageView",
    "Subnet6",
    "SubnetPool",
    "TrustList",
    "Verdict",
    "Volume",
    "VolumeAttachment",
    "VolumeBackup",
    "VolumeConnection",
    "VolumeEncryption",
    "VolumeFilters",
    "VolumeKey",
    "VolumeQosSpecs",
    "VolumeSnapshot",
    "VolumeSource",
    "VolumeTransfer",
    "VolumeType",
    "VolumeUse",
    "VolumeVerb",
    "VolumeWork",
    "digest_of_domains",
]

prepare_decoders(
    *(kind for kind in map(globals().get, __all__) if isinstance(kind, type) and issubclass(kind, msgspec.Struct))
)
