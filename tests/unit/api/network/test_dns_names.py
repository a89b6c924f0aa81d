"""Names of networks, ports and floating addresses in DNS, by the network API."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.network.conftest import Api


def own_network(api: Api, **values: Any) -> dict[str, Any]:
    network = api.make("/networks", "network", **{"name": "n", **values})
    api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr="10.64.1.0/24")
    return network


def test_extensions_of_names_are_listed(api: Api) -> None:
    aliases = {item["alias"] for item in api.get("/extensions")["extensions"]}
    assert {"dns-integration", "dns-domain-ports"} <= aliases


@pytest.mark.parametrize(
    ("network", "port", "fqdn"),
    [
        ("", "", "web.openstacklocal."),
        ("Net.Example.org.", "", "web.net.example.org."),
        ("net.example.org.", "port.example.org.", "web.port.example.org."),
    ],
)
def test_named_port_has_the_most_specific_domain(api: Api, network: str, port: str, fqdn: str) -> None:
    made = api.port(network_id=own_network(api, dns_domain=network)["id"], dns_name="Web", dns_domain=port)
    address = made["fixed_ips"][0]["ip_address"]
    assert (made["dns_name"], made["dns_domain"]) == ("web", port)
    assert made["dns_assignment"] == [{"ip_address": address, "hostname": "web", "fqdn": fqdn}]
    assert api.get(f"/ports/{made['id']}")["port"]["dns_assignment"] == made["dns_assignment"]
    assert [item["id"] for item in api.get("/ports?dns_name=web")["ports"]] == [made["id"]]


def test_port_without_a_name_is_called_by_its_address(api: Api) -> None:
    made = api.port(network_id=own_network(api)["id"], fixed_ips=[{"ip_address": "10.64.1.9"}])
    host = "host-10-64-1-9"
    expected = {"ip_address": "10.64.1.9", "hostname": host, "fqdn": f"{host}.openstacklocal."}
    assert (made["dns_name"], made["dns_assignment"]) == ("", [expected])


def test_two_ports_of_a_network_may_have_one_name(api: Api) -> None:
    network = own_network(api)
    first, second = (api.port(network_id=network["id"], dns_name="web") for _ in range(2))
    fqdns = {item["fqdn"] for port in (first, second) for item in port["dns_assignment"]}
    assert fqdns == {"web.openstacklocal."}


def test_names_of_ports_and_domains_of_networks_change(api: Api) -> None:
    network = own_network(api)
    port = api.port(network_id=network["id"], dns_name="old.openstacklocal.")
    assert port["dns_assignment"][0]["fqdn"] == "old.openstacklocal."
    assert api("PUT", f"/ports/{port['id']}", {"port": {"dns_name": "new", "dns_domain": "a.org."}}).status_code == 200
    changed = api("PUT", f"/networks/{network['id']}", {"network": {"dns_domain": "b.org."}}).json["network"]
    assert changed["dns_domain"] == api.get(f"/networks/{network['id']}")["network"]["dns_domain"] == "b.org."
    assert api.get(f"/ports/{port['id']}")["port"]["dns_assignment"][0]["fqdn"] == "new.a.org."
    assert api("PUT", f"/ports/{port['id']}", {"port": {"dns_domain": None}}).status_code == 200
    assert api.get(f"/ports/{port['id']}")["port"]["dns_assignment"][0]["fqdn"] == "new.b.org."


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a..b", "Encountered an empty component"),
        ("-a", "Name '-a' must not start or end with a hyphen"),
        ("a-", "Name 'a-' must not start or end with a hyphen"),
        ("a b", "Name 'a b' must be 1-63 characters long"),
        ("a" * 64, "must be 1-63 characters long"),
        ("a.42", "TLD '42' must not be all numeric"),
        ("web.example.org.", "Its higher level labels must be equal to the dns_domain option"),
        (".".join(["a" * 60] * 4), "the dns_domain option 'openstacklocal.' its length exceeds"),
    ],
)
def test_invalid_name_of_a_port_is_refused(api: Api, name: str, why: str) -> None:
    port = api.port()
    for method, path, body in (
        ("POST", "/ports", {"network_id": api.shared.id, "dns_name": name}),
        ("PUT", f"/ports/{port['id']}", {"dns_name": name}),
    ):
        api.refused(method, path, {"port": body}, 400, "HTTPBadRequest", why)


@pytest.mark.parametrize("path", ["network", "port"])
def test_domain_without_a_dot_at_its_end_is_refused(api: Api, path: str) -> None:
    more = {"network_id": api.shared.id} if path == "port" else {}
    body = {path: {"dns_domain": "example.org", **more}}
    api.refused("POST", f"/{path}s", body, 400, "HTTPBadRequest", "Reason: 'example.org' is not a FQDN")


def test_floating_address_has_a_name_for_good(api: Api) -> None:
    values = {"floating_network_id": api.pool.id, "dns_name": "www", "dns_domain": "example.org."}
    made = api.make("/floatingips", "floatingip", **values)
    shown = api.get(f"/floatingips/{made['id']}")["floatingip"]
    assert (shown["dns_name"], shown["dns_domain"]) == ("www", "example.org.")
    path, same = f"/floatingips/{made['id']}", {"floatingip": {"dns_name": "www", "description": "d"}}
    assert api("PUT", path, same).json["floatingip"]["description"] == "d"
    changed = {"floatingip": {"dns_name": "other"}}
    api.refused("PUT", path, changed, 400, "HTTPBadRequest", "Cannot update read-only attribute dns_name")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"dns_name": "www"}, "dns_name cannot be specified without a dns_domain"),
        ({"dns_domain": "example.org."}, "dns_domain cannot be specified without a dns_name"),
    ],
)
def test_floating_address_with_half_a_name_is_refused(api: Api, values: dict[str, str], why: str) -> None:
    body = {"floatingip": {"floating_network_id": api.pool.id, **values}}
    api.refused("POST", "/floatingips", body, 400, "HTTPBadRequest", why)


def test_project_does_not_change_names_of_another_one(api: Api) -> None:
    network = own_network(api)
    port = api.port(network_id=network["id"])
    for path, key in ((f"/ports/{port['id']}", "port"), (f"/networks/{network['id']}", "network")):
        assert api("PUT", path, {key: {"dns_domain": "evil.org."}}, "mallory:other").status_code == 404
