"""QoS policies, their rules, and their users."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core.models import Network
from nova_lite.db.network import qos
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-0000-0000-000000000001"
BANDWIDTH, MARK = "bandwidth_limit_rule", "dscp_marking_rule"


def policy(api: Api, **values: Any) -> dict[str, Any]:
    return api.make("/qos/policies", "policy", ADMIN, **{"name": "slow", "project_id": "demo", **values})


def add(api: Api, policy_id: str, key: str = BANDWIDTH, **values: Any) -> dict[str, Any]:
    return api.make(f"/qos/policies/{policy_id}/{key}s", key, ADMIN, **values)


def test_policy_has_rules_of_each_type(api: Api) -> None:
    made = policy(api, description="text")
    assert made == {
        "id": made["id"],
        "name": "slow",
        "description": "text",
        "project_id": "demo",
        "tenant_id": "demo",
        "shared": False,
        "is_default": False,
        "rules": [],
        "tags": [],
        "revision_number": 1,
        "created_at": made["created_at"],
        "updated_at": made["created_at"],
    }
    url = f"/qos/policies/{made['id']}"
    out = add(api, made["id"], max_kbps=1000)
    assert out == {"id": out["id"], "max_kbps": 1000, "max_burst_kbps": 0, "direction": "egress"}
    into = add(api, made["id"], max_kbps="2000", max_burst_kbps=300, direction="ingress")
    mark = add(api, made["id"], MARK, dscp_mark=26)
    assert mark == {"id": mark["id"], "dscp_mark": 26}
    shown = api.get(url)["policy"]
    assert shown["rules"] == [
        {**out, "type": "bandwidth_limit", "qos_policy_id": made["id"]},
        {**into, "max_kbps": 2000, "type": "bandwidth_limit", "qos_policy_id": made["id"]},
        {**mark, "type": "dscp_marking", "qos_policy_id": made["id"]},
    ]
    assert api.get("/qos/policies?name=slow") == {"policies": [shown]}
    assert api.get(f"{url}/{BANDWIDTH}s?direction=ingress") == {f"{BANDWIDTH}s": [into]}
    assert api.get(f"{url}/{MARK}s/{mark['id']}") == {MARK: mark}


def test_rule_is_changed_and_deleted(api: Api) -> None:
    made = policy(api)
    url, out = f"/qos/policies/{made['id']}/{BANDWIDTH}s", add(api, made["id"], max_kbps=1000, max_burst_kbps=5)
    changed = api("PUT", f"{url}/{out['id']}", {BANDWIDTH: {"max_kbps": 7}}, ADMIN).json
    assert changed == {BANDWIDTH: {**out, "max_kbps": 7}}
    into = add(api, made["id"], max_kbps=1000, direction="ingress")
    again = {BANDWIDTH: {"direction": "egress"}}
    api.refused("PUT", f"{url}/{into['id']}", again, 409, "QoSRulesConflict", out["id"], ADMIN)
    assert api("DELETE", f"{url}/{out['id']}", token=ADMIN).status_code == 204
    assert api.get(url) == {f"{BANDWIDTH}s": [into]}
    for method, body in (("PUT", again), ("DELETE", None), ("GET", None)):
        api.refused(method, f"{url}/{out['id']}", body, 404, "QosRuleNotFound", out["id"], ADMIN)
    elsewhere = f"/qos/policies/{made['id']}/{MARK}s/{into['id']}"
    api.refused("GET", elsewhere, None, 404, "QosRuleNotFound", into["id"], ADMIN)


@pytest.mark.parametrize(
    ("key", "values", "text"),
    [
        (BANDWIDTH, {}, "max_kbps"),
        (BANDWIDTH, {"max_kbps": 0}, "It must be a number from 1"),
        (BANDWIDTH, {"max_kbps": 1, "max_burst_kbps": -1}, "max_burst_kbps"),
        (BANDWIDTH, {"max_kbps": 1, "direction": "any"}, "It must be one of egress, ingress"),
        (BANDWIDTH, {"max_kbps": 1, "dscp_mark": 8}, "Unrecognized attribute(s) 'dscp_mark'"),
        (MARK, {}, "dscp_mark"),
        (MARK, {"dscp_mark": 9}, "It must be one of 0, 8, 10"),
        (MARK, {"dscp_mark": True}, "It must be one of 0, 8, 10"),
    ],
)
def test_invalid_rule_is_refused(api: Api, key: str, values: dict[str, Any], text: str) -> None:
    url = f"/qos/policies/{policy(api)['id']}/{key}s"
    api.refused("POST", url, {key: values}, 400, "HTTPBadRequest", text, ADMIN)


def test_policy_has_one_rule_of_a_type_and_direction(api: Api) -> None:
    made = policy(api)["id"]
    first = add(api, made, max_kbps=1)
    body = {BANDWIDTH: {"max_kbps": 2}}
    api.refused("POST", f"/qos/policies/{made}/{BANDWIDTH}s", body, 409, "QoSRulesConflict", first["id"], ADMIN)


def test_policy_of_a_member_is_refused(api: Api) -> None:
    made = policy(api)
    url = f"/qos/policies/{made['id']}"
    for method, path, body in (
        ("POST", "/qos/policies", {"policy": {"name": "mine"}}),
        ("PUT", url, {"policy": {"name": "mine"}}),
        ("DELETE", url, None),
        ("POST", f"{url}/{BANDWIDTH}s", {BANDWIDTH: {"max_kbps": 1}}),
    ):
        assert api(method, path, body).status_code == 403, method
    assert api.get(url)["policy"] == made
    api.refused("GET", url, None, 404, "QosPolicyNotFound", made["id"], STRANGER)


def test_shared_policy_is_used_by_other_projects(api: Api) -> None:
    made = policy(api, shared=True, project_id="admin")
    url = f"/qos/policies/{made['id']}"
    assert api.get(url, STRANGER)["policy"]["shared"] is True
    port = api.port(qos_policy_id=made["id"])
    assert (port["qos_policy_id"], port["qos_network_policy_id"]) == (made["id"], None)
    body = {"policy": {"shared": False}}
    api.refused("PUT", url, body, 409, "RbacPolicyInUse", made["id"], ADMIN)
    assert api("PUT", f"/ports/{port['id']}", {"port": {"qos_policy_id": None}}).json["port"]["qos_policy_id"] is None
    assert api("PUT", url, body, ADMIN).json["policy"]["shared"] is False
    api.refused("GET", url, None, 404, "QosPolicyNotFound", made["id"])
    values = {"object_type": "qos_policy", "object_id": made["id"], "action": "access_as_shared"}
    api.make("/rbac-policies", "rbac_policy", ADMIN, **values, target_tenant="demo")
    assert api.get(url)["policy"]["shared"] is True
    api.refused("GET", url, None, 404, "QosPolicyNotFound", made["id"], STRANGER)


@pytest.mark.parametrize("kind", ["port", "network", "floatingip"])
def test_policy_in_use_is_not_deleted(api: Api, kind: str) -> None:
    made = policy(api)["id"]
    needs = {"port": {"network_id": api.shared.id}, "floatingip": {"floating_network_id": api.pool.id}}
    user = api.make(f"/{kind}s", kind, **needs.get(kind, {}), qos_policy_id=made)
    url = f"/{kind}s/{user['id']}"
    assert api.get(f"/{kind}s?qos_policy_id={made}")[f"{kind}s"] == [user]
    api.refused("DELETE", f"/qos/policies/{made}", None, 409, "QosPolicyInUse", user["id"], ADMIN)
    body = {kind: {"qos_policy_id": NOBODY}}
    api.refused("PUT", url, body, 404, "QosPolicyNotFound", NOBODY)
    assert api("PUT", url, {kind: {"description": "same", "qos_policy_id": made}}).status_code == 200
    assert api("PUT", url, {kind: {"qos_policy_id": None}}).json[kind]["qos_policy_id"] is None
    assert api("DELETE", f"/qos/policies/{made}", token=ADMIN).status_code == 204


def test_policy_of_an_admin_is_not_removed_by_a_member(api: Api) -> None:
    made, port = policy(api, project_id="admin")["id"], api.port()
    url = f"/ports/{port['id']}"
    api.refused("PUT", url, {"port": {"qos_policy_id": made}}, 404, "QosPolicyNotFound", made)
    assert api("PUT", url, {"port": {"qos_policy_id": made}}, ADMIN).status_code == 200
    removal = {"port": {"qos_policy_id": None}}
    api.refused("PUT", url, removal, 403, "PolicyRemoveAuthorizationError", made)
    assert api("PUT", url, {"port": {"name": "x", "qos_policy_id": made}}).status_code == 200
    assert api("PUT", url, removal, ADMIN).status_code == 200


def test_new_network_has_the_default_policy_of_its_project(api: Api) -> None:
    made, other = policy(api, is_default=True), policy(api, name="other")
    again = {"policy": {"name": "two", "is_default": True, "project_id": "demo"}}
    api.refused("POST", "/qos/policies", again, 409, "QosPolicyDefaultAlreadyExists", "demo", ADMIN)
    body = {"policy": {"is_default": True}}
    url = f"/qos/policies/{other['id']}"
    api.refused("PUT", url, body, 409, "QosPolicyDefaultAlreadyExists", "demo", ADMIN)
    network = api.make("/networks", "network", name="one")
    assert network["qos_policy_id"] == made["id"]
    api.make("/subnets", "subnet", network_id=network["id"], ip_version=4, cidr="10.64.1.0/24")
    port = api.port(network_id=network["id"])
    assert (port["qos_policy_id"], port["qos_network_policy_id"]) == (None, made["id"])
    assert api.make("/networks", "network", name="two", qos_policy_id=other["id"])["qos_policy_id"] == other["id"]
    assert api("PUT", f"/qos/policies/{made['id']}", {"policy": {"is_default": False}}, ADMIN).status_code == 200
    assert api("PUT", url, body, ADMIN).json["policy"]["is_default"] is True
    assert api.make("/networks", "network", name="three")["qos_policy_id"] == other["id"]


def test_segments_of_a_network_have_its_policy(api: Api) -> None:
    made, network = policy(api)["id"], api.make("/networks", "network", name="one")["id"]
    for number in (1, 2):
        api.make("/subnets", "subnet", network_id=network, ip_version=4, cidr=f"10.64.{number}.0/24")
    assert api("PUT", f"/networks/{network}", {"network": {"qos_policy_id": made}}).status_code == 200
    query = sa.select(Network.qos_policy_id).where(sa.or_(Network.id == network, Network.parent_id == network))
    assert api.manager.db.read(lambda uow: list(uow.session.scalars(query))) == [made, made]
    second = api.port(network_id=network, fixed_ips=[{"ip_address": "10.64.2.9"}])
    assert second["qos_network_policy_id"] == made


def test_traffic_that_bypasses_hosts_has_no_policy(api: Api) -> None:
    made = policy(api, project_id="admin", is_default=True)["id"]
    provider = {"provider:network_type": "flat", "provider:physical_network": "physnet"}
    network = api.make("/networks", "network", ADMIN, project_id="admin", **provider)
    assert network["qos_policy_id"] is None
    body = {"network": {"qos_policy_id": made}}
    url = f"/networks/{network['id']}"
    api.refused("PUT", url, body, 400, "InvalidInput", "bypass their hosts", ADMIN)
    new = {"network": {**provider, "provider:physical_network": "other", "qos_policy_id": made}}
    api.refused("POST", "/networks", new, 400, "InvalidInput", "bypass their hosts", ADMIN)
    values = {"network_id": network["id"], "binding:vnic_type": "direct", "fixed_ips": []}
    port = {"port": {**values, "qos_policy_id": made}}
    api.refused("POST", "/ports", port, 400, "InvalidInput", "cannot enforce a QoS policy", ADMIN)
    external = {"network": {"name": "out", "router:external": True, "qos_policy_id": made}}
    api.refused("POST", "/networks", external, 400, "HTTPBadRequest", "no ports here", ADMIN)


def test_types_of_rules_are_those_that_hosts_enforce(api: Api) -> None:
    types = [{"type": "bandwidth_limit"}, {"type": "dscp_marking"}]
    assert api.get("/qos/rule-types?all_supported_rules=true") == {"rule_types": types}
    assert api.get("/qos/rule-types?type=dscp_marking") == {"rule_types": types[1:]}
    shown = api.get("/qos/rule-types/bandwidth_limit")["rule_type"]
    (driver,) = shown["drivers"]
    assert shown["type"] == "bandwidth_limit"
    names = [item["parameter_name"] for item in driver["supported_parameters"]]
    assert names == ["max_kbps", "max_burst_kbps", "direction"]
    api.refused("GET", "/qos/rule-types/minimum_bandwidth", None, 404, "NotFound", "minimum_bandwidth")


def test_policy_has_tags(api: Api) -> None:
    made = policy(api, tags=["red"])
    url = f"/policies/{made['id']}/tags"
    assert made["tags"] == ["red"]
    assert api("PUT", f"{url}/blue").status_code == 201
    assert api.get(url) == api.get(f"/qos{url}") == {"tags": ["blue", "red"]}
    assert api("PUT", f"/qos{url}", {"tags": ["blue"]}).json == {"tags": ["blue"]}
    api.refused("PUT", f"{url}/blue", None, 404, "QosPolicyNotFound", made["id"], STRANGER)
    shown = api.get("/qos/policies?tags=blue")["policies"]
    assert [(item["id"], item["revision_number"] > 1) for item in shown] == [(made["id"], True)]


def test_project_has_a_bounded_number_of_policies(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qos, "MAX_POLICIES", 1)
    policy(api)
    body = {"policy": {"name": "two", "project_id": "demo"}}
    api.refused("POST", "/qos/policies", body, 409, "OverQuota", "qos_policy", ADMIN)
    assert api.get("/qos/policies", MEMBER)["policies"][0]["name"] == "slow"
