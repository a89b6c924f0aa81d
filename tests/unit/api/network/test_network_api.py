"""The network API with a real conductor: responses, queries and refusals."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.http import deploy, wsgi
from nova_lite.base import exceptions
from nova_lite.compute.api import API
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks, ports
from nova_lite.network import factory
from nova_lite.objects import Port
from nova_lite.policies.enforcer import Policy
from tests.support import make
from tests.support.api_client import ADMIN, MEMBER, STRANGER, make_conf
from tests.unit.api.network.conftest import Api

NOBODY = str(uuid.UUID(int=1))


# --- networks and subnets


def test_shared_networks_and_pools_are_visible_to_all(api: Api) -> None:
    found = {network["name"]: network for network in api.get("/networks")["networks"]}
    assert found.keys() == {"private", "public"}
    assert (found["private"]["router:external"], found["public"]["router:external"]) == (False, True)
    assert (found["private"]["shared"], found["private"]["subnets"]) == (True, [api.subnet_of(api.shared.id)])
    assert "provider:network_type" not in found["private"]
    (shown,) = api.get("/networks?name=private", ADMIN)["networks"]
    assert shown["provider:network_type"] == "local"
    subnet = api.get(f"/subnets/{api.subnet_of(api.shared.id)}")["subnet"]
    assert (subnet["cidr"], subnet["gateway_ip"], subnet["enable_dhcp"]) == ("10.0.0.0/24", "10.0.0.1", True)
    assert api.get(f"/subnets?network_id={api.pool.id}") == {"subnets": []}
    of_pools = api.subnet_of(api.pool.id)
    api.refused("GET", f"/subnets/{of_pools}", None, 404, "SubnetNotFound", of_pools)
    (of_pool,) = api.get(f"/subnets?network_id={api.pool.id}", ADMIN)["subnets"]
    assert (of_pool["id"], of_pool["gateway_ip"]) == (of_pools, None)


def test_network_that_spans_hosts_and_has_ipv6(api: Api) -> None:
    wide = factory.new_network("wide", "10.1.0.0/24", vni=77, cidr6="fd00:1::/64", project_id="demo")
    api.manager.db.write(builtin_networks.create, wide)
    shown = api.get(f"/networks/{wide.id}", ADMIN)["network"]
    assert (shown["provider:network_type"], shown["provider:segmentation_id"], shown["mtu"]) == ("vxlan", 77, 1450)
    four, six = shown["subnets"]
    assert four == api.subnet_of(wide.id)
    subnet = api.get(f"/subnets/{six}")["subnet"]
    assert api.get("/subnets?ip_version=6")["subnets"] == [subnet]
    assert (subnet["network_id"], subnet["cidr"], subnet["gateway_ip"]) == (wide.id, "fd00:1::/64", "fd00:1::1")
    assert (subnet["ipv6_ra_mode"], subnet["ipv6_address_mode"], subnet["ip_version"]) == ("slaac", "slaac", 6)
    api.refused("DELETE", f"/subnets/{six}", None, 403, "Forbidden", "created and deleted with its network", ADMIN)
    body = {"subnet": {"network_id": wide.id, "ip_version": 6, "cidr": "fd00:2::/64"}}
    api.refused("POST", "/subnets", body, 409, "Conflict", "has no VNIs for further", ADMIN)
    port = api.make("/ports", "port", network_id=wide.id, mac_address="fa:16:3e:00:00:01")
    assert port["fixed_ips"][1] == {"subnet_id": six, "ip_address": "fd00:1::f816:3eff:fe00:1"}
    found = api.get("/ports?fixed_ips=ip_address=fd00:1::f816:3eff:fe00:1")["ports"]
    assert [item["id"] for item in found] == [port["id"]]
    both = [{"subnet_id": api.subnet_of(wide.id), "ip_address": "10.1.0.9"}, {"subnet_id": six}]
    made = api.make("/ports", "port", network_id=wide.id, fixed_ips=both)
    assert made["fixed_ips"][0]["ip_address"] == "10.1.0.9" and len(made["fixed_ips"]) == 2
    (only,) = api.make("/ports", "port", network_id=wide.id, fixed_ips=[{"subnet_id": six}])["fixed_ips"]
    assert only["subnet_id"] == six
    chosen = {"port": {"network_id": wide.id, "fixed_ips": [{"subnet_id": six, "ip_address": "fd00:1::5"}]}}
    api.refused("POST", "/ports", chosen, 400, "InvalidInput", "can not be directly assigned")


def test_network_and_then_its_subnet(api: Api) -> None:
    made = api.make("/networks", "network", name="back", mtu=1400, admin_state_up=True)
    assert (made["subnets"], made["mtu"], made["project_id"], made["tenant_id"]) == ([], 1400, "demo", "demo")
    api.refused("GET", f"/subnets/{made['id']}", None, 404, "SubnetNotFound", "could not be found")
    subnet = {"network_id": made["id"], "ip_version": 4}
    for cidr, kind, text in (
        (None, "HTTPBadRequest", "needs a cidr"),
        ("fd00::/64", "InvalidInput", "does not match the ip_version '4'"),
        ("10.65.0.0/24", "InvalidInput", "is not within 10.64.0.0/16"),
        ("10.65.0.1/24", "InvalidInput", "10.65.0.0/24 is not within"),
    ):
        api.refused("POST", "/subnets", {"subnet": {**subnet, "cidr": cidr}}, 400, kind, text)
    pool = [{"start": "10.64.0.10", "end": "10.64.0.20"}]
    made_subnet = api.make("/subnets", "subnet", **subnet, cidr="10.64.0.5/24", gateway_ip=None, allocation_pools=pool)
    assert (made_subnet["gateway_ip"], made_subnet["allocation_pools"]) == (None, pool)
    renamed = api("PUT", f"/subnets/{made_subnet['id']}", {"subnet": {"name": "v4"}}).json["subnet"]
    assert (renamed["name"], api.get("/subnets?name=v4")["subnets"][0]["id"]) == ("v4", made_subnet["id"])
    other_cidr = {"subnet": {"cidr": "10.64.9.0/24"}}
    api.refused("PUT", f"/subnets/{made_subnet['id']}", other_cidr, 400, "HTTPBadRequest", "cannot be changed")
    has = api.port(network_id=made["id"])
    assert has["fixed_ips"][0]["ip_address"] in [f"10.64.0.{number}" for number in range(10, 21)]
    for path in (f"/subnets/{made_subnet['id']}", f"/networks/{made['id']}"):
        api.refused("DELETE", path, None, 409, "NetworkInUse", "still has addresses in use")
    assert api("DELETE", f"/ports/{has['id']}").status_code == 204
    assert api("DELETE", f"/subnets/{made_subnet['id']}").status_code == 204
    assert api.get(f"/networks/{made['id']}")["network"]["subnets"] == []
    assert api("DELETE", f"/networks/{made['id']}").status_code == 204


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"admin_state_up": None}, "use true or false"),
        ({"router:external": "yes"}, "true or false"),
        ({"vlan_transparent": True}, "This cloud's networks do not support it"),
        ({"mtu": 10}, "from 68 to 9216"),
        ({"name": "a\nb"}, "printable"),
        ({"name": 1}, "must be a text"),
    ],
)
def test_unsupported_network_is_refused(api: Api, values: dict[str, Any], text: str) -> None:
    api.refused("POST", "/networks", {"network": values}, 400, "HTTPBadRequest", text)


def test_network_belongs_to_its_project(api: Api) -> None:
    shared = {"network": {"name": "x", "shared": True}}
    api.refused("POST", "/networks", shared, 403, "PolicyNotAuthorized", "create_network:shared")
    assert api.make("/networks", "network", ADMIN, shared=True)["shared"] is True
    foreign = {"network": {"project_id": "other"}}
    api.refused("POST", "/networks", foreign, 403, "Forbidden", "Only an admin may create")
    assert api.make("/networks", "network", ADMIN, tenant_id="other")["project_id"] == "other"
    api.refused("DELETE", f"/networks/{api.shared.id}", None, 403, "Forbidden", "All projects share")
    api.refused("DELETE", f"/networks/{api.pool.id}", None, 403, "Forbidden", "nova-lite-manage", ADMIN)
    for _ in range(3):
        api.make("/networks", "network")
    api.refused("POST", "/networks", {"network": {}}, 409, "OverQuota", "Quota exceeded for network")


# --- ports


def own_network(api: Api, cidr: str = "10.64.0.0/24", **values: Any) -> dict[str, Any]:
    """Create a network of the member with a subnet."""
    network = api.make("/networks", "network")
    api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr=cidr, **values)
    return network


def test_port_of_a_user(api: Api) -> None:
    own = own_network(api)["id"]
    chosen: dict[str, Any] = {"fixed_ips": [{"ip_address": "10.64.0.9"}], "mac_address": "FA:16:3E:00:00:09"}
    made = api.port(name="p", network_id=own, **chosen)
    assert made["fixed_ips"] == [{"subnet_id": api.subnet_of(own), "ip_address": "10.64.0.9"}]
    assert (made["mac_address"], made["status"], made["device_id"]) == ("fa:16:3e:00:00:09", "DOWN", "")
    assert "binding:host_id" not in made
    assert api.get(f"/ports/{made['id']}", ADMIN)["port"]["binding:vif_type"] == "unbound"
    default = api.get("/security-groups?name=default")["security_groups"][0]["id"]
    assert made["security_groups"] == [default]
    taken = {"port": {"network_id": own, "fixed_ips": [{"ip_address": "10.64.0.9"}]}}
    api.refused("POST", "/ports", taken, 409, "IpAddressAlreadyAllocated", "already in use")
    same_mac = {"port": {"network_id": own, "mac_address": "fa:16:3e:00:00:09"}}
    api.refused("POST", "/ports", same_mac, 409, "MacAddressInUse", "is in use")
    changes = {"name": "q", "security_groups": [], "fixed_ips": [{"ip_address": "10.64.0.10"}]}
    changed = api("PUT", f"/ports/{made['id']}", {"port": changes}).json["port"]
    assert (changed["name"], changed["security_groups"]) == ("q", [])
    assert changed["fixed_ips"][0]["ip_address"] == "10.64.0.10"
    assert api("DELETE", f"/ports/{made['id']}").status_code == 204
    api.refused("DELETE", f"/ports/{made['id']}", None, 404, "PortNotFound", "could not be found")


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"mac_address": "fa:16:3e:00:00:09"}, "create_port:mac_address"),
        ({"fixed_ips": [{"ip_address": "10.0.0.9"}]}, "create_port:fixed_ips:ip_address"),
    ],
)
def test_addresses_on_a_shared_network_are_chosen_by_admins_only(api: Api, values: dict[str, Any], rule: str) -> None:
    body = {"port": {"network_id": api.shared.id, **values}}
    api.refused("POST", "/ports", body, 403, "PolicyNotAuthorized", rule)
    assert api("POST", "/ports", body, ADMIN).status_code == 201
    plain = api.port(fixed_ips=[{"subnet_id": api.subnet_of(api.shared.id)}])
    other = next(text for text in ("10.0.0.11", "10.0.0.12") if text != plain["fixed_ips"][0]["ip_address"])
    move = {"port": {"fixed_ips": [{"ip_address": other}]}}
    api.refused("PUT", f"/ports/{plain['id']}", move, 403, "PolicyNotAuthorized", "update_port:fixed_ips:ip_address")
    same = {"port": {"fixed_ips": plain["fixed_ips"], "mac_address": plain["mac_address"]}}
    assert api("PUT", f"/ports/{plain['id']}", same).status_code == 200


@pytest.mark.parametrize(
    "mac_address",
    [
        "00:00:00:00:00:00",
        "01:00:00:00:00:00",
        "33:33:00:00:00:01",
        "ff:ff:ff:ff:ff:ff",
        "fa:16:3f:00:00:4d",
        "52:54:00:12:34:56",
        "fe:16:3e:00:00:09",
        "fa:16:3e:00:00",
        "x",
        7,
    ],
)
def test_mac_address_that_no_server_may_have_is_refused_for_all(api: Api, mac_address: Any) -> None:
    body = {"port": {"network_id": api.shared.id, "mac_address": mac_address}}
    for token in (MEMBER, ADMIN):
        api.refused("POST", "/ports", body, 400, "HTTPBadRequest", "Invalid input for mac_address", token)


LOCAL = ("127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "169.254.1.1", "224.0.0.1", "255.255.255.255")


@pytest.mark.parametrize("address", LOCAL)
def test_name_server_on_no_machine_is_refused_for_all(api: Api, address: str) -> None:
    for token in (MEMBER, ADMIN):
        network = api.make("/networks", "network", token)
        body = {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.0.0/24", "dns_nameservers": [address]}
        api.refused("POST", "/subnets", {"subnet": body}, 400, "InvalidInput", "not the address of another", token)


def test_name_server_on_a_host_is_refused(api: Api) -> None:
    report = make.report(inventories=[make.inventory(host_ip="192.0.2.77")])
    api.manager.db.write(hosts.record, api.manager.conf, report)
    network = api.make("/networks", "network")
    for address in ("10.64.0.1", "192.0.2.77"):
        body = {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.0.0/24", "dns_nameservers": [address]}
        api.refused("POST", "/subnets", {"subnet": body}, 400, "InvalidInput", "address of a host of this cloud")
    body["dns_nameservers"] = ["9.9.9.9"]
    assert api("POST", "/subnets", {"subnet": body}).status_code == 201


@pytest.mark.parametrize(
    "cidr", ["127.0.0.0/24", "169.254.169.0/24", "224.1.0.0/24", "240.0.0.0/24", "0.0.0.0/24", "0.0.0.0/0"]
)
def test_subnet_of_reserved_addresses_is_refused_for_admins_too(api: Api, cidr: str) -> None:
    network = api.make("/networks", "network", ADMIN)
    body = {"network_id": network["id"], "ip_version": 4, "cidr": cidr}
    api.refused("POST", "/subnets", {"subnet": body}, 400, "InvalidInput", "which are for", ADMIN)


@pytest.mark.parametrize(
    ("values", "status", "kind", "text"),
    [
        ({"network_id": None}, 400, "HTTPBadRequest", "'network_id' not specified"),
        ({"network_id": NOBODY}, 404, "NetworkNotFound", NOBODY),
        ({"fixed_ips": [{"subnet_id": ""}]}, 400, "HTTPBadRequest", "not a valid UUID"),
        ({"fixed_ips": [{"ip_address": ""}]}, 400, "HTTPBadRequest", "not a valid IP address"),
        ({"binding:host_id": "h1"}, 400, "HTTPBadRequest", "by the compute API"),
        ({"fixed_ips": [{"subnet_id": NOBODY}]}, 404, "SubnetNotFound", NOBODY),
        ({"fixed_ips": [{}] * 6}, 400, "HTTPBadRequest", "at most 5 fixed addresses"),
        ({"fixed_ips": [{"ip_address": "x"}]}, 400, "HTTPBadRequest", "not a valid IP address"),
        ({"mac_address": "01:00:00:00:00:00"}, 400, "HTTPBadRequest", "mac_address"),
        ({"security_groups": [NOBODY]}, 404, "SecurityGroupNotFound", NOBODY),
        ({"security_groups": ["default"]}, 400, "HTTPBadRequest", "list of UUIDs"),
        ({"security_groups": [NOBODY, NOBODY]}, 400, "HTTPBadRequest", "duplicate items"),
        ({"binding:vnic_type": ["direct"]}, 400, "HTTPBadRequest", "Servers have ports of the kinds normal"),
    ],
)
def test_unsupported_port_is_refused(api: Api, values: dict[str, Any], status: int, kind: str, text: str) -> None:
    api.refused("POST", "/ports", {"port": {"network_id": api.shared.id, **values}}, status, kind, text)


@pytest.mark.parametrize(
    "name", ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u200fone", "\U0001f468\u200d\U0001f469"]
)
def test_name_takes_joiners_and_marks_of_direction(api: Api, name: str) -> None:
    assert api.port(name=name)["name"] == name
    assert api.make("/networks", "network", name=name, tags=[name])["tags"] == [name]
    body = {"network": {"name": "a\x07b"}}
    api.refused("POST", "/networks", body, 400, "HTTPBadRequest", "printable characters")


def test_ports_are_limited_by_the_quota(api: Api) -> None:
    for _ in range(4):
        api.port()
    too_many = {"port": {"network_id": api.shared.id}}
    api.refused("POST", "/ports", too_many, 409, "OverQuota", "Quota exceeded for port")
    used = api.get("/quotas/demo/details.json")["quota"]["port"]
    assert used == {"limit": 4, "used": 4, "reserved": 0}


# --- groups


def test_security_groups_and_rules(api: Api) -> None:
    made = api.make("/security-groups", "security_group", name="web", description="HTTP")
    assert [item["direction"] for item in made["security_group_rules"]] == ["egress", "egress"]
    fields = {"security_group_id": made["id"], "direction": "ingress", "protocol": "6", "description": "why"}
    rule = api.make("/security-group-rules", "security_group_rule", **fields, port_range_min=80, port_range_max=80)
    assert (rule["protocol"], rule["ethertype"], rule["description"]) == ("6", "IPv4", "why")
    assert api.get(f"/security-group-rules/{rule['id']}")["security_group_rule"] == rule
    again = {"security_group_rule": {**fields, "protocol": "tcp", "port_range_min": 80, "port_range_max": 80}}
    api.refused("POST", "/security-group-rules", again, 409, "SecurityGroupRuleExists", "already exists")
    for prefix in ("fe80::%lo/64", "fe80::1%lo"):
        zone = {"security_group_rule": {**fields, "ethertype": "IPv6", "remote_ip_prefix": prefix}}
        api.refused("POST", "/security-group-rules", zone, 400, "InvalidCIDR", "has a zone")
    for protocol, kind, text in (
        ("nonsense", "SecurityGroupRuleInvalidProtocol", "Invalid IP protocol"),
        (256, "SecurityGroupRuleInvalidProtocol", "a number from 0 to 255"),
        (True, "HTTPBadRequest", "a name or a number"),
        ("icmpv6", "SecurityGroupEthertypeConflictWithProtocol", "Invalid ethertype IPv4"),
    ):
        unknown = {"security_group_rule": {**fields, "protocol": protocol}}
        api.refused("POST", "/security-group-rules", unknown, 400, kind, text)
    ports = {"security_group_rule": {**fields, "protocol": None, "port_range_min": 1, "port_range_max": 1}}
    api.refused(
        "POST", "/security-group-rules", ports, 400, "SecurityGroupProtocolRequiredWithPorts", "such as tcp or udp"
    )
    ports = {"security_group_rule": {**fields, "protocol": "gre", "port_range_min": 1, "port_range_max": 1}}
    api.refused(
        "POST", "/security-group-rules", ports, 400, "SecurityGroupInvalidProtocolForPort", "only supported for TCP"
    )
    for protocol, shown in ((112, "112"), ("IP", None), ("SCTP", "sctp"), ("hopopt", "hopopt")):
        added = api.make("/security-group-rules", "security_group_rule", **{**fields, "protocol": protocol})
        assert added["protocol"] == shown
    for name in ("remote_ip_prefix", "remote_group_id", "remote_address_group_id"):
        empty = {"security_group_rule": {**fields, "protocol": "udp", name: ""}}
        api.refused("POST", "/security-group-rules", empty, 400, "HTTPBadRequest", f"Invalid input for {name}")
    vrrp = {"security_group_rule": {**fields, "protocol": "vrrp"}}
    api.refused("POST", "/security-group-rules", vrrp, 409, "SecurityGroupRuleExists", "Rule id is ")
    port = api.port(security_groups=[made["id"]])
    assert [item["id"] for item in api.get(f"/ports?security_groups={made['id']}")["ports"]] == [port["id"]]
    api.refused("DELETE", f"/security-groups/{made['id']}", None, 409, "SecurityGroupInUse", f"port {port['id']}")
    renamed = api("PUT", f"/security-groups/{made['id']}", {"security_group": {"name": "www"}})
    assert renamed.json["security_group"]["name"] == "www"
    assert api.get(f"/ports/{port['id']}")["port"]["security_groups"] == [made["id"]]
    assert api("DELETE", f"/security-group-rules/{rule['id']}").status_code == 204
    assert api("DELETE", f"/ports/{port['id']}").status_code == 204
    assert api("DELETE", f"/security-groups/{made['id']}").status_code == 204
    default = api.get("/security-groups?name=default")["security_groups"][0]["id"]
    api.refused("DELETE", f"/security-groups/{default}", None, 409, "SecurityGroupCannotRemoveDefault", "default")
    same = {"security_group": {"name": "default"}}
    api.refused("POST", "/security-groups", same, 409, "SecurityGroupConflict", "already exists")


# --- floating addresses


def test_floating_address_is_associated_with_a_port(api: Api) -> None:
    one, two = api.port(), api.port()
    made = api.make("/floatingips", "floatingip", floating_network_id=api.pool.id, port_id=one["id"])
    fixed = one["fixed_ips"][0]["ip_address"]
    assert (made["status"], made["fixed_ip_address"], made["port_details"]["network_id"]) == (
        "ACTIVE",
        fixed,
        api.shared.id,
    )
    other = api.make("/floatingips", "floatingip", floating_network_id=api.pool.id, floating_ip_address="192.0.2.3")
    assert (other["floating_ip_address"], other["status"], other["port_details"]) == ("192.0.2.3", "DOWN", None)
    to_one = {"floatingip": {"port_id": one["id"]}}
    path = f"/floatingips/{other['id']}"
    api.refused("PUT", path, to_one, 409, "FloatingIPPortAlreadyAssociated", "leads there already")
    wrong = {"floatingip": {"port_id": two["id"], "fixed_ip_address": fixed}}
    api.refused("PUT", path, wrong, 400, "InvalidInput", "does not have the fixed address")
    assert (
        api("PUT", path, {"floatingip": {"port_id": two["id"], "description": "d"}}).json["floatingip"]["port_id"]
        == two["id"]
    )
    assert [item["id"] for item in api.get(f"/floatingips?port_id={two['id']}")["floatingips"]] == [other["id"]]
    assert api("PUT", path, {"floatingip": {}}).json["floatingip"]["port_id"] is None
    assert api("PUT", path, {"floatingip": {"port_id": two["id"]}}).json["floatingip"]["description"] == "d"
    assert api("DELETE", f"/ports/{two['id']}").status_code == 204
    left = api.get(path)["floatingip"]
    assert (left["status"], left["port_id"], left["description"]) == ("DOWN", None, "d")
    taken = {"floatingip": {"floating_network_id": api.pool.id, "floating_ip_address": "192.0.2.3"}}
    api.refused("POST", "/floatingips", taken, 409, "Conflict", "is in use")
    nowhere = {"floatingip": {"floating_network_id": NOBODY}}
    api.refused("POST", "/floatingips", nowhere, 404, "NetworkNotFound", NOBODY)
    for method, url, more in (("POST", "/floatingips", {"floating_network_id": api.pool.id}), ("PUT", path, {})):
        body = {"floatingip": {**more, "fixed_ip_address": "10.0.0.9"}}
        api.refused(method, url, body, 400, "HTTPBadRequest", "without a port_id")
    for address in (made, other):
        assert api("DELETE", f"/floatingips/{address['id']}").status_code == 204


# --- lists


def test_lists_have_filters_fields_order_and_pages(api: Api) -> None:
    for name in ("b", "a", "c"):
        api.port(name=name)
    query = "/ports?fields=name&sort_key=name&sort_dir=desc"
    assert api.get(query)["ports"] == [{"name": "c"}, {"name": "b"}, {"name": "a"}]
    assert {item["name"] for item in api.get("/ports?name=a&name=c")["ports"]} == {"a", "c"}
    assert api.get("/ports?device_id=x")["ports"] == api.get("/ports?project_id=other")["ports"] == []
    assert len(api.get("/ports?tenant_id=demo&admin_state_up=True")["ports"]) == 3
    (address,) = api.get("/ports?name=a")["ports"][0]["fixed_ips"]
    by_address = (
        f"/ports?fixed_ips=ip_address={address['ip_address']}&fixed_ips=subnet_id={api.subnet_of(api.shared.id)}"
    )
    assert [item["name"] for item in api.get(by_address)["ports"]] == ["a"]
    first = api.get("/ports?sort_key=name&limit=2")
    assert [item["name"] for item in first["ports"]] == ["a", "b"]
    (link,) = first["ports_links"]
    second = api.get(link["href"].removeprefix("http://cloud:9696/v2.0"))
    assert [item["name"] for item in second["ports"]] == ["c"]
    (back,) = second["ports_links"]
    assert back["rel"] == "previous"
    again = api.get(back["href"].removeprefix("http://cloud:9696/v2.0"))
    assert [item["name"] for item in again["ports"]] == ["a", "b"]
    for query, text in (
        ("flavour=x", "invalid attribute for filtering"),
        ("sort_key=flavour", "invalid attribute for sort"),
        ("sort_key=name&sort_dir=up", "asc or desc"),
        ("limit=x", "limit"),
        (f"marker={NOBODY}", "marker"),
    ):
        api.refused("GET", f"/ports?{query}", None, 400, "HTTPBadRequest", text)


# --- the rest


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("networks", "/networks"),
        ("subnets", "/subnets"),
        ("ports", "/ports"),
        ("security_groups", "/security-groups"),
        ("security_group_rules", "/security-group-rules"),
        ("floatingips", "/floatingips"),
    ],
)
def test_pages_of_a_list_are_the_list(api: Api, key: str, path: str) -> None:
    """Lists merge rows with pools and default groups, which have none, and a network may have two subnets."""
    for number in range(3):
        wide = factory.new_network(f"n{number}", f"10.1.{number}.0/24", cidr6=f"fd00:{number}::/64")
        api.manager.db.write(builtin_networks.create, wide)
        api.port()
        api.make("/security-groups", "security_group", name=f"g{number}")
    for _ in range(2):
        api.make("/floatingips", "floatingip", floating_network_id=api.pool.id)
    for token in (MEMBER, ADMIN):
        whole = [item["id"] for item in api.get(path, token)[key]]
        assert len(whole) >= 2
        for limit in (1, 2, 100):
            pages = [api.get(f"{path}?limit={limit}", token)]
            while link := next((link for link in pages[-1].get(f"{key}_links", ()) if link["rel"] == "next"), None):
                pages.append(api.get(link["href"].partition("/v2.0")[2], token))
            assert [item["id"] for page in pages for item in page[key]] == whole
            for page in reversed(pages[:-1]):
                (back,) = (link for link in pages[pages.index(page) + 1][f"{key}_links"] if link["rel"] == "previous")
                assert api.get(back["href"].partition("/v2.0")[2], token)[key] == page[key]
    api.refused("GET", f"{path}?marker={NOBODY}", None, 400, "HTTPBadRequest", NOBODY)


def test_list_reads_no_more_than_its_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        api.port()
    sizes: list[int] = []
    read = ports._to_objects

    def counted(uow: UnitOfWork, query: Any) -> list[Port]:
        found = read(uow, query)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(ports, "_to_objects", counted)
    assert len(api.get("/ports?limit=2")["ports"]) == 2
    assert sizes == [3], "one more than the page shows whether another one follows"


def test_quotas_are_shown_and_changed(api: Api) -> None:
    assert api.get("/quotas/demo")["quota"] == {
        "network": 3,
        "subnet": 3,
        "port": 4,
        "floatingip": 10,
        "security_group": 10,
        "security_group_rule": 100,
        "router": 3,
        "rbac_policy": 10,
        "trunk": 100,
        "subnetpool": 50,
    }
    assert api("GET", "/quotas/other").status_code == 403
    assert api("PUT", "/quotas/demo", {"quota": {"port": 9}}).status_code == 403
    changed = api("PUT", "/quotas/demo", {"quota": {"port": 9, "network": -1}}, ADMIN).json["quota"]
    assert (changed["port"], changed["network"]) == (9, -1)
    api.port()
    below = {"quota": {"port": 0, "check_limit": True}}
    api.refused("PUT", "/quotas/demo", below, 400, "QuotaBelowUse", "already used 1", ADMIN)
    api.refused("PUT", "/quotas/demo", {"quota": {"vpn": 1}}, 400, "HTTPBadRequest", "'vpn'", ADMIN)
    assert api("DELETE", "/quotas/demo", token=ADMIN).status_code == 204
    assert api.get("/quotas/demo")["quota"]["port"] == api.get("/quotas/demo/default")["quota"]["port"] == 4


def test_extensions_and_agents(api: Api) -> None:
    assert "security-group" in {item["alias"] for item in api.get("/extensions")["extensions"]}
    assert api.get("/extensions/quotas")["extension"]["alias"] == "quotas"
    assert api("GET", "/extensions/trunk").status_code == 404
    assert api.get("/agents") == {"agents": []}
    assert api.get("/agents", ADMIN) == {"agents": []}
    assert api.get("/availability_zones")["availability_zones"] == []


def test_resources_of_another_project_are_not_found(api: Api) -> None:
    things = {
        "networks": api.make("/networks", "network", name="mine"),
        "ports": api.port(),
        "security-groups": api.make("/security-groups", "security_group", name="web"),
        "floatingips": api.make("/floatingips", "floatingip", floating_network_id=api.pool.id),
        "routers": api.make("/routers", "router", name="mine"),
    }
    values = {"network_id": things["networks"]["id"], "cidr": "10.64.0.0/24"}
    things["subnets"] = api.make("/subnets", "subnet", **values)
    things["security-group-rules"] = things["security-groups"]["security_group_rules"][0]
    for path, thing in things.items():
        key = path.removesuffix("s").replace("-", "_")
        assert thing["id"] not in api("GET", f"/{path}", token=STRANGER).text, path
        assert thing["id"] in api("GET", f"/{path}", token=ADMIN).text, path
        assert api("GET", f"/{path}/{thing['id']}", token=STRANGER).status_code == 404, path
        assert api("DELETE", f"/{path}/{thing['id']}", token=STRANGER).status_code == 404, path
        if path != "security-group-rules":
            body = {key: {"description": "theirs"}}
            assert api("PUT", f"/{path}/{thing['id']}", body, STRANGER).status_code == 404, path
    theirs = api.make("/floatingips", "floatingip", STRANGER, floating_network_id=api.pool.id)
    lead = {"floatingip": {"port_id": things["ports"]["id"]}}
    api.refused("PUT", f"/floatingips/{theirs['id']}", lead, 404, "PortNotFound", "could not be found", STRANGER)
    on_mine = {"port": {"network_id": things["networks"]["id"]}}
    api.refused("POST", "/ports", on_mine, 404, "NetworkNotFound", "could not be found", STRANGER)
    in_mine = {"port": {"network_id": api.shared.id, "security_groups": [things["security-groups"]["id"]]}}
    api.refused("POST", "/ports", in_mine, 404, "SecurityGroupNotFound", "not found", STRANGER)


def test_malformed_request_is_a_400(api: Api) -> None:
    api.refused("POST", "/networks", {}, 400, "HTTPBadRequest", "Unable to find 'network'")
    assert api("POST", "/networks", [1]).status_code == 400
    assert api("GET", "/nothing").status_code == 404
    assert api("PATCH", "/networks").status_code == 405


def test_api_needs_the_local_backend(tmp_path: Path) -> None:
    conf = make_conf(tmp_path, "enabled_apis = network\n[network]\nbackend = none\n")
    with pytest.raises(exceptions.ConfigurationError, match="backend = local, which is none"):
        deploy.load_app("network", wsgi.ApiServices(conf, Policy(conf), API()))
