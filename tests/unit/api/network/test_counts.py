"""Quotas as clients list them, numbers of addresses, and providers of routers."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.api.network import availability
from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import Api

PATH, KEY = "/network-ip-availabilities", "network_ip_availabilities"


def test_quotas_of_projects_with_own_limits_are_listed(api: Api) -> None:
    assert api.get("/quotas", ADMIN) == {"quotas": []}
    for project in ("demo", "other"):
        assert api("PUT", f"/quotas/{project}", {"quota": {"network": 7}}, ADMIN).status_code == 200
    listed = api.get("/quotas", ADMIN)["quotas"]
    assert [(item["project_id"], item["tenant_id"], item["network"], item["router"]) for item in listed] == [
        ("demo", "demo", 7, 3),
        ("other", "other", 7, 3),
    ]
    assert [item["project_id"] for item in api.get("/quotas")["quotas"]] == ["demo"]
    assert [item["project_id"] for item in api.get("/quotas?project_id=other", ADMIN)["quotas"]] == ["other"]
    page = api.get("/quotas?limit=1", ADMIN)
    assert "marker=demo" in page["quotas_links"][0]["href"]
    assert [item["project_id"] for item in api.get("/quotas?limit=1&marker=demo", ADMIN)["quotas"]] == ["other"]
    assert api("DELETE", "/quotas/demo", token=ADMIN).status_code == 204
    assert [item["project_id"] for item in api.get("/quotas", ADMIN)["quotas"]] == ["other"]
    assert api.get("/quotas/tenant") == api.get("/quotas/project") == {"tenant": {"tenant_id": "demo"}}


def test_subnets_have_a_quota_of_their_own(api: Api) -> None:
    one, two = (api.make("/networks", "network", name=name)["id"] for name in ("one", "two"))
    assert api.get("/quotas/demo", ADMIN)["quota"]["subnet"] == 3
    assert api("PUT", "/quotas/demo", {"quota": {"subnet": 1}}, ADMIN).json["quota"]["subnet"] == 1
    api.make("/subnets", "subnet", network_id=one, cidr="10.64.1.0/24", ip_version=4)
    wanted = {"network_id": two, "cidr": "10.64.2.0/24", "ip_version": 4}
    api.refused("POST", "/subnets", {"subnet": wanted}, 409, "OverQuota", "subnet")
    assert api("PUT", "/quotas/demo", {"quota": {"subnet": -1}}, ADMIN).status_code == 200
    api.make("/subnets", "subnet", **wanted)


def test_addresses_in_use_are_counted_by_network(api: Api) -> None:
    api.port()
    api.make("/floatingips", "floatingip", floating_network_id=api.pool.id)
    empty = api.make("/networks", "network", name="empty")
    found = {
        item["network_id"]: item for item in api.get("/network-ip-availabilities", ADMIN)["network_ip_availabilities"]
    }
    assert found.keys() == {api.shared.id, api.pool.id, empty["id"]}
    shared = found[api.shared.id]
    assert (shared["network_name"], shared["total_ips"], shared["used_ips"]) == ("private", 253, 1)
    (subnet,) = shared["subnet_ip_availability"]
    assert subnet == {
        "subnet_id": api.subnet_of(api.shared.id),
        "subnet_name": "",
        "cidr": "10.0.0.0/24",
        "ip_version": 4,
        "total_ips": 253,
        "used_ips": 1,
    }
    assert (found[api.pool.id]["total_ips"], found[api.pool.id]["used_ips"]) == (4, 1)
    assert found[empty["id"]] == {
        "network_id": empty["id"],
        "network_name": "empty",
        "project_id": "demo",
        "tenant_id": "demo",
        "total_ips": 0,
        "used_ips": 0,
        "subnet_ip_availability": [],
    }
    one = api.get(f"/network-ip-availabilities/{api.shared.id}", ADMIN)["network_ip_availability"]
    assert one == shared
    by_name = api.get("/network-ip-availabilities?network_name=private&ip_version=4", ADMIN)
    assert by_name == {"network_ip_availabilities": [shared]}
    (none,) = api.get("/network-ip-availabilities?network_name=private&ip_version=6", ADMIN)[
        "network_ip_availabilities"
    ]
    assert (none["total_ips"], none["subnet_ip_availability"]) == (0, [])
    api.refused("GET", "/network-ip-availabilities", None, 403, "PolicyNotAuthorized", "get_network_ip_availability")


def test_hosts_provide_routers(api: Api) -> None:
    provider = {"service_type": "L3_ROUTER_NAT", "name": "hosts", "default": True}
    assert api.get("/service-providers") == {"service_providers": [provider]}
    assert api.get("/service-providers?service_type=VPN") == {"service_providers": []}


def test_networks_are_listed_by_mtu(api: Api) -> None:
    made = api.make("/networks", "network", name="small", mtu=1400)
    assert [item["id"] for item in api.get("/networks?mtu=1400")["networks"]] == [made["id"]]
    assert len(api.get("/networks?mtu=1400&mtu=1500")["networks"]) == 3
    assert api.get("/networks?mtu=1") == {"networks": []}


def test_floating_address_of_a_subnet_is_one_of_its_network(api: Api) -> None:
    values = {"floating_network_id": api.pool.id, "subnet_id": api.subnet_of(api.pool.id)}
    assert api.make("/floatingips", "floatingip", **values)["floating_network_id"] == api.pool.id
    body = {"floatingip": values | {"subnet_id": api.subnet_of(api.shared.id)}}
    api.refused("POST", "/floatingips", body, 404, "SubnetNotFound", api.subnet_of(api.shared.id))


def test_stranger_learns_nothing_of_other_quotas(api: Api) -> None:
    assert api("PUT", "/quotas/demo", {"quota": {"network": 7}}, ADMIN).status_code == 200
    assert api.get("/quotas", STRANGER) == {"quotas": []}


def test_floating_address_of_a_network_that_is_not_external_is_refused(api: Api) -> None:
    body = {"floatingip": {"floating_network_id": api.shared.id}}
    api.refused("POST", "/floatingips", body, 400, "HTTPBadRequest", "is not a valid external network")


def test_rule_with_an_invalid_port_or_group_is_refused_in_neutrons_words(api: Api) -> None:
    group = api.make("/security-groups", "security_group", name="web")["id"]
    rule = {"security_group_id": group, "direction": "ingress", "protocol": "tcp"}
    for values, status, kind, text in (
        ({"port_range_min": -16, "port_range_max": 80}, 400, "HTTPBadRequest", "Invalid value for port -16"),
        ({"port_range_max": 6}, 400, "SecurityGroupInvalidPortRange", "port_range_min must be <= port_range_max"),
        ({"remote_group_id": "no_id"}, 404, "SecurityGroupNotFound", "no_id"),
        (
            {"remote_ip_prefix": "2001:db8::/64"},
            400,
            "SecurityGroupRuleParameterConflict",
            "Conflicting value ethertype IPv4",
        ),
    ):
        body = {"security_group_rule": rule | values}
        api.refused("POST", "/security-group-rules", body, status, kind, text)


def test_page_of_counts_reads_no_other_networks(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two", "three"):
        api.make("/networks", "network", name=name)
    everything = [item["network_id"] for item in api.get(PATH, ADMIN)[KEY]]
    assert len(everything) == 5 and everything == sorted(everything)
    counted: list[str] = []
    original = availability.views.ip_availability

    def count(item: Any, used: int) -> Any:
        counted.append(item.id)
        return original(item, used)

    monkeypatch.setattr(availability.views, "ip_availability", count)
    page = api.get(f"{PATH}?limit=1", ADMIN)
    assert [item["network_id"] for item in page[KEY]] == everything[:1]
    assert len(counted) == 3, "the page, the next network, and the pool"
    rest = api.get(f"{PATH}?marker={everything[0]}", ADMIN)[KEY]
    assert [item["network_id"] for item in rest] == everything[1:]
