"""Ports with security groups of another project, which an admin gives them, as Octavia does."""

from __future__ import annotations

from typing import Any

from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.network.driver import load_backend
from nova_lite.objects import NetworkRequest, PortFilters
from tests.support import make
from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

OTHER = "admin:service"


def group(api: Api) -> dict[str, Any]:
    made = api.make("/security-groups", "security_group", OTHER, name="lb")
    rule = {"security_group_id": made["id"], "direction": "ingress", "protocol": "tcp"}
    api.make("/security-group-rules", "security_group_rule", OTHER, **rule, port_range_min=80, port_range_max=80)
    return made


def test_group_of_another_project_is_an_admins_choice(api: Api) -> None:
    group_id, port = group(api)["id"], api.port(device_id="lb-1")
    own = port["security_groups"]
    change = {"port": {"security_groups": [*own, group_id]}}
    api.refused("PUT", f"/ports/{port['id']}", change, 404, "SecurityGroupNotFound", group_id)
    api.refused("PUT", f"/ports/{port['id']}", change, 404, "SecurityGroupNotFound", group_id, "bob:demo")
    changed = api("PUT", f"/ports/{port['id']}", change, ADMIN)
    assert changed.json["port"]["security_groups"] == [*own, group_id], changed.text
    assert api.get(f"/ports?security_groups={group_id}", ADMIN)["ports"][0]["id"] == port["id"]
    api.refused("DELETE", f"/security-groups/{group_id}", None, 409, "SecurityGroupInUse", port["id"], OTHER)
    assert api("PUT", f"/ports/{port['id']}", {"port": {"security_groups": own}}).status_code == 200
    assert api("DELETE", f"/security-groups/{group_id}", token=OTHER).status_code == 204


def test_host_learns_of_a_group_of_another_project(api: Api) -> None:
    group_id, db = group(api)["id"], api.manager.db
    port = api.make("/ports", "port", ADMIN, network_id=api.shared.id, security_groups=[group_id])
    server = db.write(make.instance, project_id="demo", host="h1")
    request = NetworkRequest(port_id=port["id"])
    backend, context = load_backend(api.manager.conf), make.context("demo")
    db.write(lambda uow: backend.attach(builtin_networks.Store(uow), context, server, request))
    told: PortFilters = db.read(security_groups.filters, "h1", [server])
    assert told.ports[port["id"]] == [group_id]
    assert [rule.port_range_min for rule in told.groups[group_id].rules if rule.direction == "ingress"] == [80]
