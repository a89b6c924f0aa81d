"""RPC methods of the conductor, on topic ``conductor``. Only the conductor has access to the database.

`ConductorRPC` has the methods of all parts:

- `servers`: servers and their groups, consoles and guest metadata
- `commands`: reports and questions of hosts about the commands that they execute
- `catalogue`: flavors, key pairs, quotas and usage
- `hosts`: hosts: services, nodes, heartbeats, leases, domains, aggregates, and hosts that join
- `network`: networks, subnets, ports and routers
- `security_groups`: security groups, and the packet filters of hosts
- `floating_ips`: external networks and floating addresses
- `volume`: volumes, their snapshots, attachments and transfers
- `volume_types`: types, quality of service and quotas of volumes, and backups of volumes
- `image`: images, their members and metadata definitions
- `identity`: records of the identity service, and the audit log
- `backups`: backups of servers by policies
- `wings`: parts that a cloud loads only if an operator wants them

Each method runs in one transaction. After `MessagingUnavailable` or `DatabaseUnavailable` (both 503) the result is
unknown, or nothing was done. A retry with the same request id is safe.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from nova_lite import rpc
from nova_lite.base.context import RequestContext
from nova_lite.objects import InstanceFilters, InstanceQuery
from nova_lite.rpcapi.conductor.backups import BackupsRPC
from nova_lite.rpcapi.conductor.catalogue import CatalogueRPC
from nova_lite.rpcapi.conductor.commands import CommandsRPC
from nova_lite.rpcapi.conductor.floating_ips import FloatingIpsRPC
from nova_lite.rpcapi.conductor.hosts import HostsRPC
from nova_lite.rpcapi.conductor.identity import IdentityRPC
from nova_lite.rpcapi.conductor.image import ImageRPC
from nova_lite.rpcapi.conductor.network import NetworkRPC
from nova_lite.rpcapi.conductor.security_groups import SecurityGroupsRPC
from nova_lite.rpcapi.conductor.servers import ServersRPC
from nova_lite.rpcapi.conductor.volume import VolumeRPC
from nova_lite.rpcapi.conductor.volume_types import VolumeTypesRPC
from nova_lite.rpcapi.conductor.wings import WingsRPC

#: Newest version of the conductor's methods.
VERSION = "2.1"


@rpc.service("conductor", version=VERSION)
class ConductorTexts(Protocol):
    """Reads of `ConductorRPC` for a caller that wants the JSON texts of the objects instead of the objects."""

    @rpc.read(rpc.API)
    def instance_get(self, context: RequestContext, instance_uuid: str) -> msgspec.Raw: ...

    @rpc.read(rpc.API)
    def instances_get(self, context: RequestContext, queries: list[InstanceQuery]) -> list[msgspec.Raw]: ...

    @rpc.list_(rpc.API)
    def instance_list(
        self,
        context: RequestContext,
        filters: InstanceFilters,
        limit: int | None,
        marker: str | None,
        sort_keys: list[str],
        sort_dirs: list[str],
    ) -> list[msgspec.Raw]: ...

    @rpc.list_(rpc.API)
    def flavor_list(
        self,
        context: RequestContext,
        is_public: bool | None,
        min_ram: int | None,
        min_disk: int | None,
        limit: int | None,
        marker: str | None,
        sort_key: str,
        sort_dir: str,
        name: str | None = None,
    ) -> list[msgspec.Raw]: ...

    @rpc.read(rpc.API)
    def flavor_get(self, context: RequestContext, flavor_id: str) -> msgspec.Raw: ...


@rpc.service("conductor", version=VERSION)
class ConductorRPC(
    ServersRPC,
    CommandsRPC,
    CatalogueRPC,
    HostsRPC,
    NetworkRPC,
    SecurityGroupsRPC,
    FloatingIpsRPC,
    VolumeRPC,
    VolumeTypesRPC,
    ImageRPC,
    IdentityRPC,
    BackupsRPC,
    WingsRPC,
    Protocol,
):
    """All methods of the conductor."""
