"""IPv6 addresses that a create or an attach of an interface names."""

from __future__ import annotations

import uuid
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.db.network import networks, ports
from nova_lite.objects import NetworkRecord, NetworkRequest, Subnet6
from tests.support.conductor_world import World

CHOSEN = "fd40:1::0042"
STORED = "fd40:1::42"


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.conf.set_override("project_ranges", ["10.64.0.0/16", "fd40::/10"], "network")
    return world


def network(world: World, mode: str | None = "dhcpv6-stateful") -> str:
    record = NetworkRecord(id=str(uuid.uuid4()), name="n", cidr="", project_id="p1")
    made = world.db.write(networks.create, world.conf, world.context(), record)
    plain = NetworkRecord(id=made.id, name="", cidr="10.64.1.0/24")
    settings = Subnet6(ra_mode=mode, address_mode=mode)
    with_ipv6 = NetworkRecord(id=made.id, name="", cidr="", cidr6="fd40:1::/64", subnet6=settings)
    for subnet in (plain, with_ipv6):
        world.db.write(networks.create_subnet, world.conf, world.context(), subnet)
    return made.id


def addresses(world: World, server: str) -> list[tuple[str, str | None]]:
    found = world.db.read(ports.list_, world.context(), {"device_id": [server]})
    return [(port.address, port.address6) for port in found]


def test_server_gets_the_ipv6_address_of_its_request(world: World) -> None:
    request = NetworkRequest(network_id=network(world), fixed_ip=CHOSEN)
    server, *_ = world.built(networks=[request])
    ((address, address6),) = addresses(world, server)
    assert address6 == STORED
    assert address.startswith("10.64.1.")
    with pytest.raises(exceptions.FixedIpInUse):
        world.create(networks=[request])


def test_attached_interface_gets_the_ipv6_address_of_its_request(world: World) -> None:
    server, *_ = world.built(networks="none")
    request = msgspec.to_builtins(NetworkRequest(network_id=network(world), fixed_ip=CHOSEN))
    world.lifecycle.accept_action(world.context(), server, "attach_interface", {"request": request})
    assert [address6 for _, address6 in addresses(world, server)] == [STORED]


@pytest.mark.parametrize(("mode", "address"), [("slaac", CHOSEN), ("dhcpv6-stateful", "fd40:2::42")])
def test_address_that_no_interface_can_have_is_refused(world: World, mode: str, address: str) -> None:
    with pytest.raises(exceptions.FixedIpInvalid):
        world.create(networks=[NetworkRequest(network_id=network(world, mode), fixed_ip=address)])
