"""Ranges of networks: two tenants may have every address in common, and what one router or the outside sees may not."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.hosts import hosts, services
from nova_lite.db.network import builtin_networks
from nova_lite.hardware import traits
from nova_lite.network import factory
from tests.support import make
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.unit.api.network.conftest import Api

CIDR = "10.64.0.0/24"
OUTSIDE = "would leave this cloud untranslated"


@pytest.fixture(autouse=True)
def ranges(api: Api) -> None:
    api.manager.conf.set_override("project_ranges", [], "network")


def body(api: Api, cidr: str = CIDR, token: str = MEMBER, network_id: str | None = None) -> dict[str, Any]:
    network_id = network_id or api.make("/networks", "network", token)["id"]
    return {"network_id": network_id, "ip_version": 6 if ":" in cidr else 4, "cidr": cidr}


def subnet(api: Api, cidr: str = CIDR, token: str = MEMBER, **values: Any) -> dict[str, Any]:
    return api.make("/subnets", "subnet", token, **body(api, cidr, token, **values))


def refused(api: Api, fields: dict[str, Any], text: str, token: str = MEMBER) -> None:
    api.refused("POST", "/subnets", {"subnet": fields}, 400, "InvalidInput", text, token)


def router(api: Api, token: str = MEMBER, *subnets: dict[str, Any]) -> str:
    made: str = api.make("/routers", "router", token)["id"]
    for item in subnets:
        assert connect(api, made, item, token).status_code == 200
    return made


def connect(api: Api, router_id: str, item: dict[str, Any], token: str = MEMBER) -> Any:
    return api("PUT", f"/routers/{router_id}/add_router_interface", {"subnet_id": item["id"]}, token)


def set_gateway(api: Api, router_id: str, **values: Any) -> Any:
    info = {"network_id": api.pool.id, **values}
    return api("PUT", f"/routers/{router_id}", {"router": {"external_gateway_info": info}}, ADMIN)


def message(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    text: str = response.json["NeutronError"]["message"]
    return text


def report(api: Api, name: str, *known: str, **values: Any) -> None:
    inventory = make.inventory(capabilities={traits.CAPABILITY: list(known)}, **values)
    api.manager.db.write(hosts.record, api.manager.conf, make.report(name, inventories=[inventory]))


# --- what may be equal


@pytest.mark.parametrize(("cidr", "other"), [(CIDR, CIDR), (CIDR, "10.64.0.128/25"), ("fd40::/64", "fd40::/64")])
def test_networks_of_two_projects_may_have_the_same_addresses(api: Api, cidr: str, other: str) -> None:
    mine, theirs = subnet(api, cidr), subnet(api, other, STRANGER)
    again = subnet(api, cidr)
    assert (mine["cidr"], theirs["cidr"], again["cidr"]) == (cidr, other, cidr)


def test_two_tenants_with_every_address_in_common_see_and_reach_their_own(api: Api) -> None:
    found = {}
    for token in (MEMBER, STRANGER):
        made = subnet(api, CIDR, token)
        fixed = {"subnet_id": made["id"], "ip_address": "10.64.0.9"}
        port = api.make("/ports", "port", token, network_id=made["network_id"], fixed_ips=[fixed])
        owned = router(api, token, made)
        gateway = {"router": {"external_gateway_info": {"network_id": api.pool.id}}}
        assert api("PUT", f"/routers/{owned}", gateway, token).status_code == 200
        floating = api.make("/floatingips", "floatingip", token, floating_network_id=api.pool.id, port_id=port["id"])
        assert (floating["fixed_ip_address"], floating["router_id"]) == ("10.64.0.9", owned)
        found[token] = port["id"], floating["id"]
    for token, (port_id, floating_id) in found.items():
        by_address = api.get("/ports?fixed_ips=ip_address%3D10.64.0.9", token)["ports"]
        assert [item["id"] for item in by_address] == [port_id]
        by_address = api.get("/floatingips?fixed_ip_address=10.64.0.9", token)["floatingips"]
        assert [item["id"] for item in by_address] == [floating_id]


def test_network_may_have_the_range_of_an_operators_network_and_of_a_pool(api: Api) -> None:
    assert [subnet(api, cidr)["cidr"] for cidr in ("10.0.0.0/24", "192.0.2.0/24")] == ["10.0.0.0/24", "192.0.2.0/24"]


def test_network_may_have_the_range_of_machines_behind_a_translating_router(api: Api) -> None:
    report(api, "h1", traits.REALMS, networks=["10.66.0.0/24"], host_ip="10.66.0.5")
    made = subnet(api, "10.66.0.0/24")
    assert set_gateway(api, router(api, MEMBER, made)).status_code == 200


def test_ranges_of_the_operator_hold_for_the_ip_versions_that_they_have(api: Api) -> None:
    api.manager.conf.set_override("project_ranges", ["10.64.0.0/16"], "network")
    refused(api, body(api, "10.65.0.0/24"), "is not within 10.64.0.0/16")
    subnet(api, "fd99::/64")


# --- subnets of one network, and of one router


@pytest.mark.parametrize(("cidr", "other"), [(CIDR, "10.64.0.128/25"), ("fd40::/64", "fd40::/66")])
def test_subnets_of_one_network_do_not_overlap(api: Api, cidr: str, other: str) -> None:
    made = subnet(api, cidr)
    fields = body(api, other, network_id=made["network_id"])
    refused(api, fields, f"for network: {made['network_id']} overlaps with another subnet, {cidr} of this network")


@pytest.mark.parametrize(("cidr", "other"), [(CIDR, "10.64.0.0/16"), ("fd40::/64", "fd40::/64")])
def test_subnets_of_one_router_do_not_overlap(api: Api, cidr: str, other: str) -> None:
    first, second = subnet(api, cidr), subnet(api, other)
    text = message(connect(api, router(api, MEMBER, first), second), 400)
    assert f"Cidr {other} of subnet {second['id']} overlaps with cidr {cidr} of subnet {first['id']}" in text
    assert connect(api, router(api), second).status_code == 200, "another router has it"


def test_subnet_of_a_router_does_not_overlap_its_external_network(api: Api) -> None:
    made = subnet(api, "192.0.2.0/24")
    connected = router(api, MEMBER, made)
    assert f"overlaps with cidr 192.0.2.0/24 of subnet {made['id']}" in message(set_gateway(api, connected), 400)
    other = router(api)
    assert set_gateway(api, other).status_code == 200
    assert "overlaps with cidr 192.0.2.0/30" in message(connect(api, other, subnet(api, "192.0.2.0/24")), 400)


def test_external_network_gets_no_range_of_a_network_that_leads_there(api: Api) -> None:
    external = api.make("/networks", "network", ADMIN, **{"name": "late", "router:external": True})
    connected = router(api, MEMBER, subnet(api, "198.51.100.0/24"))
    gateway = {"router": {"external_gateway_info": {"network_id": external["id"]}}}
    assert api("PUT", f"/routers/{connected}", gateway).status_code == 200
    fields = body(api, "198.51.100.0/28", network_id=external["id"])
    refused(api, fields, "198.51.100.0/28 overlaps with", ADMIN)
    assert subnet(api, "203.0.113.0/28", ADMIN, network_id=external["id"])["cidr"] == "203.0.113.0/28"


def test_network_that_becomes_external_has_no_range_of_a_pool(api: Api) -> None:
    made = subnet(api, "192.0.2.0/24", ADMIN)
    path, change = f"/networks/{made['network_id']}", {"network": {"router:external": True}}
    api.refused("PUT", path, change, 400, "InvalidInput", "192.0.2.0/24 overlaps with public", ADMIN)


# --- addresses that leave a host untranslated


def test_networks_without_snat_do_not_overlap(api: Api) -> None:
    mine, theirs = subnet(api), subnet(api, CIDR, STRANGER)
    routers = [router(api, MEMBER, mine), router(api, STRANGER, theirs)]
    assert set_gateway(api, routers[0], enable_snat=False).status_code == 200
    text = message(set_gateway(api, routers[1], enable_snat=False), 409)
    assert f"subnet {theirs['id']} ({CIDR}) {OUTSIDE}" in text and f"of network {mine['network_id']}" in text
    assert set_gateway(api, routers[1]).status_code == 200, "with SNAT it may"
    other = api.make("/networks", "network", ADMIN, **{"name": "more", "router:external": True})
    moved = set_gateway(api, routers[0], network_id=other["id"], enable_snat=False)
    assert moved.status_code == 200, "it does not overlap itself"


def test_subnet_joins_a_router_without_snat_only_if_nobody_outside_has_its_addresses(api: Api) -> None:
    theirs = subnet(api, CIDR, STRANGER)
    assert set_gateway(api, router(api, STRANGER, theirs), enable_snat=False).status_code == 200
    connected = router(api)
    assert set_gateway(api, connected, enable_snat=False).status_code == 200
    text = message(connect(api, connected, subnet(api)), 409)
    assert OUTSIDE in text and "of a network of another project" in text and theirs["network_id"] not in text
    assert connect(api, connected, subnet(api, "10.64.1.0/24")).status_code == 200


def test_network_without_snat_has_no_addresses_of_pools_and_machines(api: Api) -> None:
    other = api.make("/networks", "network", ADMIN, **{"name": "more", "router:external": True})
    subnet(api, "198.51.100.0/28", ADMIN, network_id=other["id"])
    report(api, "h1", traits.REALMS, networks=["10.66.0.0/24"])
    connected = router(api)
    assert set_gateway(api, connected, enable_snat=False).status_code == 200
    assert "of external network more" in message(connect(api, connected, subnet(api, "198.51.100.0/24")), 409)
    assert "machines of this cloud use" in message(connect(api, connected, subnet(api, "10.66.0.0/24")), 400)


def test_pool_has_no_addresses_of_a_network_without_snat(api: Api) -> None:
    assert set_gateway(api, router(api, MEMBER, subnet(api)), enable_snat=False).status_code == 200
    external = api.make("/networks", "network", ADMIN, **{"name": "late", "router:external": True})
    refused(api, body(api, "10.64.0.0/28", network_id=external["id"]), "10.64.0.0/28 overlaps with", ADMIN)


def test_networks_on_bridges_of_the_operator_do_not_overlap_what_is_outside(api: Api) -> None:
    bridged = factory.new_network("lan", "10.70.0.0/24", bridge="br0")
    api.manager.db.write(builtin_networks.create, bridged)
    connected = router(api)
    assert set_gateway(api, connected, enable_snat=False).status_code == 200
    assert f"of network {bridged.id}" in message(connect(api, connected, subnet(api, "10.70.0.0/25")), 409)
    assert connect(api, router(api), subnet(api, "10.70.0.0/25")).status_code == 200


# --- during an upgrade


@pytest.mark.parametrize(
    ("known", "conductor", "allowed"),
    [
        ([traits.REALMS], None, True),
        ([traits.POINTS], None, False),
        ([], None, False),
        ([traits.REALMS], "0.9", False),
    ],
)
@pytest.mark.parametrize("cidr", [CIDR, "fd40::/64"])
def test_ranges_differ_while_a_conductor_or_a_host_is_older(
    api: Api, known: list[str], conductor: str | None, allowed: bool, cidr: str
) -> None:
    report(api, "h1", traits.REALMS)
    report(api, "h2", *known)
    if conductor is not None:
        api.manager.db.write(services.report, "c2", "nova-lite-conductor", "conductor", conductor)
    subnet(api, cidr)
    wanted = body(api, cidr, STRANGER)
    if allowed:
        assert api("POST", "/subnets", {"subnet": wanted}, STRANGER).status_code == 201
    else:
        refused(api, wanted, "networks have different ranges until this cloud's upgrade is complete", STRANGER)


def test_pool_has_no_addresses_of_any_network_while_a_host_is_older(api: Api) -> None:
    report(api, "h1")
    subnet(api)
    external = api.make("/networks", "network", ADMIN, **{"name": "late", "router:external": True})
    refused(api, body(api, "10.64.0.0/28", network_id=external["id"]), "10.64.0.0/28 overlaps with", ADMIN)
    refused(api, body(api, "192.0.2.0/24"), "until this cloud's upgrade is complete")
