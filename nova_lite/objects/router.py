"""Routers of the built-in network service."""

from __future__ import annotations

import datetime

import msgspec

from nova_lite.objects.network import Network


class StaticRoute(msgspec.Struct, kw_only=True):
    """Route to the network ``destination`` through the machine ``nexthop``, on a network of the router."""

    destination: str
    nexthop: str


class RouterAddress(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Address of a router in a subnet of its external network. ``address`` "": any one."""

    subnet_id: str | None = None
    address: str = ""


class Router(msgspec.Struct, kw_only=True):
    """Router of a project. ``pool_id``: the external network of its gateway; None: it has no gateway.

    ``enable_snat``: connections through the gateway have an address of the host as their source, unless a floating
    address leads to the guest. ``admin_state_up`` False: it routes nothing. ``addresses``: its own in the external
    network, each of which one host has.
    """

    id: str
    project_id: str
    name: str = ""
    description: str = ""
    pool_id: str | None = None
    enable_snat: bool = True
    routes: list[StaticRoute] = msgspec.field(default_factory=list)
    addresses: list[RouterAddress] = msgspec.field(default_factory=list)
    tags: list[str] | None = None
    admin_state_up: bool = True
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None


class HostRouter(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Router as a host carries it out.

    ``networks``: the networks that it connects on this host. ``external``: it has a gateway, so they have a way out.
    ``neighbours``: by id of a network that spans hosts, the MAC addresses of its guests by address, since hosts do not
    ask for them through tunnels. ``routes``, ``routes6``: its static routes through machines on ``networks``, by IP
    version. ``only``: by id of a network that it connects for one IP
    version only, that version. ``address``: the one of its external addresses that this host has, "" for none.
    """

    id: str
    networks: list[Network] = msgspec.field(default_factory=list)
    external: bool = False
    snat: bool = True
    neighbours: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    only: dict[str, int] = msgspec.field(default_factory=dict)
    routes: list[StaticRoute] = msgspec.field(default_factory=list)
    routes6: list[StaticRoute] = msgspec.field(default_factory=list)
    address: str = ""
