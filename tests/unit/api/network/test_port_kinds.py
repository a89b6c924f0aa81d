"""Physical networks, and ports that have devices of their hosts, by the network API."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.core import models
from tests.support import make
from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

KINDS = ["direct", "macvtap", "direct-physical"]


def provider(kind: str | None = "vlan", physical: str | None = "physnet1", vlan: int | None = 42) -> dict[str, Any]:
    names = ("network_type", "physical_network", "segmentation_id")
    return {f"provider:{name}": value for name, value in zip(names, (kind, physical, vlan), strict=True)}


def physical(api: Api, **values: Any) -> dict[str, Any]:
    network = api.make("/networks", "network", ADMIN, name="n", shared=True, **(provider() | values))
    subnet = {"network_id": network["id"], "ip_version": 4, "cidr": "10.64.9.0/24"}
    api.make("/subnets", "subnet", ADMIN, **subnet)
    return network


@pytest.mark.parametrize(("kind", "vlan"), [("flat", None), ("vlan", 42)])
def test_physical_network_shows_its_provider_attributes_to_admins(api: Api, kind: str, vlan: int | None) -> None:
    network = physical(api, **provider(kind, vlan=vlan))
    assert provider(kind, vlan=vlan).items() <= network.items()
    assert provider(kind, vlan=vlan).items() <= api.get(f"/networks/{network['id']}", ADMIN)["network"].items()
    assert not api.get(f"/networks/{network['id']}")["network"].keys() & provider().keys()
    api.refused(
        "POST", "/networks", {"network": provider(kind, vlan=vlan)}, 409, "Conflict", network["id"], token=ADMIN
    )


def test_member_creates_no_physical_network(api: Api) -> None:
    rule = "create_network:provider:physical_network"
    api.refused("POST", "/networks", {"network": provider()}, 403, "PolicyNotAuthorized", rule)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (("vxlan", None, 5), "provider:network_type. It must be flat or vlan"),
        ((None, "physnet1", None), "provider:network_type. It must be flat or vlan"),
        (("flat", None, None), "provider:physical_network"),
        (("flat", "physnet1", 5), "provider:segmentation_id"),
        (("vlan", "physnet1", None), "provider:segmentation_id"),
        (("vlan", "physnet1", 4095), "It must be a number from 1 to 4094"),
    ],
)
def test_incomplete_description_of_a_physical_network_is_refused(api: Api, values: Any, text: str) -> None:
    body = {"network": provider(*values)}
    assert api("POST", "/networks", body, ADMIN).status_code == 400
    assert text in api("POST", "/networks", body, ADMIN).json["NeutronError"]["message"]


def test_external_network_is_no_physical_one(api: Api) -> None:
    body = {"network": provider() | {"router:external": True}}
    assert "An external network has no ports here" in api("POST", "/networks", body, ADMIN).text


@pytest.mark.parametrize("kind", KINDS)
def test_port_keeps_its_kind_and_says_that_nothing_filters_it(api: Api, kind: str) -> None:
    network = physical(api)
    port = api.port(network_id=network["id"], **{"binding:vnic_type": kind})
    expected = {"binding:vnic_type": kind, "port_security_enabled": False, "security_groups": []}
    assert expected.items() <= port.items()
    api.manager.db.write(_give, port["id"])
    bound = api.get(f"/ports/{port['id']}", ADMIN)["port"]
    vif_type = "hostdev_physical" if kind == "direct-physical" else "hw_veb"
    assert (bound["binding:vif_type"], bound["binding:vif_details"]) == (vif_type, {"port_filter": False})
    same = {"port": {"binding:vnic_type": kind, "name": "n"}}
    assert api("PUT", f"/ports/{port['id']}", same).json["port"]["name"] == "n"


def _give(uow: Any, port_id: str) -> None:
    instance = make.instance(uow, project_id="demo")
    uow.session.get(models.Instance, uow.session.query(models.Instance).one().id).host = "host1"
    uow.session.get(models.Port, port_id).instance_uuid = instance


def test_port_with_settings_that_no_host_enforces_is_refused(api: Api) -> None:
    network, groups = physical(api), api.get("/security-groups")["security_groups"]
    kind = {"network_id": network["id"], "binding:vnic_type": "direct"}
    for values, text in (
        ({"port_security_enabled": True}, "cannot enforce security groups and addresses"),
        ({"admin_state_up": False}, "cannot enforce admin_state_up"),
        ({"security_groups": [groups[0]["id"]]}, "Port security must be enabled"),
    ):
        answer = api("POST", "/ports", {"port": kind | values}, ADMIN)
        assert (answer.status_code // 100, text in answer.text) == (4, True), answer.text
    port = api.port(**kind)
    for changes, text in (
        ({"port_security_enabled": True}, "cannot enforce security groups and addresses"),
        ({"admin_state_up": False}, "cannot enforce admin_state_up"),
        ({"binding:vnic_type": "macvtap"}, "The kind of a port cannot be changed"),
    ):
        answer = api("PUT", f"/ports/{port['id']}", {"port": changes}, ADMIN)
        assert (answer.status_code, text in answer.text) == (400, True), answer.text


def test_port_and_network_have_to_fit(api: Api) -> None:
    network = physical(api)
    for body, text in (
        ({"network_id": api.shared.id, "binding:vnic_type": "direct"}, "it has no provider:physical_network"),
        ({"network_id": network["id"]}, "it is the physical network physnet1"),
        ({"network_id": network["id"], "binding:vnic_type": "vdpa"}, "kinds normal, direct, macvtap, direct-physical"),
    ):
        answer = api("POST", "/ports", {"port": body})
        assert (answer.status_code, text in answer.text) == (400, True), answer.text


def test_physical_network_has_no_router_and_no_floating_address(api: Api) -> None:
    network = api.make("/networks", "network", ADMIN, name="n", project_id="demo", **provider())
    subnet = api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr="10.64.9.0/24")
    router = api.make("/routers", "router", name="r")
    body = {"subnet_id": subnet["id"]}
    answer = api("PUT", f"/routers/{router['id']}/add_router_interface", body)
    assert (answer.status_code, "which hosts do not route" in answer.text) == (400, True)
    shared = api.make("/networks", "network", ADMIN, name="s", shared=True, **provider(vlan=43))
    api.make("/subnets", "subnet", ADMIN, network_id=shared["id"], ip_version=4, cidr="10.64.10.0/24")
    for item in (network, shared):
        port = api.port(network_id=item["id"], **{"binding:vnic_type": "direct"})
        floating = {"floating_network_id": api.pool.id, "port_id": port["id"]}
        assert api("POST", "/floatingips", {"floatingip": floating}).status_code == 404
