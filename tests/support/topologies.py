"""Generated topologies: networks with equal prefixes, routers, groups and ports on two hosts, and packets to trace."""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Iterable, Sequence

import msgspec

from nova_lite.base import ip
from nova_lite.network.trace import walk
from nova_lite.network.trace.hosts import Host
from nova_lite.network.trace.packets import Packet, Trace
from nova_lite.objects import (
    VIF,
    HostRouter,
    Network,
    PortFilters,
    SecurityGroup,
    SecurityGroupRule,
    StaticRoute,
    ipv6,
)
from nova_lite.objects.network import Subnet6
from nova_lite.objects.security_group import NetworkMembers, outward_rules

HOSTS = ("h1", "h2")
TUNNELS = {"h1": "10.8.0.1", "h2": "10.8.0.2"}
#: Address of hosts outside, and of machines there.
HOST_OUTSIDE, OUTSIDE, OUTSIDE6 = "192.0.2.1", "192.0.2.7", "2001:db8::7"
HOST_OUTSIDE6 = "2001:db8::1"
FLOATING = ip.parse_network("198.51.0.0/16")
_PORTS = (22, 53, 80, 443, 8080)


@dataclasses.dataclass
class Topology:
    """Networks of one project. ``host_of``: by port. ``virtual``: further addresses that guests have, by port."""

    seed: int
    vifs: list[VIF] = dataclasses.field(default_factory=list)
    host_of: dict[str, str] = dataclasses.field(default_factory=dict)
    virtual: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    down: set[str] = dataclasses.field(default_factory=set)
    filters: dict[str, PortFilters] = dataclasses.field(default_factory=dict)
    #: Ports that send them; None: a machine outside of the first host that may know the destination.
    packets: list[tuple[str | None, Packet]] = dataclasses.field(default_factory=list)


def generate(seed: int) -> Topology:
    return _Generator(seed).make()


def merged(topologies: Iterable[Topology]) -> tuple[walk.Cloud, dict[str, PortFilters]]:
    """Return the cloud of several topologies, and the filters of its hosts."""
    every = list(topologies)
    filters = {
        host: PortFilters(
            groups={key: group for item in every for key, group in item.filters[host].groups.items()},
            instances={key: ids for item in every for key, ids in item.filters[host].instances.items()},
            ports={key: ids for item in every for key, ids in item.filters[host].ports.items()},
            floating={key: text for item in every for key, text in item.filters[host].floating.items()},
            peers={key: found for item in every for key, found in (item.filters[host].peers or {}).items()},
            routers=[router for item in every for router in item.filters[host].routers or ()],
        )
        for host in HOSTS
    }
    ports = {
        host: {vif.id: [vif] for item in every for vif in item.vifs if item.host_of[vif.id] == host} for host in HOSTS
    }
    hosts = [Host(host, filters[host], ports[host], TUNNELS[host], (HOST_OUTSIDE, HOST_OUTSIDE6)) for host in HOSTS]
    down = {port for item in every for port in item.down}
    return walk.Cloud(hosts, pools=[FLOATING], down=down), filters


def traced(cloud: walk.Cloud, topology: Topology, sender: str | None, packet: Packet) -> Trace:
    """Return the model's answer."""
    if sender is None:
        return walk.from_outside(cloud, packet)
    host = cloud.hosts[topology.host_of[sender]]
    (interface,) = (item for item in host.interfaces if item.id == sender)
    return walk.from_port(cloud, host, interface, packet)


class _Generator:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._made = Topology(seed)
        self._networks: list[Network] = []
        self._routers: list[HostRouter] = []
        self._groups: list[SecurityGroup] = []
        self._group_of: dict[str, list[str]] = {}
        #: Networks whose hosts do not know each other yet.
        self._cut: set[str] = set()

    def _id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def make(self) -> Topology:
        for number in range(self._random.randint(0, 2)):
            self._add_router(number)
        for number in range(self._random.randint(0 if self._routers else 1, 2)):
            self._add_network(number + 8, router=None)
        for network in self._networks:
            for number in range(self._random.randint(1, 3)):
                self._add_port(network, number)
        self._add_groups()
        self._add_routes()
        self._cut = {network.id for network in self._networks if self._chance(4)}
        for host in HOSTS:
            self._made.filters[host] = self._filters(host)
        self._add_packets()
        return self._made

    # --- networks and routers

    def _add_router(self, number: int) -> None:
        external = self._chance(65)
        router = HostRouter(id=self._id(), external=external, snat=not external or self._chance(75))
        self._routers.append(router)
        for position in range(self._random.randint(1, 3)):
            self._add_network(number * 4 + position, router)

    def _add_network(self, number: int, router: HostRouter | None) -> None:
        """Add a network. Networks that leave hosts untranslated have ranges of their own, others any."""
        is_operators = router is None and self._chance(35)
        is_unique = is_operators or (router is not None and not router.snat)
        # A router's networks differ, and two routers of a topology have the same ones.
        third = number % 4 if number < 8 else number
        unique = self._made.seed % 1000 * 12 + number
        has_gateway = self._chance(92)
        cidr = f"100.{64 + unique // 256}.{unique % 256}.0/24" if is_unique else f"10.{20 + third}.0.0/24"
        cidr6 = ""
        if self._chance(45):
            text = f"fd00:{unique:x}:{number:x}:1::/64" if is_unique else f"fd00:0:{third:x}::/64"
            cidr6 = str(ip.parse_network(text))  # as the API stores it
        address, address6 = cidr.replace("0/24", "1"), cidr6.replace("/64", "1")
        network = Network(
            id=self._id(),
            name=f"n{self._made.seed}-{number}",
            cidr=cidr,
            gateway=address if has_gateway else None,
            host_address=None if has_gateway else address,
            mtu=1400,
            project_id=None if is_operators else f"p{self._made.seed}",
            needs_router=None if is_operators else True,
            vni=1000 + self._made.seed * 16 % 8_000_000 + number if self._chance(70) else None,
            cidr6=cidr6,
            subnet6=Subnet6(gateway=address6) if cidr6 and self._chance(50) else None,
        )
        self._networks.append(network)
        if router is not None:
            router.networks.append(network)
            if network.subnet6 is not None and self._chance(30):
                router.only[network.id] = self._random.choice((4, 6))

    def _add_routes(self) -> None:
        """Add static routes through guests."""
        for number, router in enumerate(self._routers):
            through = [vif for vif in self._made.vifs if vif.network in router.networks]
            if self._chance(30) and through:
                vif = self._random.choice(through)
                target = f"172.30.{number}.0/24"
                if self._chance(60) and not vif.unguarded:
                    vif.address_pairs = [
                        *(vif.address_pairs or []),
                        {"ip_address": target, "mac_address": vif.mac_address},
                    ]
                if router.only.get(vif.network.id, 4) == 4:
                    router.routes.append(StaticRoute(destination=target, nexthop=vif.address))

    # --- ports and groups

    def _add_port(self, network: Network, number: int) -> None:
        seed, position = self._made.seed, len(self._made.vifs)
        mac = f"fa:16:3e:{seed >> 8 & 255:02x}:{seed & 255:02x}:{position:02x}"
        address6 = None
        if network.cidr6:
            address6 = ipv6.address_on(network, mac) or network.cidr6.replace("/64", f"{16 + number:x}")
        is_open = self._chance(12)
        vif = VIF(
            id=self._id(),
            mac_address=mac,
            address=network.cidr.replace("0/24", str(10 + number)),
            network=network,
            port_security_enabled=not is_open,
            unguarded=is_open,
            more=ipv6.further_addresses(network, address6),
        )
        if not is_open and self._chance(15):
            virtual = [network.cidr.replace("0/24", str(200 + number))]
            if address6 is not None and self._chance(50):
                virtual.append(network.cidr6.replace("/64", f"{200 + number:x}"))
            vif.address_pairs = [{"ip_address": text, "mac_address": mac} for text in virtual]
            self._made.virtual[vif.id] = virtual
        if not is_open and self._chance(8):
            self._made.down.add(vif.id)
        self._made.vifs.append(vif)
        self._made.host_of[vif.id] = self._random.choice(HOSTS)

    def _add_groups(self) -> None:
        names = [self._id() for _ in range(self._random.randint(1, 3))]
        for vif in self._made.vifs:
            self._group_of[vif.id] = self._random.sample(
                names, self._random.randint(0 if self._chance(10) else 1, len(names))
            )
        for name in names:
            group = SecurityGroup(id=name, name=f"g{names.index(name)}")
            if self._chance(60):
                group.rules += outward_rules(name)
            for direction in ("egress", "ingress"):
                for _ in range(self._random.randint(1, 3)):
                    group.rules += self._rules(group, direction, names)
            self._groups.append(group)

    def _rules(self, group: SecurityGroup, direction: str, names: Sequence[str]) -> list[SecurityGroupRule]:
        ethertype = self._random.choice(("IPv4", "IPv4", "IPv6"))
        protocol = self._random.choice((None, None, None, "icmp", "tcp", "udp"))
        low = high = None
        if protocol in ("tcp", "udp") and self._chance(70):
            low, high = sorted(self._random.choices(_PORTS, k=2))
        elif protocol == "icmp" and self._chance(40):
            low, high = self._random.choice((8, 128, 3)), self._random.choice((None, 0))
        rule = SecurityGroupRule(
            id=self._id(),
            security_group_id=group.id,
            direction=direction,
            ethertype=ethertype,
            protocol=protocol,
            port_range_min=low,
            port_range_max=high,
        )
        kind = self._random.choice(("anyone", "anyone", "anyone", "prefix", "group", "addresses"))
        if kind == "group":
            rule.remote_group_id = self._random.choice(names)
        elif kind == "prefix":
            rule.remote_ip_prefix = self._prefix(ethertype)
        elif kind == "addresses":
            found = dict.fromkeys(self._prefix(ethertype) for _ in range(3))
            return [msgspec.structs.replace(rule, remote_ip_prefix=prefix) for prefix in found]
        return [rule]

    def _prefix(self, ethertype: str) -> str:
        if ethertype == "IPv6":
            texts = [item.cidr6 for item in self._networks if item.cidr6] + [f"{OUTSIDE6}/128", "::/0", "fd00::/16"]
            texts += [f"{item.address}/128" for vif in self._made.vifs for item in vif.more]
        else:
            texts = [item.cidr for item in self._networks] + [f"{OUTSIDE}/32", "0.0.0.0/0", "10.20.0.0/15"]
            texts += [str(FLOATING), "169.254.192.1/32", "169.254.169.254/32"]
            texts += [f"{vif.address}/32" for vif in self._made.vifs]
        return self._random.choice(texts)

    # --- what hosts get

    def _filters(self, host: str) -> PortFilters:
        mine = [vif for vif in self._made.vifs if self._made.host_of[vif.id] == host]
        here = {vif.network.id for vif in mine}
        routers = [found for router in self._routers if (found := self._on_host(router, here)).networks]
        reached = here | {network.id for router in routers for network in router.networks}
        groups = {}
        for group in self._groups:
            members = {
                network_id: NetworkMembers(
                    members=[
                        text
                        for vif in self._made.vifs
                        if vif.network.id == network_id and group.id in self._group_of[vif.id]
                        for text in (vif.address, *(item.address for item in vif.more))
                    ]
                )
                for network_id in sorted(reached)
            }
            groups[group.id] = msgspec.structs.replace(group, members_by_network=members)
        (other,) = {*HOSTS} - {host}
        spanning = {network.id for router in routers for network in router.networks if network.vni is not None}
        spanning |= {vif.network.id for vif in mine if vif.network.vni is not None}
        return PortFilters(
            groups=groups,
            instances={vif.id: self._group_of[vif.id] for vif in mine},
            ports={vif.id: [] for vif in mine if vif.id in self._made.down},
            floating={
                vif.id: f"198.51.{self._made.seed & 255}.{self._made.vifs.index(vif) + 1}"
                for vif in mine
                if self._chance(35)
            },
            peers={network_id: [] if network_id in self._cut else [TUNNELS[other]] for network_id in sorted(spanning)},
            routers=routers,
        )

    def _on_host(self, router: HostRouter, here: set[str]) -> HostRouter:
        """Return a router as the conductor gives it to a host with guests on these networks."""
        spans = any(item.vni is not None and item.id in here for item in router.networks)
        shown = [item for item in router.networks if item.id in here or (spans and item.vni is not None)]
        if not any(item.id in here for item in router.networks):
            shown = []
        neighbours: dict[str, dict[str, str]] = {}
        for vif in self._made.vifs:
            if vif.network in shown and vif.network.vni is not None and self._chance(96):
                texts = (vif.address, *(item.address for item in vif.more))
                neighbours.setdefault(vif.network.id, {}).update(dict.fromkeys(texts, vif.mac_address))
        ids = {item.id for item in shown}
        through = [ip.parse_network(item.cidr) for item in shown if router.only.get(item.id, 4) == 4]
        routes = [route for route in router.routes if any(ip.parse(route.nexthop) in item for item in through)]
        only = {key: version for key, version in router.only.items() if key in ids}
        return msgspec.structs.replace(router, networks=shown, neighbours=neighbours, routes=routes, only=only)

    # --- packets

    def _add_packets(self) -> None:
        for _ in range(10):
            sender = self._random.choice(self._made.vifs) if self._chance(85) else None
            target = self._target(sender)
            protocol = self._random.choice(("icmp", "tcp", "udp"))
            if sender is not None and target in self._of_realms():
                protocol = self._random.choice(("icmp", "tcp"))  # a realm's answer to UDP says nothing
            source = self._source(sender, target)
            if source is None or (sender is not None and target in map(ip.parse, self._addresses(sender))):
                continue
            port = None if protocol == "icmp" else self._random.choice(_PORTS)
            self._made.packets.append(
                (sender.id if sender is not None else None, Packet(source, target, protocol, port))
            )

    def _of_realms(self) -> set[ip.Address]:
        """Return the addresses of gateways and of the metadata service."""
        found = {walk.host_address(network, version) for network in self._networks for version in (4, 6)}
        return {walk.METADATA_ADDRESS, *(item for item in found if item is not None)}

    def _source(self, sender: VIF | None, target: ip.Address) -> ip.Address | None:
        if sender is None:
            return ip.parse(OUTSIDE if target.version == 4 else OUTSIDE6)
        texts = self._addresses(sender)
        if self._chance(10):
            texts = [f"{sender.network.cidr.removesuffix('0/24')}77"]
            texts += [sender.network.cidr6.replace("/64", "77")] if sender.network.cidr6 else []
        found = [address for address in map(ip.parse, texts) if address.version == target.version]
        return self._random.choice(found[:1] * 3 + found) if found else None

    def _target(self, sender: VIF | None) -> ip.Address:
        host = self._made.host_of[sender.id] if sender is not None else self._random.choice(HOSTS)
        floating = [*self._made.filters[host].floating.values()]
        kinds = ["port"] * 6 + ["floating"] * (3 if floating else 0)
        if sender is not None:
            kinds += ["outside"] * 2 + ["realm", "nobody", "route"]
        kind = self._random.choice(kinds)
        if kind == "floating":
            return ip.parse(self._random.choice(floating))
        if kind == "outside":
            return ip.parse(self._random.choice((OUTSIDE, OUTSIDE, OUTSIDE6)))
        if kind == "realm":
            return self._random.choice(sorted(self._of_realms(), key=str))
        if kind == "nobody":
            return ip.parse(self._random.choice(self._networks).cidr.replace("0/24", "66"))
        if kind == "route":
            return ip.parse(f"172.30.{self._random.randint(0, 1)}.5")
        others = [vif for vif in self._made.vifs if vif is not sender] or self._made.vifs
        if sender is not None and self._chance(70):
            near = {sender.network.id}
            near |= {
                item.id for router in self._routers if sender.network in router.networks for item in router.networks
            }
            others = [vif for vif in others if vif.network.id in near] or others
        vif = self._random.choice(others)
        return ip.parse(self._random.choice([vif.address, *self._addresses(vif)]))

    def _addresses(self, vif: VIF) -> list[str]:
        """Return the addresses that a guest has."""
        return [vif.address, *(item.address for item in vif.more), *self._made.virtual.get(vif.id, ())]
