"""Trunks with real packets: guests in namespaces send tagged frames, nftables and dnsmasq of a host.

The kernel of the machine needs VLANs. `devstack/test-trunks.sh` runs this in a machine that has them.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator

import msgspec
import pytest

from nova_lite.network.trunks import Assignment
from nova_lite.objects import VIF, Network
from nova_lite.virt.libvirt.net import realms
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name
from tests.integration.libvirt.namespaces import DISCOVER
from tests.integration.network.routed_host import A, B, C, RoutedHost, router

#: Program that connects or disconnects a subport, in the namespace of the host, as the compute daemon does.
_CALL = """
import json, sys
import msgspec
from nova_lite.compute.trunks import devices
from nova_lite.network.trunks import Assignment
item = msgspec.convert(json.load(sys.stdin), Assignment)
print(getattr(devices, sys.argv[1])(item if sys.argv[1] != "disconnect" else item.vif))
"""
VLAN = 7


@pytest.fixture(autouse=True)
def _vlans(host: RoutedHost) -> Iterator[None]:
    try:
        host.in_space(host.host, "ip", "link", "add", "link", "up0", "name", "try0", "type", "vlan", "id", "9")
    except AssertionError:
        pytest.skip("the kernel has no VLANs")
    host.in_space(host.host, "ip", "link", "delete", "try0")
    yield


def call(host: RoutedHost, action: str, item: Assignment) -> str:
    text = msgspec.json.encode(item).decode()
    return host.in_space(host.host, sys.executable, "-W", "ignore", "-c", _CALL, action, text=text).strip()


def subport(host: RoutedHost, parent: VIF, network: Network, number: int) -> Assignment:
    """Give a trunk a subport. The daemon plugs it with the next `RoutedHost.drive`."""
    vif = VIF(
        id=str(uuid.uuid4()),
        mac_address=f"fa:16:3e:01:{network.vni:02x}:{number:02x}",
        address=network.cidr.replace("0/24", str(number)),
        network=network,
        port_security_enabled=True,
    )
    host.guests["subport"] = vif
    bridge = bridge_name(network)
    if f": {bridge}:" not in host.in_space(host.host, "ip", "-oneline", "link", "show"):
        alias = ("alias", f"{realms.ALIAS}{network.id}")
        host.in_space(host.host, "ip", "link", "add", bridge, "mtu", "1450", "type", "bridge")
        host.in_space(host.host, "ip", "link", "set", bridge, "addrgenmode", "none", *alias, "up")
    return Assignment(vif=vif, project_id="p", parent_id=parent.id, segmentation_id=VLAN)


def tag(host: RoutedHost, who: str, vif: VIF, number: int = VLAN) -> None:
    """Let a guest have an interface with a VLAN, and the address of a subport there."""
    space, name = host.space(who), f"eth0.{number}"
    host.in_space(space, "ip", "link", "add", "link", "eth0", "name", name, "type", "vlan", "id", str(number))
    host.in_space(space, "ip", "link", "set", name, "address", vif.mac_address, "up")
    host.in_space(space, "ip", "address", "add", f"{vif.address}/24", "dev", name)


def test_tagged_frames_are_the_subports_and_untagged_ones_the_parents(host: RoutedHost) -> None:
    parent = host.guest_on(A, "one", 10)
    beside, far = host.guest_on(A, "two", 11), host.guest_on(B, "far", 10)
    item = subport(host, parent, B, 20)
    tag(host, "one", item.vif)
    for who in ("one", "two", "far"):
        host.serve(who, 22)
    host.drive()
    assert host.cut_off("far", item.vif.address, 22), "it has no device yet"
    assert call(host, "connect", item) == "True"
    assert host.reaches("far", item.vif.address, 22)
    assert host.reaches("one", far.address, 22)
    assert host.source(host.space("far"), "one", far.address) == item.vif.address
    assert host.reaches("one", beside.address, 22) and host.reaches("two", parent.address, 22)
    assert host.cut_off("two", item.vif.address, 22), "no router connects both networks"
    call(host, "disconnect", item)
    assert host.cut_off("far", item.vif.address, 22) and host.cut_off("one", far.address, 22)
    assert host.reaches("one", beside.address, 22)


def test_frames_of_another_vlan_reach_neither_network(host: RoutedHost) -> None:
    parent = host.guest_on(A, "one", 10)
    beside, far = host.guest_on(A, "two", 11), host.guest_on(B, "far", 10)
    item = subport(host, parent, B, 20)
    tag(host, "one", item.vif, VLAN + 1)
    tag(host, "two", msgspec.structs.replace(item.vif, address="10.2.0.21", mac_address=beside.mac_address), VLAN + 1)
    for who in ("two", "far"):
        host.serve(who, 22)
    host.drive()
    call(host, "connect", item)
    assert host.cut_off("one", far.address, 22)
    assert host.cut_off("one", "10.2.0.21", 22), "guests of a bridge reach each other by tags"


def test_subport_sends_from_its_own_addresses_only(host: RoutedHost) -> None:
    parent, far = host.guest_on(A, "one", 10), host.guest_on(B, "far", 10)
    item = subport(host, parent, B, 20)
    tag(host, "one", item.vif)
    host.serve("far", 22)
    host.drive()
    call(host, "connect", item)
    assert host.reaches("one", far.address, 22)
    space, name = host.space("one"), f"eth0.{VLAN}"
    host.in_space(space, "ip", "address", "add", "10.2.0.99/24", "dev", name)
    host.in_space(space, "ip", "route", "replace", "10.2.0.0/24", "dev", name, "src", "10.2.0.99")
    assert host.cut_off("one", far.address, 22), "another address"
    host.in_space(space, "ip", "route", "replace", "10.2.0.0/24", "dev", name, "src", item.vif.address)
    assert host.reaches("one", far.address, 22)
    host.in_space(space, "ip", "link", "set", name, "address", parent.mac_address)
    assert host.cut_off("one", far.address, 22), "another MAC address"


def test_security_groups_filter_a_subport(host: RoutedHost) -> None:
    parent, far = host.guest_on(A, "one", 10), host.guest_on(B, "far", 10)
    item = subport(host, parent, B, 20)
    tag(host, "one", item.vif)
    host.serve("one", 22)
    host.serve("far", 22)
    host.closed = {"subport"}
    host.drive()
    call(host, "connect", item)
    assert host.cut_off("far", item.vif.address, 22) and host.cut_off("one", far.address, 22)
    host.closed = set()
    host.drive()
    assert host.reaches("far", item.vif.address, 22) and host.reaches("one", far.address, 22)


def test_subport_reaches_networks_behind_a_router_and_gets_its_address_by_dhcp(host: RoutedHost) -> None:
    parent, other = host.guest_on(A, "one", 10), host.guest_on(C, "two", 10)
    item = subport(host, parent, B, 20)
    tag(host, "one", item.vif)
    host.serve("one", 22)
    host.drive(router(B, C, guests=[other, item.vif]))
    call(host, "connect", item)
    way = ("via", B.gateway or "", "dev", f"eth0.{VLAN}")
    host.in_space(host.space("one"), "ip", "route", "add", C.cidr, *way)
    assert host.reaches("two", item.vif.address, 22)
    program = DISCOVER.replace("eth0", f"eth0.{VLAN}")
    found = host.in_space(host.space("one"), sys.executable, "-c", program, item.vif.mac_address, "20")
    assert json.loads(found)["address"] == item.vif.address


def test_subport_is_connected_again_when_its_guest_has_a_new_interface(host: RoutedHost) -> None:
    parent, far = host.guest_on(A, "one", 10), host.guest_on(B, "far", 10)
    item = subport(host, parent, B, 20)
    host.serve("far", 22)
    host.drive()
    call(host, "connect", item)
    assert (call(host, "connect", item), call(host, "is_connected", item)) == ("True", "True")
    host.in_space(host.host, "ip", "link", "delete", tap_name(parent))
    assert (call(host, "is_connected", item), call(host, "connect", item)) == ("False", "False")
    space = host.space("one")
    link = ("ip", "link", "add", tap_name(parent), "type", "veth", "peer", "name", "eth0", "netns", space)
    host.in_space(host.host, *link)
    host.in_space(host.host, "ip", "link", "set", tap_name(parent), "master", bridge_name(A), "up")
    host.in_space(space, "ip", "link", "set", "eth0", "up")
    tag(host, "one", item.vif)
    assert call(host, "connect", item) == "True"
    assert host.reaches("one", far.address, 22)
