"""Networks, ports and routers that their owner turns off."""

from __future__ import annotations

import pytest

from tests.unit.api.network.conftest import Api


@pytest.mark.parametrize(("path", "key"), [("/networks", "network"), ("/ports", "port"), ("/routers", "router")])
def test_resource_is_turned_off_and_on(api: Api, path: str, key: str) -> None:
    values = {"network_id": api.shared.id} if key == "port" else {}
    assert api.make(path, key, **values)["admin_state_up"] is True
    made = api.make(path, key, **values, admin_state_up=False)
    assert made["admin_state_up"] is False
    url = f"{path}/{made['id']}"
    assert api.get(url)[key]["admin_state_up"] is False
    assert [item["id"] for item in api.get(f"{path}?admin_state_up=false")[f"{key}s"]] == [made["id"]]
    for state in (True, False):
        changed = api("PUT", url, {key: {"admin_state_up": state}})
        assert (changed.status_code, changed.json[key]["admin_state_up"]) == (200, state)
        assert api.get(url)[key]["admin_state_up"] is state
    api.refused("PUT", url, {key: {"admin_state_up": "x"}}, 400, "HTTPBadRequest", "use true or false")


def test_interface_of_a_router_is_not_turned_off(api: Api) -> None:
    network = api.make("/networks", "network")
    api.make("/subnets", "subnet", network_id=network["id"], cidr="10.64.1.0/24", ip_version=4)
    router = api.make("/routers", "router")["id"]
    added = api("PUT", f"/routers/{router}/add_router_interface", {"subnet_id": api.subnet_of(network["id"])}).json
    body = {"port": {"admin_state_up": False}}
    api.refused("PUT", f"/ports/{added['port_id']}", body, 409, "ServicePortInUse", "cannot be changed directly")
