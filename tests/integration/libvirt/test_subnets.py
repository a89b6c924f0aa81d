"""Settings of a subnet that users change while guests run, with a real host and its DHCP server.

A guest is a namespace with a DHCP client.
"""

from __future__ import annotations

import ipaddress
import json
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nova_lite.objects import VIF, Network, PortFilters, SecurityGroup, SecurityGroupRule, Subnet6, ipv6
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import namespaces, realms
from nova_lite.virt.libvirt.net.names import bridge_name, gateway_name, realm_name, tap_name
from tests.integration.libvirt.conftest import MakeDriver
from tests.integration.libvirt.namespaces import NamespaceGuest, run
from tests.support.guests import make_instance, make_vif
from tests.support.host_networks import remove_network

#: Sends a query to a name server, and prints the address that queries the name server here.
_RESOLVE = """
import socket, sys, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", 53))
server.settimeout(0.5)
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
query = bytes([1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]) + b"\\x04name\\x07example\\x00" + bytes([0, 1, 0, 1])
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    client.sendto(query, (sys.argv[1], 53))
    try:
        packet, sender = server.recvfrom(2000)
    except TimeoutError:
        continue
    assert b"example" in packet
    print(sender[0])
    break
"""


class Place:
    """A host with a guest on a network of its own."""

    def __init__(self, driver: LibvirtDriver, network: Network) -> None:
        self.driver, self.network = driver, network
        self.instance = make_instance()
        self.vif = make_vif(network=network, address=network.cidr.replace(".0/24", ".20"))
        self.guest = NamespaceGuest(self.vif)

    def start(self) -> None:
        self.driver.networks.plug(self.instance, [self.vif])
        self.guest.start()

    def change(self, **settings: Any) -> None:
        """Do what a host does when the conductor has other settings."""
        self.network = msgspec.structs.replace(self.network, **settings)
        open_to_all = [SecurityGroupRule(id=way, security_group_id="g", direction=way) for way in ("ingress", "egress")]
        self.driver.filters.apply(
            PortFilters(
                groups={"g": SecurityGroup(id="g", name="g", rules=open_to_all)},
                instances={self.instance.uuid: ["g"]},
                networks={self.network.id: self.network},
            )
        )

    def address(self, number: int) -> str:
        return self.network.cidr.replace(".0/24", f".{number}")

    def gateway(self) -> dict[str, Any]:
        """Return what ``ip`` shows of the network's gateway in its realm."""
        enter = namespaces.inside(realm_name(str(realms.realm_of(self.network.id))))
        shown: list[dict[str, Any]] = json.loads(
            run(*enter, "ip", "-json", "-4", "address", "show", "dev", bridge_name(self.network))
        )
        return shown[0]

    def gateway_addresses(self) -> list[str]:
        return [info["local"] for info in self.gateway()["addr_info"]]


@pytest.fixture
def place(connection: Any, make_driver: MakeDriver, network: Network) -> Iterator[Place]:
    token = uuid.uuid4()
    prefix = f"10.{180 + token.bytes[0] % 9}.{token.bytes[1]}"
    mine = msgspec.structs.replace(
        network,
        id=str(token),
        cidr=f"{prefix}.0/24",
        gateway=f"{prefix}.1",
        start=f"{prefix}.10",
        end=f"{prefix}.250",
        bridge=f"nlt{token.hex[:8]}",
    )
    made = Place(make_driver("subnets"), mine)
    try:
        made.start()
        yield made
    finally:
        made.guest.close()
        made.driver.networks.unplug(made.instance.uuid)
        remove_network(connection, f"nova-lite-{mine.id}")


@pytest.fixture
def pair(connection: Any, make_driver: MakeDriver, network: Network) -> Iterator[Place]:
    """Return a host with a guest on a network of two addresses of each IP version."""
    token = uuid.uuid4()
    first = f"10.{180 + token.bytes[0] % 9}.{token.bytes[1]}.8"
    mine = msgspec.structs.replace(
        network,
        id=str(token),
        cidr=f"{first}/31",
        gateway=first[:-1] + "9",
        start=first,
        end=first,
        bridge=f"nlt{token.hex[:8]}",
        enable_dhcp=False,
        cidr6=f"fd9e:{token.hex[:4]}::/127",
        subnet6=Subnet6(gateway=f"fd9e:{token.hex[:4]}::", enable_dhcp=False),
    )
    made = Place(make_driver("pairs"), mine)
    made.vif = make_vif(network=mine, address=first, more=ipv6.further_addresses(mine, f"fd9e:{token.hex[:4]}::1"))
    made.guest = NamespaceGuest(made.vif)
    try:
        made.start()
        yield made
    finally:
        made.guest.close()
        made.driver.networks.unplug(made.instance.uuid)
        remove_network(connection, f"nova-lite-{mine.id}")


def test_guest_of_a_network_of_two_addresses_and_its_gateways_and_host_are_connected(pair: Place) -> None:
    for command, address, gateway in (
        ("-4", f"{pair.vif.address}/31", str(pair.network.gateway)),
        ("-6", f"{pair.vif.more[0].address}/127", str(ipv6.gateway(pair.network))),
    ):
        nodad = ("nodad",) if command == "-6" else ()
        pair.guest.run("ip", command, "address", "add", address, "dev", "eth0", *nodad)
        pair.guest.run("ip", command, "route", "add", "default", "via", gateway)
        pair.guest.run("ping", command, "-c", "1", "-w", "20", gateway)
    for address in (pair.vif.address, pair.vif.more[0].address):
        run("ping", "-c", "1", "-w", "20", address)
    assert pair.gateway_addresses() == [pair.network.gateway]


def octets(*texts: str) -> str:
    return "".join(ipaddress.IPv4Address(text).packed.hex() for text in texts)


def test_dhcp_is_turned_off_and_on(place: Place) -> None:
    offer = place.guest.offer()
    assert (offer["address"], offer["3"]) == (place.vif.address, octets(place.address(1)))
    place.change(enable_dhcp=False)
    assert place.guest.offer(patience=3) == {}
    again = make_instance()
    other = make_vif(2, network=place.network, address=place.address(21))
    place.driver.networks.plug(again, [other])
    second = NamespaceGuest(other)
    try:
        second.start()
        assert second.offer(patience=3) == {}, "a guest that came when it was off"
        place.change(enable_dhcp=True)
        assert second.offer()["address"] == other.address
        assert place.guest.offer()["address"] == place.vif.address
    finally:
        second.close()
        place.driver.networks.unplug(again.uuid)


def test_gateway_and_routes_change_for_running_guests(place: Place) -> None:
    route = {"destination": "10.5.0.0/16", "nexthop": place.address(9)}
    place.change(gateway=place.address(2), host_routes=[route])
    assert place.gateway_addresses() == [place.address(2)]
    offer = place.guest.offer()
    assert (offer["3"], offer["6"]) == (octets(place.address(2)), octets(place.address(2)))
    routes = "100a05" + octets(place.address(9)) + "00" + octets(place.address(2))
    assert (offer["121"], offer["249"]) == (routes, routes)
    place.guest.run("ip", "address", "add", f"{place.vif.address}/24", "dev", "eth0")
    place.guest.run("ping", "-c", "1", "-W", "5", place.address(2))
    place.change(gateway=None, host_address=place.address(2), host_routes=None)
    assert place.gateway_addresses() == [place.address(2)]
    assert not {"3", "121", "249"} & place.guest.offer().keys()
    place.change(gateway=place.address(1), host_address=None)
    assert place.gateway_addresses() == [place.address(1)]
    assert place.guest.offer()["3"] == octets(place.address(1))


def test_mtu_changes_for_running_guests(place: Place) -> None:
    def on_host() -> set[int]:
        names = (bridge_name(place.network), tap_name(place.vif), gateway_name(place.network.id))
        return {int(Path(f"/sys/class/net/{name}/mtu").read_text()) for name in names} | {place.gateway()["mtu"]}

    for mtu in (1400, 1600):
        place.change(mtu=mtu)
        assert on_host() == {mtu}
        assert int(place.guest.offer()["26"], 16) == mtu


def test_name_servers_change_for_running_guests(place: Place) -> None:
    """The host forwards what guests ask to the subnet's name servers. Here the guest is one itself."""
    place.guest.run("ip", "address", "add", f"{place.vif.address}/24", "dev", "eth0")
    place.change(dns=["192.0.2.1"])
    place.change(dns=[place.vif.address])
    words = (sys.executable, "-c", _RESOLVE, place.address(1))
    assert place.guest.run(*words).strip() == place.address(1)


def test_changed_settings_survive_a_restart_of_the_daemon(place: Place, make_driver: MakeDriver) -> None:
    place.change(enable_dhcp=False, gateway=place.address(2))
    (recorded,) = place.driver._records.read_interfaces(place.instance.uuid)
    assert recorded.network == place.network
    run("ip", "link", "delete", gateway_name(place.network.id))
    make_driver("subnets")
    assert place.gateway_addresses() == [place.address(2)], "as after a restart of the machine"
    assert place.guest.offer(patience=3) == {}


def test_address_pairs_and_port_security_reach_running_guests(place: Place) -> None:
    """The record follows, too: a restarted daemon guards its guests by it."""

    def change(pairs: list[dict[str, str]], unfiltered: list[str]) -> tuple[str, VIF]:
        filters = PortFilters(pairs={place.vif.id: pairs} if pairs else {}, unfiltered=unfiltered)
        place.driver.filters.apply(filters)
        (recorded,) = place.driver._records.read_interfaces(place.instance.uuid)
        return run("nft", "list", "ruleset"), recorded

    assert place.address(77) not in run("nft", "list", "ruleset")
    pairs = [{"ip_address": place.address(77), "mac_address": place.vif.mac_address}]
    rules, recorded = change(pairs, [])
    assert rules.count(f"ip saddr {place.address(77)}") >= 2, "forged addresses, and security groups"
    assert recorded.address_pairs == pairs
    rules, recorded = change([], [])
    assert place.address(77) not in rules and recorded.address_pairs is None
    rules, recorded = change([], [place.vif.id])
    assert f"port_in_{place.vif.id.replace('-', '_')}" not in rules and not recorded.port_security_enabled
    rules, recorded = change([], [])
    assert f"port_in_{place.vif.id.replace('-', '_')}" in rules and recorded.port_security_enabled
    place.driver.filters.apply(PortFilters())
    (unchanged,) = place.driver._records.read_interfaces(place.instance.uuid)
    assert unchanged == recorded, "a reply without the port's filters changes nothing"
