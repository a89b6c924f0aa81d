"""Command ``network``: networks of the built-in backend."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from operator import attrgetter

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.cmd.manage import accounts, packet_trace
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import builtin_networks, networks, overlaps
from nova_lite.network import factory
from nova_lite.objects import Network, NetworkRecord

_SHOWN = (
    "id", "name", "cidr", "gateway", "dns", "bridge", "start", "end", "is_default", "project_id", "vni", "mtu",
    "cidr6",
)  # fmt: skip


def register(commands: Commands) -> None:
    noun = commands.noun("network", "Create, list and delete networks of the built-in backend.")
    create_ = commands.verb(noun, "create", "Create a network and print its id.", create)
    create_.add_argument("name")
    create_.add_argument("cidr", metavar="CIDR", help="IPv4 range, for example 10.20.0.0/24")
    create_.add_argument(
        "--cidr6", metavar="CIDR6", help="additional IPv6 /64, for example fd00:20::/64; default: none"
    )
    create_.add_argument("--gateway", help="default: the first address; 'none': no gateway")
    create_.add_argument("--dns", action="append", default=[], metavar="ADDRESS", help="may be repeated")
    create_.add_argument("--bridge", help="name of the bridge on the hosts; default: derived from the id")
    create_.add_argument("--start", metavar="ADDRESS", help="first address for servers")
    create_.add_argument("--end", metavar="ADDRESS", help="last address for servers")
    create_.add_argument(
        "--mtu",
        type=at_least(factory.MIN_MTU, factory.MAX_MTU),
        help=f"{factory.MIN_MTU} to {factory.MAX_MTU}; "
        f"default: {factory.ETHERNET_MTU}, or {factory.TUNNEL_MTU} with --vxlan",
    )
    create_.add_argument(
        "--vxlan",
        type=at_least(1),
        metavar="VNI",
        help="VNI that connects guests of all hosts; default: the network connects guests of one host",
    )
    create_.add_argument("--default", action="store_true", help="network of servers that request no other")
    create_.add_argument("--project", help="id or name of the only project that may use it; default: all projects")
    commands.verb(noun, "list", "List all networks.", list_)
    delete_ = commands.verb(noun, "delete", "Delete a network without ports.", delete)
    delete_.add_argument("network", metavar="NAME-OR-ID")
    packet_trace.register(commands, noun)


def create(app: App, args: argparse.Namespace) -> None:
    network = factory.new_network(
        args.name,
        args.cidr,
        gateway=args.gateway,
        dns=args.dns,
        bridge=args.bridge,
        start=args.start,
        end=args.end,
        mtu=args.mtu,
        is_default=args.default,
        project_id=None if args.project is None else accounts.project_id(app, args.project),
        vni=args.vxlan,
        cidr6=args.cidr6,
    )
    _refuse_clash(network, _rows(app))
    print(app.db.write(_create, app.context, network).id)


def _create(uow: UnitOfWork, context: RequestContext, network: Network) -> Network:
    for cidr in filter(None, (network.cidr, network.cidr6)):
        overlaps.check_subnet(uow, context, network, cidr)
    return builtin_networks.create(uow, network)


def list_(app: App, args: argparse.Namespace) -> None:
    app.show(
        ("ID", "Name", "CIDR", "Gateway", "DNS", "Bridge", "Start", "End", "Default", "Project", "VNI", "MTU", "CIDR6"),
        map(attrgetter(*_SHOWN), _rows(app)),
    )


def _rows(app: App) -> list[NetworkRecord]:
    """Return all networks, each followed by its segments."""
    found = app.db.read(networks.list_, app.context)
    return [row for network in found for row in (network, *network.segments)]


def delete(app: App, args: argparse.Namespace) -> None:
    app.db.write(builtin_networks.delete, args.network)


def _refuse_clash(network: Network, others: Sequence[Network]) -> None:
    """Raise an error for a shared name, VNI or bridge: every host has all networks."""
    for other in others:
        if other.name == network.name and (other.project_id is None or other.project_id == network.project_id):
            raise exceptions.NetworkExists(name=network.name)
        if network.vni is not None and network.vni == other.vni:
            raise exceptions.InvalidInput(reason=f"VNI {network.vni} is that of network {other.name}")
        if network.bridge == other.bridge:
            raise exceptions.InvalidInput(reason=f"bridge {network.bridge} is that of network {other.name}")
