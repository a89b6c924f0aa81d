"""Routers on this host: the host passes packets between the networks that a router connects, and through its gateway.

Each host routes for its own guests. To reach a guest of another host, a packet is routed here and then crosses the
tunnel of the guest's network. So a host has the bridges of all networks of its routers that span hosts. It knows the
MAC addresses of their guests. It must not ask for them, since all hosts have the gateway's address.

What passes is decided by the table of each network (`firewall`). libvirt's own rules for networks with NAT refuse
connections from elsewhere, and give them an address of the host as their source. A chain before them accepts what
routers pass.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping

import msgspec

from nova_lite.base import exceptions, files, ip
from nova_lite.objects import HostRouter, Network
from nova_lite.objects.ready import prepare_decoders
from nova_lite.virt import images
from nova_lite.virt.libvirt.net import nft
from nova_lite.virt.libvirt.net.firewall import Routing, routings
from nova_lite.virt.libvirt.net.names import CHAIN_PARENTS, CHAINS, bridge_name, chain_name
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.static_routes import StaticRoutes

LOG = logging.getLogger(__name__)

#: Seconds after which the place of the chains before libvirt's is checked again.
CHECK_SECONDS = 30.0

prepare_decoders(HostRouter)


class HostRouters:
    """Manages the routers. The last ones from the conductor are stored on disk, and stay valid until they are
    replaced."""

    def __init__(self, networks: HostNetworks, host: str, directory: str) -> None:
        self._networks = networks
        self._host = host
        self._chain = chain_name(host)
        self._path = os.path.join(directory, f"_routers@{host}.json")
        self._lock = threading.Lock()
        self._stored: list[HostRouter] = []
        self._active: list[HostRouter] = []
        self._accepted: dict[int, str] = {}
        self._checked = float("-inf")
        self._static_routes = StaticRoutes()

    @property
    def active(self) -> list[HostRouter]:
        return self._active

    def prepare(self, needed: bool) -> None:
        """Restore the stored routers. ``needed``: this host has guests."""
        with self._lock:
            self._stored = self._read()
            self._apply(self._stored if needed else [])

    def set(self, routers: list[HostRouter] | None) -> None:
        """Replace all routers. None: they are unknown, and stay."""
        with self._lock:
            if routers is not None and routers != self._stored:
                files.write_atomically(self._path, msgspec.json.encode(routers), writer=self._host)
                self._stored = routers
            self._apply(self._stored)

    def resume(self) -> None:
        """Carry out the stored routers again, for a new guest."""
        with self._lock:
            if self._active != self._stored:
                self._apply(self._stored)

    def suspend(self) -> None:
        """Carry out no routers, since the last guest is gone."""
        with self._lock:
            if self._active:
                self._apply([])

    def _apply(self, routers: list[HostRouter]) -> None:
        former = {network.id: network for router in self._active for network in router.networks}
        self._active = usable = [self._with_bridges(router) for router in routers]
        self._networks.set_routing(routings(usable))
        self._accept()
        now = {network.id: network for router in usable for network in router.networks}
        neighbours = {network_id: known for router in usable for network_id, known in router.neighbours.items()}
        self._static_routes.set(usable, [network for network, _ in self._networks.routed()])
        for network in (former | now).values():
            if network.vni is not None:
                set_neighbours(bridge_name(network), neighbours.get(network.id, {}) if network.id in now else {})

    def _with_bridges(self, router: HostRouter) -> HostRouter:
        """Return a router with those of its networks that libvirt runs here, which are started."""
        started = []
        for network in router.networks:
            try:
                if self._networks.start(network):
                    started.append(network)
                    continue
                LOG.error("Network %s has a bridge that is not libvirt's: router %s ignores it", network.id, router.id)
            except exceptions.VirtDriverError as error:
                LOG.error("Network %s of router %s cannot be started: %s", network.id, router.id, error.message)
        return msgspec.structs.replace(router, networks=started)

    def _accept(self) -> None:
        """Load the chains that accept what routers pass, before libvirt's."""
        known = self._networks.routed()
        for version, program in ((4, "iptables"), (6, "ip6tables")):
            text = accepting(self._chain, known, version)
            is_new = text != self._accepted.get(version)
            if not is_new and (not text or time.monotonic() < self._checked + CHECK_SECONDS):
                continue
            if not text and version not in self._accepted:
                continue  # nothing was ever loaded
            try:
                _run(
                    f"{program}-restore", "--noflush", "--wait", text=text or accepting(self._chain, (), version, True)
                )
                for table, parent in CHAIN_PARENTS.items():
                    _come_first(program, table, parent, self._chain)
            except exceptions.VirtDriverError as error:
                LOG.error("Routers and floating addresses are not reached through libvirt's rules: %s", error.message)
                continue
            self._accepted[version] = text
        self._checked = time.monotonic()

    def _read(self) -> list[HostRouter]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=list[HostRouter])
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            LOG.warning("%s cannot be read and will be queried again: %s", self._path, error)
            return []


def accepting(
    chain: str, networks: Iterable[tuple[Network, Routing]], version: int = 4, even_empty: bool = False
) -> str:
    """Return the input of iptables-restore, empty if nothing is to be accepted unless ``even_empty``.

    It accepts only what libvirt would refuse, so that other rules of the machine hold as before.
    """
    forward, leaving = [], []
    for network, routing in nft.usable("network", networks, _valid, lambda item: item[0].id):
        cidr = network.cidr if version == 4 else network.cidr6
        if not cidr:
            continue
        bridge, source = bridge_name(network), nft.network(ip.parse_network(cidr, strict=False))
        if routing.static:
            leaving.append(f"-s {source} -o {bridge} -j ACCEPT")
        for other in routing.bridges(version):
            forward.append(f"-i {bridge} -o {other} -j ACCEPT")
            leaving.append(f"-s {source} -o {other} -j ACCEPT")
        if routing.leaves(version):
            forward.append(f"-o {bridge} -m conntrack --ctstate DNAT -j ACCEPT")
        if routing.leaves(version) and not routing.snat:
            forward.append(f"-o {bridge} -j ACCEPT")
            leaving.append(f"-s {source} -j ACCEPT")
    if not (forward or leaving) and not even_empty:
        return ""
    parts = []
    for table, rules in (("filter", forward), ("nat", leaving)):
        parts += [f"*{table}", f":{chain} - [0:0]", *(f"-A {chain} {rule}" for rule in rules), "COMMIT"]
    return "\n".join([*parts, ""])


def _valid(item: tuple[Network, Routing]) -> tuple[Network, Routing]:
    network, routing = item
    for bridge in (bridge_name(network), *routing.bridges(4), *routing.bridges(6)):
        nft.interface(bridge)
    ip.parse_network4(network.cidr, strict=False)
    return item


def _come_first(program: str, table: str, parent: str, chain: str) -> None:
    """Let the parent chain lead to ours first. libvirt puts its own first when it starts."""
    command = (program, "--wait", "-t", table)
    rules = images.run(*command, "-S", parent).decode(errors="replace").splitlines()
    targets = [rule.rpartition(" ")[2] for rule in rules if rule.startswith("-A ")]
    before = targets[: targets.index(chain)] if chain in targets else None
    if before is not None and all(target.startswith(CHAINS) for target in before):
        return
    if before is not None:
        images.run(*command, "-D", parent, "-j", chain)
    images.run(*command, "-I", parent, "-j", chain)


def set_neighbours(bridge: str, wanted: Mapping[str, str]) -> None:
    """Set the permanent neighbours of a bridge to exactly these MAC addresses by address. A failure is logged."""
    valid = dict(nft.usable("neighbour", wanted.items(), _neighbour, lambda item: item[0]))
    if not os.path.exists(f"/sys/class/net/{bridge}"):
        return
    try:
        shown = json.loads(images.run("ip", "-json", "neigh", "show", "dev", bridge, "nud", "permanent") or b"[]")
        known = {entry["dst"]: entry.get("lladdr", "") for entry in shown}
        lines = [f"neigh del {address} dev {bridge}" for address in sorted(known.keys() - valid.keys())]
        lines += [
            f"neigh replace {address} lladdr {mac} dev {bridge} nud permanent"
            for address, mac in sorted(valid.items())
            if known.get(address) != mac
        ]
        if lines:
            _run("ip", "-force", "-batch", "-", text="\n".join([*lines, ""]))
    except exceptions.VirtDriverError as error:
        LOG.error("Guests of other hosts on bridge %s are not reached by routers: %s", bridge, error.message)


def _neighbour(item: tuple[str, str]) -> tuple[str, str]:
    address, mac = item
    return nft.address(ip.parse(address)), nft.mac(mac)


def _run(*command: str, text: str) -> None:
    """Run a program with this input. Raises `VirtDriverError`."""
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise exceptions.VirtDriverError(reason=f"{command[0]} cannot be run: {error.strerror}") from error
    if result.returncode:
        raise exceptions.VirtDriverError(reason=f"{command[0]}: {' '.join(result.stderr.split())}")
