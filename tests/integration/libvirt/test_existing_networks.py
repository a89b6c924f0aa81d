"""Bridges that existed before a guest's network, with the real libvirt."""

from __future__ import annotations

import glob
import os
import re
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
from nova_lite.virt.libvirt.net import dhcp, networks
from nova_lite.virt.libvirt.net.names import bridge_name
from tests.integration.libvirt.conftest import remove_left_over_networks, remove_network
from tests.support.guests import make_instance, make_network, make_vif

#: Seconds of an age that no network of another test has.
HOUR = 3600.0


def age(network: Network) -> None:
    """Make a network look as if it was last used a day ago."""
    os.utime(networks.reservations_directory(network), (time.time() - 86400,) * 2)


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
        with pytest.raises(exceptions.VirtDriverError, match=f"belongs to libvirt's network nova-lite-{left.id}"):
            plug(driver, network)
        remove_left_over_networks(connection)
        driver.networks.unplug(plug(driver, network))
        with pytest.raises(exceptions.VirtDriverError, match=r"has subnet .*virsh net-undefine"):
            plug(driver, some_network(3, bridge, network.id))
    finally:
        remove_network(connection, f"nova-lite-{left.id}", bridge)
        remove_network(connection, f"nova-lite-{network.id}", bridge)


def test_network_of_a_deleted_one_with_the_same_addresses_is_replaced(connection: Any, driver: LibvirtDriver) -> None:
    """Hosts do not learn that the cloud has deleted a network, as `terraform destroy` does before `apply`."""
    first = some_network(4, f"nlt{uuid.uuid4().hex[:8]}")
    second = msgspec.structs.replace(first, id=str(uuid.uuid4()), bridge=f"nlt{uuid.uuid4().hex[:8]}")
    try:
        guest = plug(driver, first)
        with pytest.raises(exceptions.VirtDriverError, match=f"nova-lite-{first.id}, which guests use"):
            plug(driver, second)
        driver.networks.unplug(guest)
        driver.networks.unplug(plug(driver, second))
        names = {network.name() for network in connection.listAllNetworks()}
        assert (f"nova-lite-{first.id}" in names, f"nova-lite-{second.id}" in names) == (False, True)
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        assert first.id.replace("-", "_") not in tables
    finally:
        for network in (first, second):
            remove_network(connection, f"nova-lite-{network.id}", bridge_name(network))


def test_network_without_guests_is_removed_and_starts_again(connection: Any, driver: LibvirtDriver) -> None:
    network = some_network(5, f"nlt{uuid.uuid4().hex[:8]}")
    name = f"nova-lite-{network.id}"

    def remains() -> list[str]:
        """Return the parts of the network on the host: in libvirt, files, and tables."""
        tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        files = glob.glob(os.path.join(dhcp.DIRECTORY, f"{name}.*"))
        names = [item.name() for item in connection.listAllNetworks()]
        token = network.id.replace("-", "")
        return [item for item in (*names, *files, *tables.split()) if token in re.sub("[-_]", "", item)]

    try:
        guest = plug(driver, network)
        age(network)
        assert network.id not in driver.networks.remove_unused(HOUR)
        driver.networks.unplug(guest)
        assert network.id not in driver.networks.remove_unused(HOUR), "it was used just now"
        assert len(remains()) >= 4
        age(network)
        assert network.id in driver.networks.remove_unused(HOUR)
        assert remains() == []
        driver.networks.unplug(plug(driver, network))
        assert name in remains()
    finally:
        remove_network(connection, name, bridge_name(network))
