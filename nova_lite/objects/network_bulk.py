"""Resources of the network API that one request creates."""

from __future__ import annotations

import msgspec

from nova_lite.objects.network import NetworkRecord, Port
from nova_lite.objects.router import Router
from nova_lite.objects.security_group import SecurityGroup, SecurityGroupRule


class NetworkResources(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Resources that are created in one transaction, each kind in the order of its list.

    A subnet is a `NetworkRecord` with the id of its network.
    """

    networks: list[NetworkRecord] = msgspec.field(default_factory=list)
    subnets: list[NetworkRecord] = msgspec.field(default_factory=list)
    ports: list[Port] = msgspec.field(default_factory=list)
    routers: list[Router] = msgspec.field(default_factory=list)
    security_groups: list[SecurityGroup] = msgspec.field(default_factory=list)
    security_group_rules: list[SecurityGroupRule] = msgspec.field(default_factory=list)
