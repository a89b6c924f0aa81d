"""Two guests on two subnets of one network: a real conductor, and the real libvirt with its DHCP servers."""

from __future__ import annotations

import ipaddress
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Allocation
from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import VIF, NetworkRequest
from tests.integration.libvirt.conftest import PATIENCE, MakeDriver
from tests.integration.libvirt.namespaces import NamespaceGuest
from tests.support import make
from tests.support.guests import make_instance
from tests.support.host_networks import remove_network
from tests.support.spanning import host
from tests.support.waiting import wait_for
from tests.unit.api.network.conftest import Api

ME = make.context("demo")


class Cloud:
    """A conductor, and one host with a guest on each subnet of one network."""

    def __init__(self, path: Path, make_driver: MakeDriver) -> None:
        self.api = Api(path)
        self._db = self.api.manager.db
        self._node = host(self._db, "h1", None)
        self._driver = make_driver("several")
        self.vifs: list[VIF] = []
        self.guests: list[NamespaceGuest] = []
        self._plugged: list[str] = []
        token = uuid.uuid4().bytes[0] // 2 * 2
        self._network = self.api.make("/networks", "network", name="wide")
        for number in (token, token + 1):
            cidr = f"10.64.{number}.0/24"
            self.api.make("/subnets", "subnet", network_id=self._network["id"], cidr=cidr, ip_version=4)
        self.subnets: list[str] = self.api.get(f"/networks/{self._network['id']}")["network"]["subnets"]

    def boot(self, subnet_id: str) -> None:
        port = self.api.make("/ports", "port", network_id=self._network["id"], fixed_ips=[{"subnet_id": subnet_id}])
        instance_uuid, vif = self._db.write(self._allocate, port["id"])
        assert vif.address == port["fixed_ips"][0]["ip_address"]
        self.vifs.append(vif)
        self._driver.networks.plug(make_instance(uuid=instance_uuid), [vif])
        self._plugged.append(instance_uuid)
        guest = NamespaceGuest(vif)
        self.guests.append(guest)
        guest.start()

    def _allocate(self, uow: UnitOfWork, port_id: str) -> tuple[str, VIF]:
        instance_uuid = make.instance(uow, project_id="demo", host="h1")
        place = {"vcpus": 1, "memory_mb": 1, "disk_gb": 1, "created_at": uow.now}
        uow.session.add(Allocation(instance_uuid=instance_uuid, compute_node_id=self._node, generation=1, **place))
        backend, store = LocalNetworks(self.api.manager.conf), builtin_networks.Store(uow)
        request = backend.resolve(store, ME, [NetworkRequest(port_id=port_id)])
        (vif,) = backend.allocate(store, instance_uuid, request)
        return instance_uuid, vif

    def follow(self) -> None:
        """Do what a host does when it is notified."""
        (filters,) = self._db.read(security_groups.filters_together, [FilterQuery("h1", self._plugged)])
        self._driver.filters.apply(filters)

    def close(self, connection: Any) -> None:
        for guest in self.guests:
            guest.close()
        for instance_uuid in self._plugged:
            self._driver.networks.unplug(instance_uuid)
        self._driver.filters.apply(self._db.read(security_groups.filters_together, [FilterQuery("no host", [])])[0])
        for vif in self.vifs:
            remove_network(connection, f"nova-lite-{vif.network.id}")
        self._db.close()


@pytest.fixture
def cloud(connection: Any, make_driver: MakeDriver, tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path, make_driver)
    try:
        yield made
    finally:
        made.close(connection)


def pings(guest: NamespaceGuest, address: str) -> bool:
    try:
        guest.run("ping", "-c", "1", "-W", "1", address)
    except subprocess.CalledProcessError:
        return False
    return True


def test_guests_on_two_subnets_of_a_network_meet_through_a_router_only(cloud: Cloud) -> None:
    for subnet_id in cloud.subnets:
        cloud.boot(subnet_id)
    cloud.follow()
    first, second = cloud.guests
    for guest, vif in zip(cloud.guests, cloud.vifs, strict=True):
        offer = guest.offer()
        assert offer["address"] == vif.address, "DHCP of the guest's own subnet"
        gateway = str(ipaddress.IPv4Address(bytes.fromhex(offer["3"])))
        assert gateway == vif.network.gateway
        guest.run("ip", "address", "add", f"{vif.address}/24", "dev", "eth0")
        guest.run("ip", "route", "add", "default", "via", gateway)
    addresses = [vif.address for vif in cloud.vifs]
    assert wait_for("the gateway", lambda: pings(first, cloud.vifs[0].network.gateway or ""), PATIENCE)
    assert not pings(first, addresses[1]) and not pings(second, addresses[0])
    router = cloud.api.make("/routers", "router", name="r")
    for subnet_id in cloud.subnets:
        path = f"/routers/{router['id']}/add_router_interface"
        assert cloud.api("PUT", path, {"subnet_id": subnet_id}).status_code == 200
    cloud.follow()
    assert wait_for("the other subnet", lambda: pings(first, addresses[1]), PATIENCE)
    assert wait_for("the way back", lambda: pings(second, addresses[0]), PATIENCE)
    body = {"subnet_id": cloud.subnets[1]}
    assert cloud.api("PUT", f"/routers/{router['id']}/remove_router_interface", body).status_code == 200
    cloud.follow()
    assert not pings(first, addresses[1])
