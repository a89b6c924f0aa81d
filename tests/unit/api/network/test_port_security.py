"""Address pairs of ports, and ports and networks without port security."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.core.engine import Database
from nova_lite.db.network import builtin_networks, ports, security_groups
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.objects import PortFilters
from tests.support import make
from tests.support.api_client import ADMIN, STRANGER
from tests.support.spanning import guest, host
from tests.unit.api.network.conftest import Api

MAC = "fa:16:3e:00:00:07"
PAIR = {"ip_address": "10.64.0.100"}


def own_network(api: Api, **values: Any) -> str:
    made = api.make("/networks", "network", **values)
    api.make("/subnets", "subnet", network_id=made["id"], cidr="10.64.0.0/24", ip_version=4)
    network_id: str = made["id"]
    return network_id


def change(api: Api, port: dict[str, Any], **values: Any) -> dict[str, Any]:
    response = api("PUT", f"/ports/{port['id']}", {"port": values})
    assert response.status_code == 200, response.text
    changed: dict[str, Any] = response.json["port"]
    return changed


def test_pair_has_the_mac_address_of_its_port_unless_it_names_one(api: Api) -> None:
    port = api.port(
        network_id=own_network(api),
        allowed_address_pairs=[PAIR, {"ip_address": "10.244.0.0/16", "mac_address": MAC.upper()}],
    )
    assert port["allowed_address_pairs"] == [
        {"ip_address": "10.64.0.100", "mac_address": port["mac_address"]},
        {"ip_address": "10.244.0.0/16", "mac_address": MAC},
    ]
    assert change(api, port, name="x")["allowed_address_pairs"] == port["allowed_address_pairs"]
    everything = change(api, port, allowed_address_pairs=[{"ip_address": "0.0.0.0/0"}, {"ip_address": "::/0"}])
    assert [pair["ip_address"] for pair in everything["allowed_address_pairs"]] == ["0.0.0.0/0", "::/0"]
    assert change(api, port, allowed_address_pairs=[])["allowed_address_pairs"] == []
    assert change(api, port, allowed_address_pairs=None)["allowed_address_pairs"] == []


@pytest.mark.parametrize(
    ("pairs", "kind", "text"),
    [
        ("x", "HTTPBadRequest", "must be a list"),
        ([1], "HTTPBadRequest", "must be a list"),
        ([{"mac_address": MAC}], "HTTPBadRequest", "must contain ip_address"),
        ([{**PAIR, "x": 1}], "HTTPBadRequest", "Unrecognized attribute(s) 'x'"),
        ([{"ip_address": "x"}], "HTTPBadRequest", "'x' is not a valid IP address"),
        ([{"ip_address": None}], "HTTPBadRequest", "is not a valid IP address"),
        ([{"ip_address": "10.64.0.1/24"}], "HTTPBadRequest", "'10.64.0.0/24' is recommended"),
        ([{"ip_address": "10.64.0.0/33"}], "HTTPBadRequest", "not a valid range"),
        ([{**PAIR, "mac_address": "x"}], "HTTPBadRequest", "mac_address"),
        ([{**PAIR, "mac_address": "fa:16:3f:00:00:01"}], "HTTPBadRequest", "mac_address"),
        ([PAIR, PAIR], "DuplicateAddressPairInRequest", "10.64.0.100"),
        ([{"ip_address": f"10.64.0.{number}"} for number in range(11)], "AllowedAddressPairExhausted", "maximum 10"),
    ],
)
def test_wrong_pair_is_refused(api: Api, pairs: Any, kind: str, text: str) -> None:
    network_id = own_network(api)
    port = api.port(network_id=network_id)
    values = {"allowed_address_pairs": pairs}
    api.refused("PUT", f"/ports/{port['id']}", {"port": values}, 400, kind, text)
    api.refused("POST", "/ports", {"port": {"network_id": network_id, **values}}, 400, kind, text)


def test_pairs_and_ports_without_security_are_for_the_owner_of_the_network(api: Api) -> None:
    port = api.port()
    for values, rule in (
        ({"allowed_address_pairs": [PAIR]}, "allowed_address_pairs"),
        ({"port_security_enabled": False, "security_groups": []}, "port_security_enabled"),
    ):
        body = {"port": {"network_id": api.shared.id, **values}}
        api.refused("POST", "/ports", body, 403, "PolicyNotAuthorized", f"create_port:{rule}")
        path = f"/ports/{port['id']}"
        api.refused("PUT", path, {"port": values}, 403, "PolicyNotAuthorized", f"update_port:{rule}")
        assert api("PUT", path, {"port": values}, ADMIN).status_code == 200
        api("PUT", path, {"port": {"allowed_address_pairs": [], "port_security_enabled": True}}, ADMIN)


def test_port_without_security_has_no_groups_and_no_pairs(api: Api) -> None:
    network_id = own_network(api)
    off = {"port_security_enabled": False}
    port = api.port(network_id=network_id, **off)
    assert (port["port_security_enabled"], port["security_groups"]) == (False, [])
    default = api.get("/security-groups?name=default")["security_groups"][0]["id"]
    path, words = f"/ports/{port['id']}", "in order to use security groups"
    groups = {"port": {"security_groups": [default]}}
    api.refused("PUT", path, groups, 400, "PortSecurityAndIPRequiredForSecurityGroups", words)
    body = {"port": {"network_id": network_id, "security_groups": [default], **off}}
    api.refused("POST", "/ports", body, 400, "PortSecurityAndIPRequiredForSecurityGroups", words)
    pairs = {"port": {"allowed_address_pairs": [PAIR]}}
    api.refused("PUT", path, pairs, 409, "AddressPairAndPortSecurityRequired", "must be enabled")
    body = {"port": {"network_id": network_id, "allowed_address_pairs": [PAIR], **off}}
    api.refused("POST", "/ports", body, 409, "AddressPairAndPortSecurityRequired", "must be enabled")
    on = change(api, port, port_security_enabled=True, security_groups=[default], allowed_address_pairs=[PAIR])
    assert on["port_security_enabled"] and on["security_groups"] == [default]
    api.refused("PUT", path, {"port": off}, 409, "PortSecurityPortHasSecurityGroup", "until security group is removed")
    none = {"port": {**off, "security_groups": []}}
    api.refused("PUT", path, none, 409, "AddressPairAndPortSecurityRequired", "must be enabled")
    assert change(api, port, security_groups=[], allowed_address_pairs=[], **off)["port_security_enabled"] is False
    api.refused("PUT", path, {"port": {"port_security_enabled": 1}}, 400, "HTTPBadRequest", "true or false")


def test_network_decides_for_its_new_ports(api: Api) -> None:
    network_id = own_network(api, port_security_enabled=False)
    assert api.get(f"/networks/{network_id}")["network"]["port_security_enabled"] is False
    port = api.port(network_id=network_id)
    assert (port["port_security_enabled"], port["security_groups"]) == (False, [])
    secure = api.port(network_id=network_id, port_security_enabled=True)
    assert secure["port_security_enabled"] and secure["security_groups"]
    response = api("PUT", f"/networks/{network_id}", {"network": {"port_security_enabled": True}})
    assert response.json["network"]["port_security_enabled"] is True
    assert api.get(f"/ports/{port['id']}")["port"]["port_security_enabled"] is False, "ports keep what they have"
    assert api.port(network_id=network_id)["port_security_enabled"] is True


def test_interface_of_a_router_keeps_its_security(api: Api) -> None:
    network_id = own_network(api)
    router = api.make("/routers", "router")
    made = api("PUT", f"/routers/{router['id']}/add_router_interface", {"subnet_id": api.subnet_of(network_id)}).json
    for values in ({"allowed_address_pairs": [PAIR]}, {"port_security_enabled": False}):
        api.refused("PUT", f"/ports/{made['port_id']}", {"port": values}, 409, "ServicePortInUse", made["port_id"])


def told(db: Database) -> PortFilters:
    return db.read(security_groups.filters_together, [FilterQuery("h1", [])])[0]


def test_host_learns_of_pairs_and_of_ports_without_security(api: Api) -> None:
    """A port that is down has neither: it is closed."""
    db, context = api.manager.db, make.context("demo")
    node = host(db, "h1", "10.9.9.1")
    network_id = own_network(api)
    network = db.read(builtin_networks.list_, context, network_id)[0]
    server = guest(db, network, 5, node, host="h1", project_id="demo")
    (port,) = db.read(ports.list_, context, {"device_id": [server]})
    assert (told(db).pairs, told(db).unfiltered) == ({}, [])
    pairs = [{**PAIR, "mac_address": MAC}]
    db.write(ports.update, context, port.id, {"address_pairs": pairs})
    assert told(db).pairs == {port.id: pairs}
    db.write(
        ports.update, context, port.id, {"address_pairs": [], "security_groups": [], "port_security_enabled": False}
    )
    assert (told(db).pairs, told(db).unfiltered) == ({}, [port.id])
    (vif,) = db.read(lambda uow: builtin_networks.Store(uow).vifs(server))
    assert (vif.port_security_enabled, vif.security_groups) == (False, [])
    db.write(ports.update, context, port.id, {"admin_state_up": False})
    assert told(db).unfiltered == []


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"allowed_address_pairs": [{"ip_address": "0.0.0.0/0"}]}, "update_port:allowed_address_pairs"),
        ({"port_security_enabled": False, "security_groups": []}, "update_port:port_security_enabled"),
        ({"mac_address": MAC}, "update_port:mac_address"),
        ({"fixed_ips": [{"ip_address": "10.64.0.77"}]}, "update_port:fixed_ips:ip_address"),
    ],
)
def test_port_on_a_network_that_its_project_cannot_see_gets_no_further_rights(
    api: Api, values: dict[str, Any], rule: str
) -> None:
    """An admin made the port on a network of another project."""
    theirs = api.make("/networks", "network", STRANGER)["id"]
    pools = [{"start": "10.64.0.100", "end": "10.64.0.200"}]  # without the address that the test requests
    api.make(
        "/subnets", "subnet", STRANGER, network_id=theirs, cidr="10.64.0.0/24", ip_version=4, allocation_pools=pools
    )
    port = api.make("/ports", "port", ADMIN, network_id=theirs)
    assert port["project_id"] == "demo"
    api.refused("PUT", f"/ports/{port['id']}", {"port": values}, 403, "PolicyNotAuthorized", rule)
    assert api.get(f"/ports/{port['id']}")["port"]["allowed_address_pairs"] == []
    new = {"port": {"network_id": theirs, "fixed_ips": [{"ip_address": "10.64.0.78"}]}}
    api.refused("POST", "/ports", new, 404, "NetworkNotFound", theirs)
