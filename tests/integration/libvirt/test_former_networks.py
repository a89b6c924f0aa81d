"""A network of an older version, which libvirt runs with NAT, gets a realm while a guest is on it.

The guest is a namespace. Outside is one more namespace, behind a link of this machine.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from nova_lite.objects import Network
from nova_lite.virt.libvirt.net import dhcp, realms, reservations
from nova_lite.virt.libvirt.net.names import bridge_mac, network_name, network_table
from tests.integration.libvirt.conftest import MakeDriver
from tests.integration.libvirt.namespaces import NamespaceGuest, run
from tests.support.guests import make_instance, make_network, make_vif
from tests.support.host_networks import remove_network
from tests.support.waiting import wait_for

#: Network of an older version, without its DHCP server.
XML = """<network><name>{name}</name><uuid>{id}</uuid><forward mode="nat"/><bridge name="{bridge}" stp="off" delay="0"/>
{mac}<ip address="{gateway}" netmask="255.255.255.0"/></network>"""
#: Seconds in which a guest is connected again. A connection waits longer.
PATIENCE = 20.0


@pytest.fixture
def outside() -> Iterator[str]:
    """Provide an address that this machine reaches, and that does not know the way to any guest."""
    name, number = f"nlt{uuid.uuid4().hex[:8]}", uuid.uuid4().bytes[0] & 252
    here, there = f"198.51.100.{number | 1}", f"198.51.100.{number | 2}"
    for command in (
        f"ip netns add {name}",
        f"ip link add {name} type veth peer name eth0 netns {name}",
        f"ip address add {here}/30 dev {name}",
        f"ip link set {name} up",
        f"ip -n {name} address add {there}/30 dev eth0",
        f"ip -n {name} link set eth0 up",
    ):
        run(*command.split())
    yield there
    run("ip", "netns", "delete", name)


def pings(guest: NamespaceGuest, address: str) -> bool:
    try:
        guest.run("ping", "-c", "1", "-W", "1", address)
    except subprocess.CalledProcessError:
        return False
    return True


@pytest.mark.parametrize("is_wide", [True, False])
def test_guest_of_a_former_network_stays_connected(
    connection: Any, make_driver: MakeDriver, outside: str, request: pytest.FixtureRequest, is_wide: bool
) -> None:
    token = uuid.uuid4()
    prefix, vni = f"10.{190 + token.bytes[0] % 9}.{token.bytes[1]}", int.from_bytes(token.bytes[2:5], "big") or 1
    network: Network = make_network(
        id=str(token),
        cidr=f"{prefix}.0/24",
        gateway=f"{prefix}.1",
        start=f"{prefix}.10",
        end=f"{prefix}.250",
        bridge=f"nlt{token.hex[:8]}",
        vni=vni if is_wide else None,
    )
    name, instance, vif = network_name(network), make_instance(), make_vif(network=network, address=f"{prefix}.20")
    mac = f'<mac address="{bridge_mac(vni)}"/>' if is_wide else ""
    xml = XML.format(name=name, id=network.id, bridge=network.bridge, gateway=network.gateway, mac=mac)
    driver, guest = make_driver("former"), NamespaceGuest(vif)
    driver._network.records.record(instance.uuid, [vif])
    request.addfinalizer(lambda: driver.networks.unplug(instance.uuid))
    reservations.reserve(vif, "web", driver.host)
    connection.networkDefineXML(xml).create()
    request.addfinalizer(lambda: remove_network(connection, name))
    run("nft", "add", "table", "inet", network_table(network.id))
    request.addfinalizer(guest.close)
    guest.start()
    guest.run("ip", "address", "add", f"{vif.address}/24", "dev", "eth0")
    guest.run("ip", "route", "add", "default", "via", str(network.gateway))
    wait_for("the way out of the older version", lambda: pings(guest, outside), PATIENCE)

    restarted = make_driver("former")
    request.addfinalizer(lambda: restarted.networks.unplug(instance.uuid))
    request.addfinalizer(guest.close)
    wait_for("the gateway", lambda: pings(guest, str(network.gateway)), PATIENCE)
    wait_for("the way out", lambda: pings(guest, outside), PATIENCE)
    assert realms.realm_of(network.id) == network.id
    assert "forward mode='bridge'" in connection.networkLookupByName(name).XMLDesc(0), "definitions of guests name it"
    assert network_table(network.id) not in run("nft", "list", "tables")
    assert dhcp.is_running(name) and guest.offer()["address"] == vif.address
