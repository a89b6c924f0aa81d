"""Ports with security groups of another project, which an admin gives them, as Octavia does."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.network.driver import load_backend
from nova_lite.objects import NetworkRequest, PortFilters, SecurityGroupRule
from tests.support import make, published
from tests.support.api_client import ADMIN, STRANGER
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


def share(api: Api, group_id: str, **values: str) -> dict[str, Any]:
    wanted = {"object_type": "security_group", "object_id": group_id, "action": "access_as_shared", **values}
    return api.make("/rbac-policies", "rbac_policy", OTHER, **{"target_tenant": "demo", **wanted})


def test_shared_group_is_for_ports_of_the_other_project(api: Api) -> None:
    group_id = group(api)["id"]
    path, missing = f"/security-groups/{group_id}", (404, "SecurityGroupNotFound", group_id)
    assert api.get(path, OTHER)["security_group"]["shared"] is False
    api.refused("GET", path, None, *missing)
    policy = share(api, group_id)
    assert api.get(path)["security_group"]["shared"] is True
    assert [item["id"] for item in api.get("/security-groups?shared=true")["security_groups"]] == [group_id]
    assert len(api.get(f"/security-group-rules?security_group_id={group_id}")["security_group_rules"]) == 3
    port = api.port(security_groups=[group_id])
    assert port["security_groups"] == [group_id]
    api.refused("PUT", path, {"security_group": {"name": "mine"}}, *missing)
    api.refused("DELETE", path, None, *missing)
    rule = {"security_group_id": group_id, "direction": "ingress"}
    api.refused("POST", "/security-group-rules", {"security_group_rule": rule}, *missing)
    api.refused("GET", path, None, *missing, STRANGER)
    in_use = (409, "RbacPolicyInUse", group_id)
    api.refused("DELETE", f"/rbac-policies/{policy['id']}", None, *in_use, OTHER)
    assert api("DELETE", f"/ports/{port['id']}").status_code == 204
    assert api("DELETE", f"/rbac-policies/{policy['id']}", token=OTHER).status_code == 204
    wanted = {"port": {"network_id": api.shared.id, "security_groups": [group_id]}}
    api.refused("POST", "/ports", wanted, *missing)
    share(api, group_id)
    assert api("DELETE", path, token=OTHER).status_code == 204
    assert api.get("/rbac-policies", OTHER)["rbac_policies"] == [], "the policies of a group go with it"


def test_default_group_is_not_shared(api: Api) -> None:
    (default,) = api.get("/security-groups?name=default&project_id=service", OTHER)["security_groups"]
    rule = {"security_group_id": default["id"], "direction": "ingress"}
    api.make("/security-group-rules", "security_group_rule", OTHER, **rule)
    wanted = {"object_type": "security_group", "object_id": default["id"], "action": "access_as_shared"}
    body = {"rbac_policy": {**wanted, "target_tenant": "demo"}}
    api.refused("POST", "/rbac-policies", body, 400, "InvalidInput", "default security group", OTHER)


@pytest.mark.parametrize("target", ["demo", "*"])
def test_change_of_a_shared_group_reaches_its_users(api: Api, target: str) -> None:
    group_id, db = group(api)["id"], api.manager.db
    share(api, group_id, target_tenant=target)
    api.port(security_groups=[group_id])
    added = SecurityGroupRule(id="", security_group_id=group_id, direction="ingress", ethertype="IPv4")

    def add(uow: UnitOfWork) -> set[str]:
        security_groups.add_rule(uow, api.manager.conf, make.context("service"), added)
        return published.projects(uow)

    assert db.write(add) == {"service", "demo"}


def test_rules_of_a_group_of_another_project_count_its_members(api: Api) -> None:
    group_id, db = group(api)["id"], api.manager.db
    within = {"security_group_id": group_id, "direction": "ingress", "remote_group_id": group_id}
    api.make("/security-group-rules", "security_group_rule", OTHER, **within)
    share(api, group_id)
    port = api.port(security_groups=[group_id])
    guest = db.write(make.instance, project_id="demo", host="h1")
    member = db.write(make.instance, project_id="service", host="h2", security_groups=["lb"])
    backend, context = load_backend(api.manager.conf), make.context("demo")
    request = NetworkRequest(port_id=port["id"])
    db.write(lambda uow: backend.attach(builtin_networks.Store(uow), context, guest, request))
    other = make.context("service")
    request = NetworkRequest(network_id=api.shared.id)
    vif = db.write(lambda uow: backend.attach(builtin_networks.Store(uow), other, member, request))
    told: PortFilters = db.read(security_groups.filters, "h1", [guest])
    (members,) = (told.groups[group_id].members_by_network or {}).values()
    assert members.members == [vif.address]


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
