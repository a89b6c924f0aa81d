"""Bridges and networks that existed before a guest's network, on a real host."""

from __future__ import annotations

import glob
import os
import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Network
from nova_lite.virt.libvirt.driver import LibvirtDriver
from nova_lite.virt.libvirt.net import dhcp, names, namespaces, realms, reservations
from tests.integration.libvirt.conftest import remove_left_over_networks
from tests.integration.libvirt.namespaces import NamespaceGuest
from tests.support.guests import make_instance, make_network, make_vif
from tests.support.host_networks import remove_network

#: Seconds of an age that no network of another test has.
HOUR = 3600.0


def age(network: Network) -> None:
    """Make a network look as if it was last used a day ago."""
    os.utime(reservations.directory_for(network), (time.time() - 86400,) * 2)


def plug(driver: LibvirtDriver, network: Network) -> str:
    instance, address = make_instance(), network.cidr.replace(".0/24", ".20")
    driver.networks.plug(instance, [make_vif(network=network, address=address)])
    return instance.uuid


def some_network(number: int, bridge: str, network_id: str | None = None) -> Network:
    prefix = f"10.{180 + number}.{uuid.uuid4().bytes[0]}"
    return make_network(
        id=network_id or str(uuid.uuid4()), cidr=f"{prefix}.0/24", gateway=f"{prefix}.1", bridge=bridge, name="new"
    )


@pytest.fixture
def bridge() -> Iterator[str]:
    """Provide the name of a bridge, which is removed at the end."""
    name = f"nlt{uuid.uuid4().hex[:8]}"
    yield name
    subprocess.run(["ip", "link", "delete", name], capture_output=True, check=False)


def test_bridge_with_another_subnet_is_refused(driver: LibvirtDriver, bridge: str) -> None:
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", "10.179.0.1/24", "dev", bridge], check=True)
    with pytest.raises(exceptions.VirtDriverError, match=f"bridge {bridge} exists with 10.179.0.1/24, and network new"):
        plug(driver, some_network(0, bridge))


def test_bridge_of_a_left_over_network_is_refused_until_the_network_is_removed(
    connection: Any, driver: LibvirtDriver, bridge: str
) -> None:
    left = some_network(1, bridge, f"a0000000-0000-4000-8000-{uuid.uuid4().hex[:12]}")
    driver.networks.unplug(plug(driver, left))
    try:
        network = some_network(2, bridge)
        with pytest.raises(exceptions.VirtDriverError, match=f"belongs to network {left.id}"):
            plug(driver, network)
        remove_left_over_networks(connection)
        driver.networks.unplug(plug(driver, network))
    finally:
        remove_network(connection, f"nova-lite-{left.id}")
        remove_network(connection, f"nova-lite-{network.id}")


def test_networks_with_the_same_addresses_are_apart(
    connection: Any, driver: LibvirtDriver, request: pytest.FixtureRequest
) -> None:
    """Two projects have them, or hosts have not learnt yet that the cloud has deleted one, as by `terraform apply`."""
    first = some_network(4, f"nlt{uuid.uuid4().hex[:8]}")
    second = msgspec.structs.replace(first, id=str(uuid.uuid4()), bridge=f"nlt{uuid.uuid4().hex[:8]}")
    for network in (first, second):
        request.addfinalizer(lambda network=network: remove_network(connection, f"nova-lite-{network.id}"))  # type: ignore[misc]
        vif = make_vif(network=network, address=network.cidr.replace(".0/24", ".20"))
        instance, guest = make_instance(), NamespaceGuest(vif)
        driver.networks.plug(instance, [vif])
        request.addfinalizer(lambda uuid_=instance.uuid: driver.networks.unplug(uuid_))  # type: ignore[misc]
        request.addfinalizer(guest.close)
        guest.start()
        assert guest.offer()["address"] == vif.address
        guest.run("ip", "address", "add", f"{vif.address}/24", "dev", "eth0")
        guest.run("ping", "-c", "1", "-w", "20", str(network.gateway))
    assert realms.realm_of(first.id) != realms.realm_of(second.id)


def test_network_without_guests_is_removed_and_starts_again(connection: Any, driver: LibvirtDriver) -> None:
    bridge = f"nlt{uuid.uuid4().hex[:8]}"
    network = some_network(5, bridge)
    name = f"nova-lite-{network.id}"

    def remains() -> list[str]:
        """Return the parts of the network on the host: in libvirt, files, devices, and its realm."""
        parts = [item.name() for item in connection.listAllNetworks() if item.name() == name]
        parts += glob.glob(os.path.join(dhcp.DIRECTORY, f"{name}.*"))
        devices = bridge, names.gateway_name(network.id), names.uplink_name(network.id)
        parts += [device for device in devices if os.path.exists(f"{realms.NET}/{device}")]
        return parts + namespaces.found(names.realm_name(network.id))

    try:
        guest = plug(driver, network)
        age(network)
        assert network.id not in driver.networks.remove_unused(HOUR)
        driver.networks.unplug(guest)
        assert network.id not in driver.networks.remove_unused(HOUR), "it was used just now"
        kinds = "d", "conf", "options", "servers", "pid"
        assert {f"{dhcp.DIRECTORY}/{name}.{kind}" for kind in kinds} < {*remains()} and len(remains()) >= 10
        assert dhcp.is_running(name)
        age(network)
        assert network.id in driver.networks.remove_unused(HOUR)
        assert remains() == [] and not dhcp.is_running(name)
        driver.networks.unplug(plug(driver, network))
        assert name in remains()
    finally:
        remove_network(connection, name)
