"""``[DEFAULT] default_access_ip_network_name``: the access addresses of new servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nova_lite import objects
from nova_lite.db.network import builtin_networks
from nova_lite.objects import NetworkRequest
from tests.support.conductor_world import BUILT, World

OUTSIDE = "22222222-2222-4222-8222-222222222222"
BOTH = [
    NetworkRequest(network_id="11111111-1111-4111-8111-111111111111"),
    NetworkRequest(network_id=OUTSIDE),
]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    network = objects.Network(
        id=OUTSIDE,
        name="outside",
        cidr="10.9.0.0/24",
        gateway="10.9.0.1",
        bridge="br9",
        start="10.9.0.2",
        end="10.9.0.254",
    )
    made.db.write(builtin_networks.create, network)
    return made


def access(world: World, uuid: str) -> tuple[str | None, str | None]:
    server = world.instance(uuid)
    return server.access_ip_v4, server.access_ip_v6


def test_access_addresses_are_those_of_the_default_network(world: World) -> None:
    world.conf.set_override("default_access_ip_network_name", "outside")
    uuid, _, _ = world.built(networks=BOTH)
    (address,) = [vif.address for vif in world.instance(uuid).vifs if vif.network.name == "outside"]
    assert address.startswith("10.9.0.")
    assert access(world, uuid) == (address, None)


def test_access_addresses_have_both_versions(world: World) -> None:
    dual = objects.Network(
        id="33333333-3333-4333-8333-333333333333",
        name="dual",
        cidr="10.8.0.0/24",
        gateway="10.8.0.1",
        bridge="br8",
        start="10.8.0.2",
        end="10.8.0.254",
        cidr6="fd00:8::/64",
    )
    world.db.write(builtin_networks.create, dual)
    world.conf.set_override("default_access_ip_network_name", "dual")
    uuid, _, _ = world.built(networks=[*BOTH, NetworkRequest(network_id=dual.id)])
    (vif,) = [vif for vif in world.instance(uuid).vifs if vif.network.name == "dual"]
    assert access(world, uuid) == (vif.address, vif.more[0].address)
    assert ":" in vif.more[0].address


@pytest.mark.parametrize("given", [{"access_ip_v4": "192.0.2.1"}, {"access_ip_v6": "2001:db8::1"}])
def test_access_addresses_of_the_user_stay(world: World, given: dict[str, Any]) -> None:
    """Nova fills none of both then."""
    world.conf.set_override("default_access_ip_network_name", "outside")
    uuid, _, _ = world.built(networks=BOTH, **given)
    assert access(world, uuid) == (given.get("access_ip_v4"), given.get("access_ip_v6"))


@pytest.mark.parametrize("name", [None, "elsewhere"])
def test_access_addresses_without_an_interface_on_the_default_network_are_empty(world: World, name: str | None) -> None:
    world.conf.set_override("default_access_ip_network_name", name)
    uuid, _, _ = world.built(networks=BOTH)
    assert access(world, uuid) == (None, None)


def test_access_addresses_are_empty_until_the_server_is_built(world: World) -> None:
    world.conf.set_override("default_access_ip_network_name", "outside")
    (uuid,) = world.create(networks=BOTH)
    world.lifecycle.build_instances(world.context(), [uuid])
    host, request = world.compute.builds[-1]
    assert access(world, uuid) == (None, None)
    world.report(uuid, host, request.generation, BUILT)
    assert access(world, uuid)[0] is not None
