"""Ranges that the cloud's machines use are not for subnets of members, while a host is of an older version."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import machine_networks
from nova_lite.db.hosts import hosts
from tests.support import make
from tests.support.api_client import ADMIN, MEMBER
from tests.unit.api.network.conftest import Api

RANGES = ["10.64.0.0/10", "fd00::/8"]
OVERLAPS = "network that machines of this cloud use"


@pytest.fixture
def cloud(api: Api) -> Api:
    """Provide a host with a network of each version, and a route to all addresses of a range for projects."""
    api.manager.conf.set_override("project_ranges", RANGES, "network")
    ranges = ["10.66.0.0/24", "fd00::/64", "10.0.0.0/8", "10.67.5.5/32"]
    report = make.report(inventories=[make.inventory(networks=ranges)])
    api.manager.db.write(hosts.record, api.manager.conf, report)
    return api


def body(api: Api, cidr: str, token: str = MEMBER) -> dict[str, Any]:
    network = api.make("/networks", "network", token)
    return {"subnet": {"network_id": network["id"], "ip_version": 6 if ":" in cidr else 4, "cidr": cidr}}


@pytest.mark.parametrize("cidr", ["10.66.0.0/24", "10.66.0.128/25", "10.66.0.0/16", "fd00::/64", "10.67.5.0/24"])
def test_subnet_in_a_range_of_a_host_is_for_admins_only(cloud: Api, cidr: str) -> None:
    cloud.refused("POST", "/subnets", body(cloud, cidr), 400, "InvalidInput", OVERLAPS)
    assert cloud("POST", "/subnets", body(cloud, cidr, ADMIN), ADMIN).status_code == 201


@pytest.mark.parametrize("cidr", ["10.66.1.0/24", "fd00:0:0:1::/64"])
def test_subnet_beside_the_ranges_of_hosts_is_made(cloud: Api, cidr: str) -> None:
    response = cloud("POST", "/subnets", body(cloud, cidr))
    assert response.status_code == 201, response.text


def test_subnet_in_a_range_of_the_conductors_machine_is_refused(cloud: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_networks, "used", lambda conf, *servers: ["10.68.0.0/16"])
    cloud.refused("POST", "/subnets", body(cloud, "10.68.9.0/24"), 400, "InvalidInput", OVERLAPS)


@pytest.mark.parametrize("prefix", ["127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/8", "fe80::/16", "ff00::/8", "::/16"])
@pytest.mark.parametrize("token", [MEMBER, ADMIN])
def test_pool_of_reserved_addresses_is_refused(cloud: Api, prefix: str, token: str) -> None:
    values = {"subnetpool": {"name": "p", "prefixes": [prefix], "default_prefixlen": 64 if ":" in prefix else 24}}
    cloud.refused("POST", "/subnetpools", values, 400, "InvalidInput", "which are for", token)
    made = cloud.make("/subnetpools", "subnetpool", prefixes=["fd77::/48" if ":" in prefix else "10.70.0.0/16"])
    cloud.refused(
        "PUT", f"/subnetpools/{made['id']}/add_prefixes", {"prefixes": [prefix]}, 400, "InvalidInput", "are for"
    )
