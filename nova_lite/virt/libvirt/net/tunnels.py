"""Networks that span hosts: the bridge of a network with a VNI has a VXLAN device to the bridges of other hosts.

The device exists as long as a guest of this host is on the network, or a router connects it with a guest's network. The
conductor publishes the hosts that have guests on it. Packets to unknown MAC addresses, and broadcasts, are sent to each
of them; the rest is learned. Only guests use the tunnel, and packets that this host has routed for one of its guests.
Each host is gateway, DHCP server, name server and metadata service of its own guests, so packets of these services do
not pass.

A port forwarding's floating address is on one host. That host sends packets for guests of other hosts through the
tunnel of their network, with the address of the sender. Their replies return the same way: the guest's host gives them
the MAC address of that host, instead of that of the gateway, which all hosts have.

A machine who can send VXLAN to a host can reach its guests. So a host accepts it only from the published hosts. Guests
share their host's address for outgoing packets, so they must not send VXLAN.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
import threading
from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from oslo_config import cfg

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import VIF, HostForwarding, HostRouter, Network
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft, realms
from nova_lite.virt.libvirt.net.floating_ips import port_range
from nova_lite.virt.libvirt.net.names import (
    GATEWAY,
    bridge_mac,
    bridge_name,
    gateway_name,
    tap_of,
    tunnel_name,
    tunnels_table,
)

LOG = logging.getLogger(__name__)

NET = "/sys/class/net"
#: MAC address of the forwarding entry for broadcast, multicast and unknown destinations.
FLOOD_MAC = "00:00:00:00:00:00"

#: Protocols that stay on the host: DHCP, DHCPv6, router discovery, redirects.
_HOST_PROTOCOLS = (
    "udp dport { 67, 68, 546, 547 } drop",
    "icmpv6 type { nd-router-solicit, nd-router-advert, nd-redirect } drop",
)


class Tunnels:
    """Manages the devices. The last peers from the conductor are stored on disk, and stay valid until they are
    replaced."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, directory: str) -> None:
        self._local_ip = str(conf.vxlan.local_ip or conf.my_ip)
        self._port: int = conf.vxlan.dstport
        self._table = tunnels_table(host)
        self._host = host
        self._path = os.path.join(directory, f"_tunnels@{host}.json")
        self._lock = threading.Lock()
        self._used: dict[str, list[Network]] = {}
        self._routers: list[HostRouter] = []
        self._forwardings: list[HostForwarding] = []
        self._peers: dict[str, list[str]] = {}
        self._queried: set[str] = set()
        self._connected: dict[str, list[str]] = {}
        self._rules = ""

    @property
    def address(self) -> str | None:
        """The address at which other hosts reach this one, if any."""
        local = _ipv4(self._local_ip)
        return None if local is None or local.is_loopback else str(local)

    def prepare(
        self,
        ports: dict[str, list[VIF]],
        routers: list[HostRouter] | None = None,
        forwardings: Iterable[HostForwarding] = (),
    ) -> None:
        """Restore the devices. ``ports``: of this host's guests, by instance. Raises `VirtDriverError`."""
        with self._lock:
            self._routers, self._forwardings = routers or [], list(forwardings)
            self._used = {uuid: networks for uuid, vifs in ports.items() if (networks := spanning_networks(vifs))}
            self._peers = self._read()
            if self._used or self._peers or self._routers:
                self._filter_all()
                for network in self._networks().values():
                    self._connect_or_log(network)

    def plug(self, instance_uuid: str, vifs: list[VIF]) -> None:
        """Connect an instance's networks. ``vifs``: all its interfaces. The bridges exist. Raises `VirtDriverError`."""
        with self._lock:
            before = self._used.pop(instance_uuid, [])
            if networks := spanning_networks(vifs):
                self._used[instance_uuid] = networks
            if networks == before:
                return
            self._remove_unused(before)
            try:
                self._filter_all()
                for network in networks:
                    self._connect(network)
            except exceptions.VirtDriverError:
                # Otherwise each later guest would fail, too.
                self._used.pop(instance_uuid, None)
                raise

    def unplug(self, instance_uuid: str) -> None:
        self.plug(instance_uuid, [])

    def begin_query(self) -> list[str]:
        """Return the instances with interfaces on networks that span hosts, to query the peers of these networks.

        Remembers the networks for `set`, which takes the reply.
        """
        with self._lock:
            self._queried = set(self._networks())
            return sorted(self._used)

    def lacks_peers(self) -> bool:
        """Check whether the peers of any network are missing."""
        with self._lock:
            return bool(self._networks().keys() - self._peers.keys())

    def route(self, routers: list[HostRouter]) -> None:
        """Replace the routers of this host. Their bridges exist. Raises `VirtDriverError`."""
        with self._lock:
            if routers == self._routers:
                return
            before = self._routed()
            self._routers = routers
            self._remove_unused(before)
            if self._networks() or before:
                self._filter_all()
                for network in self._routed():
                    self._connect_or_log(network)

    def _routed(self) -> list[Network]:
        """Return the networks of routers that span hosts."""
        return [network for router in self._routers for network in router.networks if network.vni is not None]

    def set(self, peers: dict[str, list[str]] | None, forwardings: Iterable[HostForwarding] = ()) -> None:
        """Replace the port forwardings, and the peers of all networks. None: peers are unknown, and stay."""
        with self._lock:
            self._forwardings = list(forwardings)
            peers = {network_id: [] for network_id in self._queried} | (self._peers if peers is None else peers)
            if peers != self._peers:
                files.write_atomically(self._path, msgspec.json.encode(peers), writer=self._host)
            self._peers = peers
            if self._networks():
                self._filter_all()
                for network in self._networks().values():
                    self._connect_or_log(network)

    def _networks(self) -> dict[str, Network]:
        used = {network.id: network for networks in self._used.values() for network in networks}
        return used | {network.id: network for network in self._routed()}

    def _filter_all(self) -> None:
        """Load the filter of all networks. Call it before a device can pass any packet."""
        networks = self._networks()
        if networks and _ipv4(self._local_ip) is None:
            raise exceptions.VirtDriverError(
                reason=f"networks span hosts by IPv4, and [vxlan] local_ip (my_ip) is {self._local_ip}"
            )
        peers = sorted({peer for network_id in networks for peer in self._remote_peers(network_id)})
        passing = passing_rules(self._routers, self._local_ip) if networks else []
        forwarding = forwarding_rules(self._forwardings, self._routers, self._local_ip) if networks else Forwarding()
        rules = ruleset(self._table, self._port, peers, bool(networks), passing, forwarding)
        if rules == self._rules:
            return
        if error := nft.run(rules):
            raise exceptions.VirtDriverError(reason=f"the rules of networks that span hosts cannot be loaded: {error}")
        self._rules = rules

    def _connect_or_log(self, network: Network) -> None:
        """Connect a network. A failure does not stop the others; the next refresh of filters tries again."""
        try:
            self._connect(network)
        except exceptions.VirtDriverError as error:
            LOG.error("Network %s is not connected to other hosts: %s", network.id, error.message)

    def _remote_peers(self, network_id: str) -> list[str]:
        return sorted(valid_peers(self._peers.get(network_id, [])) - {self._local_ip})

    def _connect(self, network: Network) -> None:
        """Connect a network's device to its bridge, unless the bridge is an operator's own.

        The bridge may have been made again meanwhile, and then the device is in no bridge.
        """
        bridge, device = bridge_name(network), tunnel_name(network)
        peers = self._remote_peers(network.id)
        if network.vni is None or realms.network_on(bridge) != network.id:
            return  # it is created when a guest is plugged
        if _master(device) == bridge and self._connected.get(device) == peers:
            return
        expected = {"id": network.vni, "local": self._local_ip, "port": self._port}
        found = _device(device)
        if found is not None and found != expected:
            images.run("ip", "link", "delete", device)
            found = None
        if found is None:
            options = ("id", str(network.vni), "local", self._local_ip, "dstport", str(self._port))
            images.run("ip", "link", "add", device, "type", "vxlan", *options, "learning")
            LOG.info("Network %s is connected to other hosts: VNI %s", network.id, network.vni)
        if _master(device) != bridge:
            # The device has no addresses and sends nothing of its own.
            images.run("ip", "link", "set", device, "addrgenmode", "none")
            images.run("ip", "link", "set", device, "mtu", str(network.mtu), "master", bridge, "up")
        known = _destinations(device)
        for peer in sorted(set(peers) - known.get(FLOOD_MAC, set())):
            images.run("bridge", "fdb", "append", FLOOD_MAC, "dev", device, "dst", peer)
        # Learned entries of a former peer go, too: its guests may be elsewhere, and the kernel forgets no address to
        # which it sends.
        for mac, destinations in known.items():
            for peer in sorted(destinations - set(peers)):
                with contextlib.suppress(exceptions.VirtDriverError) if mac != FLOOD_MAC else contextlib.nullcontext():
                    images.run("bridge", "fdb", "delete", mac, "dev", device, "dst", peer)
        self._connected[device] = peers

    def _remove_unused(self, before: list[Network]) -> None:
        """Remove devices of unused networks, unless guests of another daemon are on the bridge."""
        used = {tunnel_name(network) for network in self._networks().values()}
        for network in before:
            device, bridge = tunnel_name(network), bridge_name(network)
            others = realms.members(bridge) - {device, gateway_name(network.id)}
            if device not in used and not others and os.path.exists(f"{NET}/{device}"):
                self._connected.pop(device, None)
                images.run("ip", "link", "delete", device)
                LOG.info("Network %s has no guest here any more and is disconnected from other hosts", network.id)

    def _read(self) -> dict[str, list[str]]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, list[str]])
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read and will be queried again: %s", self._path, error)
            return {}


def valid_peers(texts: list[str]) -> set[str]:
    """Return the addresses among these texts that may be those of other hosts."""
    peers = filter(None, map(_ipv4, texts))
    return {nft.address(peer) for peer in peers if not peer.is_loopback and not peer.is_multicast}


def spanning_networks(vifs: list[VIF]) -> list[Network]:
    """Return the networks with a VNI among those of built-in interfaces."""
    found = {vif.network.id: vif.network for vif in vifs if vif.vif_type is None and vif.network.vni is not None}
    return [network for _, network in sorted(found.items())]


def sender_mac(local_ip: str) -> str:
    """Return the MAC address with which a host sends routed packets into tunnels. Bridges have the same one on all
    hosts, and no guest may have one of these."""
    packed = ip.parse4(local_ip).packed
    return "fe:16:" + ":".join(f"{byte:02x}" for byte in packed)


def passing_rules(routers: Iterable[HostRouter], local_ip: str) -> list[str]:
    """Return the rules for packets that this host has routed from one network into the tunnel of another."""
    lines: list[str] = []
    for router in routers:
        for network in (item for item in router.networks if item.vni is not None):
            others = [other for other in router.networks if other.id != network.id and other.vni is not None]
            for family, cidrs in (("ip", [item.cidr for item in others]), ("ip6", [item.cidr6 for item in others])):
                parsed = [ip.parse_network(cidr, strict=False) for cidr in cidrs if cidr]
                if found := ", ".join(sorted(nft.network(item) for item in parsed)):
                    packets = f'iifname "{GATEWAY}*" oifname "{tunnel_name(network)}" {family} saddr {{ {found} }}'
                    lines.append(f"{packets} ether saddr set {sender_mac(local_ip)} accept")
    return lines


class Forwarding(NamedTuple):
    """Rules of port forwardings between hosts: for frames that enter bridges, and for frames that cross them."""

    entering: tuple[str, ...] = ()
    crossing: tuple[str, ...] = ()


#: Errors that a machine outside reports about a connection, such as a packet that is too large.
_ERRORS = "icmp type { destination-unreachable, time-exceeded, parameter-problem }"


def forwarding_rules(forwardings: Iterable[HostForwarding], routers: Iterable[HostRouter], local_ip: str) -> Forwarding:
    """Return the rules for packets between the host of a floating address and the guest of another host."""
    entering, crossing = [], []
    of_networks = {network.id: (router, network) for router in routers for network in router.networks}
    for item in forwardings:
        router, network = of_networks.get(item.network_id, (None, None))
        peer = None if item.peer is None else _ipv4(item.peer)
        if router is None or network is None or network.vni is None or peer is None:
            continue
        tunnel, gateway, own = tunnel_name(network), bridge_mac(network.vni), sender_mac(local_ip)
        ports = port_range(item.internal)
        replies = f"ip saddr {item.address} {item.protocol} sport {ports}"
        if item.is_held:
            out = f'iifname "{GATEWAY}*" oifname "{tunnel}" ip daddr {item.address}'
            crossing += [
                f"{out} {match} ether saddr set {own} accept" for match in (f"{item.protocol} dport {ports}", _ERRORS)
            ]
            crossing.append(f'iifname "{tunnel}" oifname "{GATEWAY}*" {replies} accept')
            entering.append(f'iifname "{tunnel}" ether daddr {own} {replies} ether daddr set {gateway}')
        else:
            cidrs = (ip.parse_network4(other.cidr, strict=False) for other in router.networks)
            here = ", ".join(sorted({*map(nft.network, cidrs), f"{realms.METADATA_ADDRESS}/32"}))
            entering.append(
                f"iifname {nft.interface(tap_of(item.port_id))} ether daddr {gateway} {replies} "
                f"ip daddr != {{ {here} }} ether daddr set {sender_mac(str(peer))}"
            )
    return Forwarding(tuple(dict.fromkeys(entering)), tuple(dict.fromkeys(crossing)))


def ruleset(
    table: str,
    port: int,
    peers: list[str],
    needed: bool,
    passing: Iterable[str] = (),
    forwarding: Forwarding = Forwarding(),  # noqa: B008
) -> str:
    """Return the nft commands that replace the tables in one transaction, or only remove them if not ``needed``.

    ``passing``: rules for packets that this host has routed.
    """
    gone = "".join(f"add table {family} {table}\ndelete table {family} {table}\n" for family in ("bridge", "inet"))
    if not needed:
        return gone
    of_host = "\n    ".join(_HOST_PROTOCOLS)
    routed = "".join(f"\n    {line}" for line in passing)
    forwarded = "".join(f"\n    {line}" for line in forwarding.crossing)
    entering = "".join(f"\n    {line}" for line in forwarding.entering)
    elements = f" elements = {{ {', '.join(peers)} }}" if peers else ""
    return f"""{gone}table bridge {table} {{
  chain of_host {{
    {of_host}
  }}
  chain forward {{
    type filter hook forward priority -300; policy accept;{forwarded}
    iifname "{tunnel_name()}*" oifname "{GATEWAY}*" drop
    iifname "{tunnel_name()}*" jump of_host
    oifname "{tunnel_name()}*" jump of_host{routed}
    iifname "{GATEWAY}*" oifname "{tunnel_name()}*" drop
  }}
  chain entering {{
    type filter hook prerouting priority -300; policy accept;{entering}
  }}
  chain input {{
    type filter hook input priority -300; policy accept;
    iifname "{tunnel_name()}*" drop
  }}
  chain output {{
    type filter hook output priority -300; policy accept;
    oifname "{tunnel_name()}*" drop
  }}
}}
table inet {table} {{
  set peers {{ type ipv4_addr;{elements} }}
  chain input {{
    type filter hook input priority -10; policy accept;
    meta nfproto ipv4 ip saddr != @peers udp dport {port} drop
    meta nfproto ipv6 udp dport {port} drop
  }}
  chain forward {{
    type filter hook forward priority -10; policy accept;
    ip daddr @peers ip saddr != @peers udp dport {port} drop
  }}
}}
"""


def _ipv4(text: str) -> ipaddress.IPv4Address | None:
    try:
        return ip.parse4(text)
    except ValueError:
        return None


def _device(name: str) -> dict[str, object] | None:
    """Return the settings of a VXLAN device, None if it does not exist.

    They are read from text, because Ubuntu 24.04 prints no valid JSON for these devices.
    """
    if not os.path.exists(f"{NET}/{name}"):
        return None
    shown = images.run("ip", "-oneline", "-details", "link", "show", "dev", name).decode(errors="replace")
    words = shown.partition(" vxlan ")[2].split()

    def after(word: str) -> str:
        return words[words.index(word) + 1] if word in words[:-1] else ""

    return {"id": int(after("id") or 0), "local": after("local"), "port": int(after("dstport") or 0)}


def _destinations(device: str) -> dict[str, set[str]]:
    """Return the hosts to which a device sends, by MAC address."""
    found: dict[str, set[str]] = {}
    for entry in json.loads(images.run("bridge", "-json", "fdb", "show", "dev", device) or b"[]"):
        if "dst" in entry:
            found.setdefault(entry["mac"], set()).add(entry["dst"])
    return found


def _master(device: str) -> str:
    try:
        return os.path.basename(os.readlink(f"{NET}/{device}/master"))
    except OSError:
        return ""
