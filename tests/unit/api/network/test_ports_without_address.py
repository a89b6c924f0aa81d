"""Ports without an address, and with another one."""

from __future__ import annotations

import pytest

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.network import builtin_networks
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import NetworkRequest
from tests.unit.api.network.conftest import Api


def test_port_on_a_network_without_subnet_has_no_address(api: Api) -> None:
    network = api.make("/networks", "network")["id"]
    one, two = (api.make("/ports", "port", network_id=network) for _ in range(2))
    assert (one["fixed_ips"], one["status"]) == ([], "DOWN")
    assert one["mac_address"] != two["mac_address"]
    assert {item["id"] for item in api.get(f"/ports?network_id={network}")["ports"]} == {one["id"], two["id"]}
    wrong = {"port": {"network_id": network, "fixed_ips": [{"ip_address": "10.64.1.9"}]}}
    api.refused("POST", "/ports", wrong, 400, "InvalidInput", "no subnet")
    api.make("/subnets", "subnet", network_id=network, ip_version=4, cidr="10.64.1.0/24")
    assert api.get(f"/ports/{one['id']}")["port"]["fixed_ips"] == []
    assert api("DELETE", f"/subnets/{api.subnet_of(network)}").status_code == 204
    api.refused("DELETE", f"/networks/{network}", None, 409, "NetworkInUse", "in use")
    for port in (one, two):
        assert api("DELETE", f"/ports/{port['id']}").status_code == 204
    assert api("DELETE", f"/networks/{network}").status_code == 204


def test_port_loses_its_address_and_gets_another(api: Api) -> None:
    url = f"/ports/{api.port()['id']}"
    removed = api("PUT", url, {"port": {"fixed_ips": []}})
    assert (removed.status_code, removed.json["port"]["fixed_ips"]) == (200, [])
    assert api("PUT", url, {"port": {"name": "x"}}).json["port"]["fixed_ips"] == []
    on_shared = {"port": {"fixed_ips": [{"subnet_id": api.subnet_of(api.shared.id)}]}}
    (any_one,) = api("PUT", url, on_shared).json["port"]["fixed_ips"]
    assert any_one["subnet_id"] == api.subnet_of(api.shared.id) and any_one["ip_address"].startswith("10.0.0.")
    again = api("PUT", url, on_shared).json["port"]["fixed_ips"]
    assert again == [any_one]


def test_port_of_a_floating_address_keeps_its_address(api: Api) -> None:
    port = api.port()
    values = {"floating_network_id": api.pool.id, "port_id": port["id"]}
    leading = api.make("/floatingips", "floatingip", **values)
    body = {"port": {"fixed_ips": []}}
    api.refused("PUT", f"/ports/{port['id']}", body, 409, "Conflict", leading["floating_ip_address"])
    none = api.port(fixed_ips=[])
    assert none["fixed_ips"] == []
    lead = {"floatingip": {"port_id": none["id"]}}
    api.refused("PUT", f"/floatingips/{leading['id']}", lead, 400, "InvalidInput", "has no fixed address")


def test_server_cannot_have_a_port_without_an_address(api: Api) -> None:
    port_id = api.port(fixed_ips=[])["id"]
    context = RequestContext(project_id="demo", is_admin=False)
    request = [NetworkRequest(port_id=port_id)]
    backend = LocalNetworks(api.manager.conf)
    with pytest.raises(exceptions.PortRequiresFixedIP):
        api.manager.db.write(lambda uow: backend.resolve(builtin_networks.Store(uow), context, request))
    assert api.manager.db.write(lambda uow: builtin_networks.Store(uow).bind_port(port_id, "server", 0, None)) is False


def test_port_gets_another_mac_address(api: Api) -> None:
    network = api.make("/networks", "network")["id"]
    api.make("/subnets", "subnet", network_id=network, ip_version=4, cidr="10.64.1.0/24")
    one, two = (api.make("/ports", "port", network_id=network) for _ in range(2))
    url, body = f"/ports/{one['id']}", {"port": {"mac_address": "FA:16:3E:00:00:99"}}
    assert api("PUT", url, body).json["port"]["mac_address"] == "fa:16:3e:00:00:99"
    api.refused("PUT", f"/ports/{two['id']}", body, 409, "MacAddressInUse", "fa:16:3e:00:00:99")
    shared = api.port()["id"]
    body = {"port": {"mac_address": "fa:16:3e:00:00:98"}}
    api.refused("PUT", f"/ports/{shared}", body, 403, "PolicyNotAuthorized", "update_port:mac_address")
