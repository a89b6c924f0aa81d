"""Devices of ports: texts of load balancers and the like, and servers and routers, which other requests decide."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from nova_lite.db.network import builtin_networks, ports
from nova_lite.network.driver import load_backend
from nova_lite.objects import NetworkRequest
from tests.support import make
from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

#: Owners and ids of ports that programs make.
PROGRAMS = [
    ("Octavia", "lb-0a0a0a0a-0a0a-4a0a-8a0a-0a0a0a0a0a0a"),
    ("Octavia:health-mgr", ""),
    ("manila:share", "manila-share"),
    ("trove:trove", "7a4d5f0e-3c0b-4d8e-9a51-0c7e5b1f2a63"),
    ("kuryr:container", "c1e9b7a2-5f64-4b0d-8e3a-6d2f9a8b4c15"),
    ("", "anything"),
]


def server(api: Api, project_id: str = "demo") -> str:
    return api.manager.db.write(make.instance, project_id=project_id)


@pytest.mark.parametrize(("owner", "device_id"), PROGRAMS)
def test_device_of_another_program_is_kept(api: Api, owner: str, device_id: str) -> None:
    device = {"device_owner": owner, "device_id": device_id}
    made = api.port(**device)
    other = api.port()
    assert {name: made[name] for name in device} == device
    assert api("PUT", f"/ports/{other['id']}", {"port": device}).status_code == 200
    for name, value in device.items():
        if value:
            found = api.get(f"/ports?{name}={value}")["ports"]
            assert {port["id"] for port in found} == {made["id"], other["id"]}
    assert api("PUT", f"/ports/{made['id']}", {"port": {"name": "n"}}).json["port"]["device_id"] == device_id
    cleared = api("PUT", f"/ports/{made['id']}", {"port": {"device_id": None, "device_owner": ""}}).json["port"]
    assert (cleared["device_id"], cleared["device_owner"]) == ("", "")
    assert api("DELETE", f"/ports/{other['id']}").status_code == 204


@pytest.mark.parametrize("owner", ["compute:nova", "network:dhcp", "network:router_interface"])
def test_owner_of_servers_and_routers_needs_a_right(api: Api, owner: str) -> None:
    body = {"port": {"network_id": api.shared.id, "device_owner": owner}}
    api.refused("POST", "/ports", body, 403, "PolicyNotAuthorized", "create_port:device_owner")
    port = api.port()
    change = {"port": {"device_owner": owner}}
    api.refused("PUT", f"/ports/{port['id']}", change, 403, "PolicyNotAuthorized", "update_port:device_owner")
    assert api("PUT", f"/ports/{port['id']}", change, ADMIN).json["port"]["device_owner"] == owner
    same = api("PUT", f"/ports/{port['id']}", {"port": {"device_owner": owner, "name": "n"}})
    assert same.json["port"]["device_owner"] == owner, "a member may send back what it has read"


@pytest.mark.parametrize("project_id", ["demo", "other"])
def test_id_of_a_server_is_refused(api: Api, project_id: str) -> None:
    device = {"device_id": server(api, project_id)}
    text = f"{device['device_id']} is a server"
    port = api.port()
    api.refused("POST", "/ports", {"port": {"network_id": api.shared.id, **device}}, 400, "InvalidInput", text)
    api.refused("PUT", f"/ports/{port['id']}", {"port": device}, 400, "InvalidInput", text, ADMIN)


def test_id_of_a_router_is_refused(api: Api) -> None:
    device = {"device_id": api.make("/routers", "router")["id"]}
    api.refused(
        "POST", "/ports", {"port": {"network_id": api.shared.id, **device}}, 400, "InvalidInput", "add_router_interface"
    )


def bound(api: Api, **values: Any) -> dict[str, Any]:
    """Create a port and give it to a server."""
    port, uuid_ = api.port(**values), server(api)
    backend = load_backend(api.manager.conf)
    context = make.context("demo")
    request = NetworkRequest(port_id=port["id"])
    api.manager.db.write(lambda uow: backend.attach(builtin_networks.Store(uow), context, uuid_, request))
    return {**port, "server": uuid_}


def test_port_with_an_owner_alone_is_given_to_a_server_and_has_no_owner_afterwards(api: Api) -> None:
    port = bound(api, device_owner="Octavia")
    shown = api.get(f"/ports/{port['id']}")["port"]
    assert (shown["device_id"], shown["device_owner"]) == (port["server"], "compute:nova")
    api.manager.db.write(lambda uow: builtin_networks.Store(uow).remove_port(port["server"], port["id"]))
    shown = api.get(f"/ports/{port['id']}")["port"]
    assert (shown["device_id"], shown["device_owner"]) == ("", "")


def test_port_of_a_server_keeps_its_device(api: Api) -> None:
    port = bound(api)
    for values, status in (({"device_id": "x"}, 400), ({"device_owner": "Octavia"}, 400), ({"device_id": ""}, 409)):
        response = api("PUT", f"/ports/{port['id']}", {"port": values})
        assert response.status_code == status, response.text
        assert "detach it with the compute API" in response.json["NeutronError"]["message"]
    with pytest.raises(exceptions.PortInUse):
        api.manager.db.write(ports.update, make.context("demo"), port["id"], {"device_id": "x"})


def test_port_with_a_foreign_device_is_given_to_no_server(api: Api) -> None:
    with pytest.raises(exceptions.PortInUse):
        bound(api, device_id="lb-1")
