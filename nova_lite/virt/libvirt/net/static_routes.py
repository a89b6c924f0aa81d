"""Static routes of routers: a routing table for each router, for packets from the bridges of its networks only.

All routers of a host share its routing table, so a route of a project may not be there. The table of a router has its
networks and its static routes. What it does not know is routed as without it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Collection, Iterable

from nova_lite.base import exceptions, ip
from nova_lite.objects import HostRouter, Network, StaticRoute
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.names import bridge_name

LOG = logging.getLogger(__name__)

#: Priority of the rules that lead to the tables: after the machine's own addresses, and before its main table.
PRIORITY = 29290
#: Seconds after which rules and tables are checked again.
CHECK_SECONDS = 30.0
#: File that exists if the kernel has IPv6.
_IPV6 = "/proc/self/net/if_inet6"

#: Routes of a table by destination, and the table of a bridge.
Tables = dict[int, dict[str, str]]
Leads = dict[str, int]


class StaticRoutes:
    """Loads the tables. A failure is logged, and the next call tries again."""

    def __init__(self) -> None:
        self._families = [_Family(version) for version in (4, 6)]

    def set(self, routers: Collection[HostRouter], networks: Iterable[Network]) -> None:
        """Replace the routes. ``networks``: all of this host, which may have routes of former routers."""
        bridges = {bridge_name(network) for network in networks}
        for family in self._families:
            family.set(tables(routers, family.version), bridges)


class _Family:
    """Routes of one IP version."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._loaded: tuple[Tables, Leads] | None = None
        self._checked = float("-inf")

    def set(self, wanted: tuple[Tables, Leads], bridges: set[str]) -> None:
        if wanted == self._loaded and (not wanted[0] or time.monotonic() < self._checked + CHECK_SECONDS):
            return
        if self.version == 6 and not wanted[0] and not os.path.exists(_IPV6):
            return  # the kernel has no IPv6, so nothing was ever loaded
        former = {} if self._loaded is None else self._loaded[1]
        if self.version == 4:
            for bridge in wanted[1]:
                _accept_routed_sources(bridge)
        try:
            lines = [
                *_routes(wanted[0], self.version),
                *_rules(wanted[1], bridges | former.keys() | wanted[1].keys(), self.version),
            ]
            if lines:
                _batch(lines, self.version)
        except exceptions.VirtDriverError as error:
            LOG.error("Static IPv%d routes of routers do not hold: %s", self.version, error.message)
            self._loaded = None
            return
        self._loaded, self._checked = wanted, time.monotonic()


def _accept_routed_sources(bridge: str) -> None:
    """Accept packets from addresses behind a machine, to which the main table has no route there."""
    try:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/sys/net/ipv4/conf/{bridge}/rp_filter", "w") as file:
            file.write("2")  # a bridge that is gone has no packets
    except OSError as error:
        LOG.error("Bridge %s may drop packets of static routes: %s", bridge, error)


def tables(routers: Iterable[HostRouter], version: int) -> tuple[Tables, Leads]:
    """Return the tables of routers with static routes of this IP version, and the bridges that use them."""
    found: Tables = {}
    leads: Leads = {}
    make = functools.partial(_valid, version)
    for router in routers:
        wanted = router.routes if version == 4 else router.routes6
        routes = nft.usable("static route", wanted, make, lambda route: route.destination)
        ways = _ways(router, version)
        table: dict[str, str] = {}
        for target, nexthop in routes:
            for bridge, cidr in ways:
                if ip.is_machine(nexthop, cidr):
                    table[nft.network(target)] = f"via {nft.address(nexthop)} dev {bridge}"
        if not table:
            continue
        number = table_number(router.id)
        found[number] = table | {nft.network(cidr): f"dev {bridge} scope link" for bridge, cidr in ways}
        leads |= {bridge: number for bridge, _ in ways}
    return found, leads


def _ways(router: HostRouter, version: int) -> list[tuple[str, ip.Network]]:
    """Return bridge and range of the subnets of this IP version that a router connects."""
    connected = [
        (bridge_name(network), network.cidr if version == 4 else network.cidr6)
        for network in router.networks
        if router.only.get(network.id, version) == version
    ]
    return [(bridge, ip.parse_network(cidr, strict=False)) for bridge, cidr in connected if cidr]


def table_number(router_id: str) -> int:
    """Return the number of a router's table, far from numbers that people choose."""
    digest = hashlib.sha256(router_id.encode("utf-8", "surrogatepass")).digest()
    return 2**30 + int.from_bytes(digest[:3], "big")


def _valid(version: int, route: StaticRoute) -> tuple[ip.Network, ip.Address]:
    target, nexthop = ip.parse_network(route.destination), ip.parse(route.nexthop)
    if (target.version, nexthop.version) != (version, version):
        raise ValueError(f"{target} through {nexthop} is not a route of IPv{version}")
    return target, nexthop


def _routes(wanted: Tables, version: int) -> list[str]:
    lines = []
    loaded = _shown(version, "route", "show", "table", "all") if wanted else []
    everything = "0.0.0.0/0" if version == 4 else "::/0"
    for number, table in sorted(wanted.items()):
        lines += [f"route replace {destination} {way} table {number:d}" for destination, way in sorted(table.items())]
        for shown in (item for item in loaded if item.get("table") == str(number)):
            # A destination without a prefix length is one address.
            destination = ip.parse_network(everything if shown.get("dst") == "default" else str(shown.get("dst")))
            if nft.network(destination) not in table:
                lines.append(f"route del {nft.network(destination)} table {number:d}")
    return lines


def _rules(wanted: Leads, bridges: Collection[str], version: int) -> list[str]:
    """Return the changes of rules of these bridges, and the removal of tables that no bridge uses any more."""
    known: dict[str, set[str]] = {}
    for shown in _shown(version, "rule", "show"):
        if shown.get("priority") == PRIORITY and shown.get("iif") in bridges:
            known.setdefault(str(shown["iif"]), set()).add(str(shown.get("table")))
    lines = []
    gone = set()
    for bridge, numbers in sorted(known.items()):
        for number in sorted(numbers):
            if number != str(wanted.get(bridge)) and number.isdecimal():
                lines.append(f"rule del priority {PRIORITY} iif {bridge} lookup {int(number):d}")
                gone.add(int(number))
    for bridge, target in sorted(wanted.items()):
        if str(target) not in known.get(bridge, set()) and os.path.exists(f"/sys/class/net/{bridge}"):
            lines.append(f"rule add priority {PRIORITY} iif {bridge} lookup {target:d}")
    lines += [f"route flush table {number:d}" for number in sorted(gone - set(wanted.values()))]
    return lines


def _shown(version: int, *words: str) -> list[dict[str, object]]:
    """Return what ``ip`` shows."""
    found: list[dict[str, object]] = json.loads(images.run("ip", "-json", f"-{version}", *words) or b"[]")
    return found


def _batch(lines: list[str], version: int) -> None:
    text = "\n".join([*lines, ""])
    command = ("ip", f"-{version}", "-force", "-batch", "-")
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"ip cannot be run: {error.strerror}") from error
    if result.returncode:
        raise exceptions.VirtDriverError(reason=f"ip: {' '.join(result.stderr.split())}")
