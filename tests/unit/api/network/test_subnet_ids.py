"""Ids of subnets: each has its own. Subnets of older versions keep the id of their network."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

CIDR = "10.64.1.0/24"


@pytest.fixture
def network(api: Api) -> str:
    return str(api.make("/networks", "network")["id"])


def subnet(api: Api, network: str, cidr: str = CIDR, **values: Any) -> str:
    made = api.make("/subnets", "subnet", network_id=network, cidr=cidr, ip_version=4, **values)
    assert made["network_id"] == network and uuid.UUID(made["id"]).version == 4
    return str(made["id"])


def as_older(api: Api, network: str) -> None:
    """Make the row of a network what an older version has written."""
    changed = sa.update(models.Network).where(models.Network.id == network).values(subnet_id=None)
    api.manager.db.write(lambda uow: uow.change(changed))


def test_subnet_has_an_id_of_its_own_and_its_network_is_none(api: Api, network: str) -> None:
    made = subnet(api, network)
    assert made != network and api.get(f"/networks/{network}")["network"]["subnets"] == [made]
    assert api.get(f"/subnets/{made}")["subnet"] == api.get(f"/subnets?id={made}")["subnets"][0]
    assert api.get(f"/subnets?id={network}") == {"subnets": []}
    for method, body in (("GET", None), ("PUT", {"subnet": {"name": "x"}}), ("DELETE", None)):
        api.refused(method, f"/subnets/{network}", body, 404, "SubnetNotFound", network)
    api.refused("GET", f"/subnets/{network}/tags", None, 404, "SubnetNotFound", network)
    on_network = {"port": {"network_id": network, "fixed_ips": [{"subnet_id": network}]}}
    api.refused("POST", "/ports", on_network, 404, "SubnetNotFound", network)
    router = api.make("/routers", "router")["id"]
    interface = (f"/routers/{router}/add_router_interface", {"subnet_id": network})
    api.refused("PUT", *interface, 404, "SubnetNotFound", network)


def test_subnet_that_is_made_again_has_another_id(api: Api, network: str) -> None:
    first = subnet(api, network)
    assert api("DELETE", f"/subnets/{first}").status_code == 204
    second = subnet(api, network)
    assert second not in (first, network)
    api.refused("GET", f"/subnets/{first}", None, 404, "SubnetNotFound", first)


@pytest.mark.parametrize("is_older", [False, True])
def test_subnet_is_found_by_its_id_everywhere(api: Api, network: str, is_older: bool) -> None:
    made = subnet(api, network)
    if is_older:
        as_older(api, network)
        made = network
    assert api.get(f"/networks/{network}")["network"]["subnets"] == [made]
    assert [item["id"] for item in api.get(f"/subnets?network_id={network}")["subnets"]] == [made]
    assert api.get(f"/subnets/{made}")["subnet"]["cidr"] == CIDR
    others = [item["id"] for item in api.get("/subnets?limit=1")["subnets"]]
    rest = api.get(f"/subnets?marker={others[0]}")["subnets"]
    assert made in (*others, *(item["id"] for item in rest))
    assert api("PUT", f"/subnets/{made}", {"subnet": {"name": "x"}}).json["subnet"]["id"] == made
    assert api("PUT", f"/subnets/{made}/tags", {"tags": ["a"]}).json == {"tags": ["a"]}
    port = api.port(network_id=network, fixed_ips=[{"subnet_id": made}])
    assert [item["subnet_id"] for item in port["fixed_ips"]] == [made]
    assert api("PUT", f"/ports/{port['id']}", {"port": {"fixed_ips": port["fixed_ips"]}}).status_code == 200
    assert [item["id"] for item in api.get(f"/ports?fixed_ips=subnet_id={made}")["ports"]] == [port["id"]]
    (counted,) = api.get(f"/network-ip-availabilities/{network}", ADMIN)["network_ip_availability"][
        "subnet_ip_availability"
    ]
    assert (counted["subnet_id"], counted["used_ips"]) == (made, 1)
    router = api.make("/routers", "router")["id"]
    for change in ("add", "remove"):
        changed = api("PUT", f"/routers/{router}/{change}_router_interface", {"subnet_id": made})
        assert (changed.json["subnet_id"], changed.json["network_id"]) == (made, network), changed.text
    api.refused("DELETE", f"/subnets/{made}", None, 409, "NetworkInUse", "in use")
    assert api("DELETE", f"/ports/{port['id']}").status_code == 204
    assert api("DELETE", f"/subnets/{made}").status_code == 204
    api.refused("GET", f"/subnets/{made}", None, 404, "SubnetNotFound", made)
    assert subnet(api, network) != network


@pytest.mark.parametrize("is_older", [False, True])
def test_network_that_becomes_external_keeps_the_id_of_its_subnet(api: Api, is_older: bool) -> None:
    network = str(api.make("/networks", "network", ADMIN, name="out")["id"])
    made = subnet(api, network, token=ADMIN)
    if is_older:
        as_older(api, network)
        made = network
    assert api("PUT", f"/networks/{network}", {"network": {"router:external": True}}, ADMIN).status_code == 200
    assert api.get(f"/networks/{network}", ADMIN)["network"]["subnets"] == [made]
    values = {"floating_network_id": network, "subnet_id": made}
    address = api.make("/floatingips", "floatingip", ADMIN, **values)
    api.refused("DELETE", f"/subnets/{made}", None, 409, "Conflict", made, ADMIN)
    assert api("DELETE", f"/floatingips/{address['id']}", token=ADMIN).status_code == 204
    assert api("DELETE", f"/subnets/{made}", token=ADMIN).status_code == 204
    again = subnet(api, network, token=ADMIN)
    assert again not in (made, network)
    assert api.get(f"/subnets/{again}", ADMIN)["subnet"]["network_id"] == network


def test_floating_address_of_another_networks_subnet_is_refused(api: Api) -> None:
    for wrong in (api.pool.id, api.subnet_of(api.shared.id)):
        body = {"floatingip": {"floating_network_id": api.pool.id, "subnet_id": wrong}}
        api.refused("POST", "/floatingips", body, 404, "SubnetNotFound", wrong)
