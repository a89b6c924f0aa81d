"""Subnets for ports of certain owners."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import builtin_networks
from nova_lite.network.driver import load_backend
from nova_lite.objects import NetworkRequest
from tests.support import make
from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

LB = "network:lb"
NO_SUBNET = (409, "IpAddressGenerationFailureNoMatchingSubnet", "has no subnet for ports of the owner")


def subnet(api: Api, network_id: str, cidr: str, *types: str, **values: Any) -> dict[str, Any]:
    version = 6 if ":" in cidr else 4
    wanted = {"network_id": network_id, "cidr": cidr, "ip_version": version, "service_types": list(types)}
    return api.make("/subnets", "subnet", **wanted, **values)


@pytest.fixture
def network_id(api: Api) -> str:
    return str(api.make("/networks", "network", name="one")["id"])


def port(api: Api, network_id: str, owner: str = "", **values: Any) -> list[str]:
    """Make a port of an owner, and return the ids of its subnets."""
    made = api.make("/ports", "port", ADMIN, network_id=network_id, device_owner=owner, project_id="demo", **values)
    return [item["subnet_id"] for item in made["fixed_ips"]]


def test_subnet_shows_and_changes_its_service_types(api: Api, network_id: str) -> None:
    made = subnet(api, network_id, "10.64.0.0/24", "compute:nova", LB)
    assert made["service_types"] == ["compute:nova", LB]
    path = f"/subnets/{made['id']}"
    assert api("PUT", path, {"subnet": {"name": "x"}}).json["subnet"]["service_types"] == made["service_types"]
    for wanted in ([LB], []):
        changed = api("PUT", path, {"subnet": {"service_types": wanted}})
        assert changed.json["subnet"]["service_types"] == wanted == api.get(path)["subnet"]["service_types"]
    made6 = subnet(api, network_id, "fd40::/64", LB)
    assert made6["service_types"] == [LB]
    path6 = f"/subnets/{made6['id']}"
    changed = api("PUT", path6, {"subnet": {"service_types": ["compute:nova"], "name": "six"}}).json["subnet"]
    assert (changed["service_types"], changed["name"]) == (["compute:nova"], "six")
    assert api.get(path)["subnet"]["service_types"] == []
    assert api("DELETE", path6).status_code == 204
    assert subnet(api, network_id, "fd40::/64")["service_types"] == []


@pytest.mark.parametrize(
    ("types", "text"),
    [
        ("compute:nova", "must be a list"),
        ([1], "must be a text"),
        (["nova"], "'nova' does not begin with one of compute:, network:"),
        ([LB, LB], "is there twice"),
        ([f"compute:{number}" for number in range(33)], "up to 32"),
    ],
)
def test_wrong_service_types_are_refused(api: Api, network_id: str, types: Any, text: str) -> None:
    body = {"network_id": network_id, "cidr": "10.64.0.0/24", "ip_version": 4}
    refusal = (400, "HTTPBadRequest", text)
    api.refused("POST", "/subnets", {"subnet": {**body, "service_types": types}}, *refusal)
    path = f"/subnets/{subnet(api, network_id, '10.64.0.0/24')['id']}"
    api.refused("PUT", path, {"subnet": {"service_types": types}}, *refusal)


def test_port_is_on_a_subnet_for_its_owner(api: Api, network_id: str) -> None:
    servers = subnet(api, network_id, "10.64.0.0/24", "compute:nova")["id"]
    body = {"port": {"network_id": network_id}}
    api.refused("POST", "/ports", body, *NO_SUBNET)
    balancers = subnet(api, network_id, "10.64.1.0/24", LB)["id"]
    api.refused("POST", "/ports", body, *NO_SUBNET)
    assert port(api, network_id, LB) == [balancers]
    assert port(api, network_id, "compute:nova") == [servers]
    assert port(api, network_id, fixed_ips=[]) == []
    others = subnet(api, network_id, "10.64.2.0/24")["id"]
    assert port(api, network_id) == [others]
    api.refused("POST", "/ports", {"port": {**body["port"], "fixed_ips": [{"subnet_id": servers}]}}, *NO_SUBNET)
    wrong = {"fixed_ips": [{"ip_address": "10.64.0.9"}]}
    api.refused("POST", "/ports", {"port": {**body["port"], **wrong}}, 400, "InvalidIpForSubnet", "10.64.0.9")


def test_port_without_a_server_moves_to_subnets_for_its_owner_only(api: Api, network_id: str) -> None:
    servers = subnet(api, network_id, "10.64.0.0/24", "compute:nova")["id"]
    others = subnet(api, network_id, "10.64.1.0/24")["id"]
    made = api.make("/ports", "port", network_id=network_id)
    assert [item["subnet_id"] for item in made["fixed_ips"]] == [others]
    path = f"/ports/{made['id']}"
    api.refused("PUT", path, {"port": {"fixed_ips": [{"subnet_id": servers}]}}, *NO_SUBNET)
    api("PUT", f"/subnets/{servers}", {"subnet": {"service_types": []}})
    moved = api("PUT", path, {"port": {"fixed_ips": [{"subnet_id": servers}]}}).json["port"]
    assert [item["subnet_id"] for item in moved["fixed_ips"]] == [servers]
    api("PUT", f"/subnets/{servers}", {"subnet": {"service_types": [LB]}})
    kept = api("PUT", path, {"port": {"name": "x"}}).json["port"]
    assert kept["fixed_ips"] == moved["fixed_ips"], "ports keep their addresses"


def test_types_of_each_ip_version_count_alone(api: Api, network_id: str) -> None:
    """Ports that are there before an IPv6 subnet follow its types, too."""
    four = subnet(api, network_id, "10.64.0.0/24")["id"]
    early, late = port(api, network_id), port(api, network_id, LB)
    assert early == late == [four]
    six = subnet(api, network_id, "fd40::/64", LB, ipv6_ra_mode="slaac", ipv6_address_mode="slaac")["id"]
    assert port(api, network_id) == [four]
    assert port(api, network_id, LB) == [four, six]
    shown = api.get(f"/ports?network_id={network_id}", ADMIN)["ports"]
    assert sorted((item["device_owner"], len(item["fixed_ips"])) for item in shown) == [
        ("", 1),
        ("", 1),
        (LB, 2),
        (LB, 2),
    ]


def test_server_gets_addresses_of_subnets_for_servers_of_its_zone(api: Api, network_id: str) -> None:
    subnet(api, network_id, "10.64.0.0/24", LB)
    backend = load_backend(api.manager.conf)
    context = make.context("demo")

    def attach(zone: str | None, **wanted: Any) -> str:
        def write(uow: UnitOfWork) -> str:
            uuid = make.instance(uow, project_id="demo", availability_zone=zone)
            request = NetworkRequest(network_id=network_id, **wanted)
            return backend.attach(builtin_networks.Store(uow), context, uuid, request).address

        return api.manager.db.write(write)

    with pytest.raises(exceptions.NetworkUnavailable):
        attach(None)
    subnet(api, network_id, "10.64.1.0/24", "compute:nova")
    subnet(api, network_id, "10.64.2.0/24", "compute:two", LB)
    assert attach(None).startswith("10.64.1.")
    assert attach("two").startswith("10.64.2.")
    with pytest.raises(exceptions.FixedIpInvalid):
        attach("two", fixed_ip="10.64.0.9")
