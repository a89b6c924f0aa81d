"""Trunks in the network API."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite import rpc
from nova_lite.compute.trunks.wing import HostTrunks
from nova_lite.db.core.models import Port
from nova_lite.network.trunks import WING
from nova_lite.operations.states import PowerState
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver
from tests.support import make
from tests.support.api_client import ADMIN, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = str(uuid.UUID(int=5))


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    text = f"[DEFAULT]\nwings = trunks\ncompute_driver = fake\nstate_path = {tmp_path}\n"
    made = Api(tmp_path, text)
    quota = {"quota": {"port": -1, "network": -1}}
    assert made("PUT", f"/quotas/{project(made)}", quota, ADMIN).status_code == 200
    yield made
    made.manager.db.close()


def project(api: Api) -> str:
    return str(api.get("/quotas/project")["tenant"]["tenant_id"])


def vlan(port: dict[str, Any], number: int) -> dict[str, Any]:
    return {"port_id": port["id"], "segmentation_type": "vlan", "segmentation_id": number}


def trunk(api: Api, *subports: dict[str, Any], **values: Any) -> dict[str, Any]:
    return api.make("/trunks", "trunk", **{"port_id": api.port()["id"], "sub_ports": list(subports), **values})


def put(api: Api, made: dict[str, Any], action: str, *subports: dict[str, Any]) -> dict[str, Any]:
    response = api("PUT", f"/trunks/{made['id']}/{action}", {"sub_ports": list(subports)})
    assert response.status_code == 200, response.text
    shown: dict[str, Any] = response.json
    return shown


def test_trunk_is_shown_as_in_neutron(api: Api) -> None:
    subport = vlan(api.port(), 7)
    made = trunk(api, subport, name="one", description="text")
    assert made == api.get(f"/trunks/{made['id']}")["trunk"] == api.get("/trunks?name=one")["trunks"][0]
    assert made["sub_ports"] == [subport] and (made["status"], made["admin_state_up"]) == ("DOWN", True)
    assert {"project_id", "tenant_id", "tags", "revision_number", "created_at", "updated_at"} <= made.keys()
    assert api.get(f"/trunks/{made['id']}/get_subports") == {"sub_ports": [subport]}
    shown = api("PUT", f"/trunks/{made['id']}", {"trunk": {"name": "two", "admin_state_up": False}}).json["trunk"]
    assert (shown["name"], shown["admin_state_up"]) == ("two", False)
    assert shown["revision_number"] > made["revision_number"]


def test_ports_show_their_trunk_and_cannot_be_deleted_or_released(api: Api) -> None:
    port = api.port()
    made = trunk(api, vlan(port, 7))
    parent = f"/ports/{made['port_id']}"
    details = {"trunk_id": made["id"], "sub_ports": [vlan(port, 7) | {"mac_address": port["mac_address"]}]}
    assert api.get(parent)["port"]["trunk_details"] == details
    listed = {item["id"]: item for item in api.get("/ports")["ports"]}
    assert listed[made["port_id"]]["trunk_details"] == details and "trunk_details" not in listed[port["id"]]
    shown = listed[port["id"]]
    assert (shown["device_owner"], shown["device_id"]) == ("trunk:subport", made["id"])
    api.refused("DELETE", parent, None, 409, "PortInUseAsTrunkParent", made["id"])
    api.refused("DELETE", f"/ports/{port['id']}", None, 409, "PortInUseAsSubPort", made["id"])
    body = {"port": {"device_id": "", "device_owner": ""}}
    api.refused("PUT", f"/ports/{port['id']}", body, 409, "PortInUse", "still in use")
    body = {"port": {"network_id": api.shared.id, "device_owner": "trunk:subport"}}
    api.refused("POST", "/ports", body, 403, "PolicyNotAuthorized", "")


def test_subports_are_added_and_removed_one_by_one(api: Api) -> None:
    made, one, two = trunk(api), vlan(api.port(), 2), vlan(api.port(), 4094)
    assert put(api, made, "add_subports", two)["sub_ports"] == [two]
    assert put(api, made, "add_subports", one)["sub_ports"] == [one, two]
    assert put(api, made, "remove_subports", two)["sub_ports"] == [one]
    freed = api.get(f"/ports/{two['port_id']}")["port"]
    assert (freed["device_owner"], freed["device_id"]) == ("", "")
    assert api("DELETE", f"/trunks/{made['id']}").status_code == 204
    assert api("DELETE", f"/ports/{one['port_id']}").status_code == 204
    api.refused("GET", f"/trunks/{made['id']}", None, 404, "TrunkNotFound", made["id"])


@pytest.mark.parametrize(
    ("subport", "text"),
    [
        ({"segmentation_type": "vlan"}, "segmentation_id"),
        ({"segmentation_id": 3}, "segmentation_type"),
        ({"segmentation_type": "inherit", "segmentation_id": 3}, "The only type is vlan"),
        ({"segmentation_type": "vlan", "segmentation_id": 0}, "from 1 to 4094"),
        ({"segmentation_type": "vlan", "segmentation_id": 4095}, "from 1 to 4094"),
        ({"segmentation_type": "vlan", "segmentation_id": 3, "port_id": "x"}, "needs a port_id"),
        ({"segmentation_type": "vlan", "segmentation_id": 3, "other": 1}, "other"),
    ],
)
def test_wrong_subport_is_refused(api: Api, subport: dict[str, Any], text: str) -> None:
    body = {"sub_ports": [{"port_id": NOBODY, **subport}]}
    api.refused("PUT", f"/trunks/{NOBODY}/add_subports", body, 400, "HTTPBadRequest", text)


def test_list_of_subports_has_no_port_or_vlan_twice(api: Api) -> None:
    port, path = api.port(), f"/trunks/{NOBODY}/add_subports"
    for body, text in (
        ([vlan(port, 2), vlan(port, 3)], "a port twice"),
        ([vlan(port, 2), vlan(api.port(), 2)], "a segmentation_id twice"),
        (vlan(port, 2), "a list of objects"),
    ):
        api.refused("PUT", path, {"sub_ports": body}, 400, "HTTPBadRequest", text)


def test_ports_that_are_used_are_refused(api: Api) -> None:
    first = api.port()
    made = trunk(api, vlan(first, 2))
    path, add = f"/trunks/{made['id']}", f"/trunks/{made['id']}/add_subports"
    other, parent = trunk(api), {"id": made["port_id"]}
    foreign = api.port(device_id="other-program", device_owner="Octavia")
    for port, kind in ((first, "TrunkPortInUse"), (parent, "ParentPortInUse"), (foreign, "PortInUse")):
        body = {"sub_ports": [vlan(port, 9)]}
        api.refused("PUT", f"/trunks/{other['id']}/add_subports", body, 409, kind, port["id"])
    for port, kind in ((first, "TrunkPortInUse"), (parent, "ParentPortInUse"), (foreign, "ParentPortInUse")):
        api.refused("POST", "/trunks", {"trunk": {"port_id": port["id"]}}, 409, kind, port["id"])
    api.refused("PUT", add, {"sub_ports": [vlan(api.port(), 2)]}, 409, "DuplicateSubPort", "segmentation_id 2")
    api.refused("PUT", add, {"sub_ports": [vlan({"id": NOBODY}, 3)]}, 404, "PortNotFound", NOBODY)
    gone = {"sub_ports": [{"port_id": other["port_id"]}]}
    api.refused("PUT", f"{path}/remove_subports", gone, 404, "SubPortNotFound", other["port_id"])
    bare = api.port(fixed_ips=[])
    api.refused("PUT", add, {"sub_ports": [vlan(bare, 3)]}, 400, "PortRequiresFixedIP", bare["id"])
    assert len(api.get(path)["trunk"]["sub_ports"]) == 1


def test_disabled_trunk_keeps_its_subports(api: Api) -> None:
    made = trunk(api, admin_state_up=False)
    path = f"/trunks/{made['id']}"
    for method, rest, body in (
        ("PUT", "/add_subports", {"sub_ports": [vlan(api.port(), 2)]}),
        ("PUT", "/remove_subports", {"sub_ports": [{"port_id": NOBODY}]}),
        ("DELETE", "", None),
    ):
        api.refused(method, path + rest, body, 409, "TrunkDisabled", made["id"])


def test_subport_has_no_larger_mtu_than_its_parent(api: Api) -> None:
    network = api.make("/networks", "network", name="small", mtu=1300)
    api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr="10.64.1.0/24")
    small, large = api.port(network_id=network["id"]), api.port()
    kind = "SubPortMtuGreaterThanTrunkPortMtu"
    body = {"trunk": {"port_id": small["id"], "sub_ports": [vlan(large, 2)]}}
    api.refused("POST", "/trunks", body, 409, kind, "MTU 1500")
    assert api.get("/trunks")["trunks"] == []
    assert trunk(api, vlan(small, 2), port_id=large["id"])["sub_ports"] == [vlan(small, 2)]


def test_other_projects_see_and_use_no_trunk_or_port(api: Api) -> None:
    made, port = trunk(api), api.port()
    path = f"/trunks/{made['id']}"
    for method, rest, body in (
        ("GET", "", None),
        ("PUT", "", {"trunk": {"name": "x"}}),
        ("DELETE", "", None),
        ("GET", "/get_subports", None),
        ("GET", "/tags", None),
        ("PUT", "/add_subports", {"sub_ports": [vlan(port, 2)]}),
        ("PUT", "/remove_subports", {"sub_ports": [{"port_id": port["id"]}]}),
    ):
        api.refused(method, path + rest, body, 404, "TrunkNotFound", made["id"], STRANGER)
    assert api.get("/trunks", STRANGER)["trunks"] == []
    body = {"trunk": {"port_id": port["id"]}}
    api.refused("POST", "/trunks", body, 404, "PortNotFound", port["id"], STRANGER)
    own = api.make(
        "/trunks", "trunk", STRANGER, port_id=api.make("/ports", "port", STRANGER, network_id=api.shared.id)["id"]
    )
    body = {"sub_ports": [vlan(port, 2)]}
    path = f"/trunks/{own['id']}/add_subports"
    api.refused("PUT", path, body, 404, "PortNotFound", port["id"], STRANGER)
    assert api("PUT", path, body, ADMIN).json["sub_ports"] == body["sub_ports"]


def test_quota_and_tags_of_trunks(api: Api) -> None:
    made, quotas = trunk(api), f"/quotas/{project(api)}"
    assert api.get(quotas, ADMIN)["quota"]["trunk"] == 100
    assert api("PUT", quotas, {"quota": {"trunk": 1}}, ADMIN).status_code == 200
    assert api.get(f"{quotas}/details.json", ADMIN)["quota"]["trunk"]["used"] == 1
    api.refused("POST", "/trunks", {"trunk": {"port_id": api.port()["id"]}}, 409, "OverQuota", "trunk")
    assert api("PUT", f"/trunks/{made['id']}/tags/red").status_code == 201
    assert api.get("/trunks?tags=red")["trunks"][0]["tags"] == ["red"]
    assert api("DELETE", f"/trunks/{made['id']}/tags/red").status_code == 204
    assert api.get("/trunks?tags=red")["trunks"] == []


def test_list_of_trunks_comes_in_pages(api: Api) -> None:
    ids = sorted(trunk(api)["id"] for _ in range(3))
    first = api.get("/trunks?limit=2")
    assert [item["id"] for item in first["trunks"]] == ids[:2] and first["trunks_links"][0]["rel"] == "next"
    assert [item["id"] for item in api.get(f"/trunks?limit=2&marker={ids[1]}")["trunks"]] == ids[2:]


def test_change_of_a_former_revision_is_refused(api: Api) -> None:
    made = trunk(api)
    header = {"If_Match": f"revision_number={made['revision_number'] + 5}"}
    assert api("PUT", f"/trunks/{made['id']}", {"trunk": {"name": "x"}}, **header).status_code == 412


def test_cloud_without_the_wing_has_no_trunks(tmp_path: Path) -> None:
    api = Api(tmp_path)
    assert not {item["alias"] for item in api.get("/extensions")["extensions"]} & {"trunk", "trunk-details"}
    api.refused("GET", "/trunks", None, 404, "NotFound", "has no trunks")
    api.refused("POST", "/trunks", {"trunk": {"port_id": api.port()["id"]}}, 404, "NotFound", "has no trunks")
    api.manager.db.close()


def test_cloud_with_the_wing_names_the_extensions(api: Api) -> None:
    assert {"trunk", "trunk-details"} <= {item["alias"] for item in api.get("/extensions")["extensions"]}


def host(api: Api, name: str) -> HostTrunks:
    bus = rpc.InProcess(api.manager.conf)
    bus.serve(api.manager.endpoint)
    driver = ComputeDriver(api.manager.conf, name, lambda image, path: None)
    return HostTrunks(WING, api.manager.conf, name, driver, rpc.proxy(ConductorRPC, bus))


def report(wing: HostTrunks) -> None:
    """Let a host report until it has nothing more to say."""
    wing.woken.set()
    while wing.woken.is_set():
        wing.tick(0)


def test_status_follows_the_server_and_its_host(api: Api) -> None:
    made = trunk(api, vlan(api.port(), 2))
    port, path = f"/ports/{made['sub_ports'][0]['port_id']}", f"/trunks/{made['id']}"
    running = {"project_id": project(api), "power_state": PowerState.RUNNING}
    server = api.manager.db.write(make.instance, host="h1", **running)
    bound = sa.update(Port).where(Port.id == made["port_id"]).values(instance_uuid=server)
    api.manager.db.write(lambda uow: uow.change(bound))
    assert (api.get(path)["trunk"]["status"], api.get(port)["port"]["status"]) == ("BUILD", "DOWN")
    wing = host(api, "h1")
    report(wing)
    shown = api.get(port, ADMIN)["port"]
    assert api.get(path)["trunk"]["status"] == "ACTIVE"
    assert (shown["status"], shown["binding:host_id"]) == ("ACTIVE", "h1")
    body = {"port": {"fixed_ips": [{"ip_address": "10.0.0.99"}]}}
    api.refused("PUT", port, body, 409, "PortInUse", shown["id"], ADMIN)
    gone = sa.update(Port).where(Port.id == made["port_id"]).values(instance_uuid=None)
    api.manager.db.write(lambda uow: uow.change(gone))
    report(wing)
    shown = api.get(port, ADMIN)["port"]
    assert (shown["status"], shown["binding:host_id"]) == ("DOWN", "")
    assert api.get(path)["trunk"]["status"] == "DOWN"
