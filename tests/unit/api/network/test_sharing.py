"""Address groups, and RBAC policies that share resources with other projects."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.db.network import address_groups, address_scopes, security_groups
from tests.support.api_client import ADMIN, MEMBER, STRANGER
from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-0000-0000-000000000001"
THEIRS = STRANGER.partition(":")[2]


def policy(api: Api, kind: str, object_id: str, target: str = THEIRS, **rest: Any) -> dict[str, Any]:
    values = {"object_type": kind, "object_id": object_id, "action": "access_as_shared", "target_tenant": target}
    return api.make("/rbac-policies", "rbac_policy", **values, **rest)


def test_address_group_has_prefixes(api: Api) -> None:
    made = api.make(
        "/address-groups", "address_group", name="one", description="text", addresses=["10.0.0.5", "10.1.0.9/16"]
    )
    assert made == {
        "id": made["id"],
        "name": "one",
        "description": "text",
        "project_id": "demo",
        "tenant_id": "demo",
        "addresses": ["10.0.0.5/32", "10.1.0.0/16"],
        "shared": False,
        "revision_number": 1,
        "created_at": made["created_at"],
        "updated_at": made["created_at"],
    }
    url = f"/address-groups/{made['id']}"
    added = api("PUT", f"{url}/add_addresses", {"addresses": ["2001:db8::/64"]}).json["address_group"]
    assert added["addresses"] == ["10.0.0.5/32", "10.1.0.0/16", "2001:db8::/64"]
    again = {"addresses": ["10.0.0.5/32"]}
    api.refused("PUT", f"{url}/add_addresses", again, 400, "AddressesAlreadyExist", "10.0.0.5/32")
    removed = api("PUT", f"{url}/remove_addresses", again).json["address_group"]
    assert removed["addresses"] == ["10.1.0.0/16", "2001:db8::/64"]
    api.refused("PUT", f"{url}/remove_addresses", again, 404, "AddressesNotFound", "10.0.0.5/32")
    api.refused("PUT", f"{url}/add_addresses", {"addresses": ["x"]}, 400, "HTTPBadRequest", "not a valid IP subnet")
    renamed = api("PUT", url, {"address_group": {"name": "two"}}).json["address_group"]
    assert (renamed["name"], renamed["description"]) == ("two", "text")
    api.refused("GET", url, None, 404, "AddressGroupNotFound", made["id"], STRANGER)
    assert api.get("/address-groups?name=two") == {"address_groups": [renamed]}
    assert api("DELETE", url).status_code == 204
    api.refused("GET", url, None, 404, "AddressGroupNotFound", made["id"])


def test_rule_of_an_address_group_reaches_hosts_as_rules_of_its_prefixes(api: Api) -> None:
    values = {"addresses": ["10.0.0.5", "2001:db8::1", "10.1.0.0/16"]}
    made = api.make("/address-groups", "address_group", **values)
    group = api.make("/security-groups", "security_group", name="web")
    body = {"security_group_id": group["id"], "direction": "ingress", "protocol": "tcp"}
    rule = api.make("/security-group-rules", "security_group_rule", **body, remote_address_group_id=made["id"])
    assert (rule["remote_address_group_id"], rule["remote_ip_prefix"]) == (made["id"], None)
    assert rule["id"] in {
        item["id"] for item in api.get(f"/security-groups/{group['id']}")["security_group"]["security_group_rules"]
    }
    again = {"security_group_rule": body | {"remote_address_group_id": made["id"]}}
    api.refused("POST", "/security-group-rules", again, 409, "SecurityGroupRuleExists", "")
    two = {"security_group_rule": again["security_group_rule"] | {"remote_ip_prefix": "10.0.0.0/8"}}
    api.refused("POST", "/security-group-rules", two, 400, "SecurityGroupMultipleRemoteEntites", "Only one of")
    foreign = {"security_group_rule": body | {"remote_address_group_id": NOBODY}}
    api.refused("POST", "/security-group-rules", foreign, 404, "AddressGroupNotFound", NOBODY)

    def prefixes() -> list[str | None]:
        def read(uow: Any) -> list[str | None]:
            server = security_groups._Server("server", "demo", ["web"], True)
            (found,) = [item for item in security_groups._concerned(uow, [server], {}) if item.name == "web"]
            assert all(item.remote_address_group_id is None for item in found.rules)
            return [item.remote_ip_prefix for item in found.rules if item.direction == "ingress"]

        return api.manager.db.read(read)

    assert prefixes() == ["10.0.0.5/32", "10.1.0.0/16"]
    url = f"/address-groups/{made['id']}"
    assert api("PUT", f"{url}/remove_addresses", {"addresses": ["10.1.0.0/16"]}).status_code == 200
    assert prefixes() == ["10.0.0.5/32"]
    api.refused("DELETE", url, None, 409, "AddressGroupInUse", made["id"])
    assert api("DELETE", f"/security-group-rules/{rule['id']}").status_code == 204
    assert api("DELETE", url).status_code == 204


def policy_view(policy_id: str, network: str, target: str) -> dict[str, Any]:
    return {
        "id": policy_id,
        "project_id": "demo",
        "tenant_id": "demo",
        "object_type": "network",
        "object_id": network,
        "action": "access_as_shared",
        "target_tenant": target,
    }


def test_network_is_shared_with_a_project(api: Api) -> None:
    network = api.make("/networks", "network", name="mine")["id"]
    api.make("/subnets", "subnet", network_id=network, ip_version=4, cidr="10.64.1.0/24")
    body = {"port": {"network_id": network}}
    api.refused("POST", "/ports", body, 404, "NetworkNotFound", network, STRANGER)
    made = policy(api, "network", network)
    assert made == policy_view(made["id"], network, THEIRS)
    assert api.get(f"/rbac-policies/{made['id']}") == {"rbac_policy": made}
    assert api.get("/rbac-policies", STRANGER) == {"rbac_policies": []}
    seen = api.get(f"/networks/{network}", STRANGER)["network"]
    assert (seen["shared"], seen["project_id"]) == (True, "demo")
    assert api.get(f"/networks/{network}")["network"]["shared"] is False
    assert [_subnets(api, network, STRANGER, value) for value in ("", "True", "false")] == [1, 1, 0]
    assert [_subnets(api, network, MEMBER, value) for value in ("", "true", "False")] == [1, 0, 1]
    port = api.make("/ports", "port", STRANGER, network_id=network)
    for method, url, wanted in (
        ("PUT", f"/networks/{network}", {"network": {"name": "x"}}),
        ("DELETE", f"/networks/{network}", None),
        ("DELETE", f"/subnets/{api.subnet_of(network)}", None),
    ):
        api.refused(method, url, wanted, 403, "Forbidden", "another project", STRANGER)
    api.refused("DELETE", f"/rbac-policies/{made['id']}", None, 409, "RbacPolicyInUse", network)
    assert api("DELETE", f"/ports/{port['id']}", token=STRANGER).status_code == 204
    assert api("DELETE", f"/rbac-policies/{made['id']}").status_code == 204
    api.refused("GET", f"/networks/{network}", None, 404, "NetworkNotFound", network, STRANGER)


def _subnets(api: Api, network_id: str, token: str, shared: str) -> int:
    """Return the number of subnets of a network in a list with this filter. They do not show what it compares."""
    query = f"/subnets?network_id={network_id}" + (f"&shared={shared}&fields=id&fields=shared" if shared else "")
    found = api.get(query, token)["subnets"]
    assert all("shared" not in item for item in found)
    return len(found)


def test_network_is_shared_with_everybody_by_an_admin(api: Api) -> None:
    network = api.make("/networks", "network", name="mine")["id"]
    body = {"network": {"shared": True}}
    api.refused("PUT", f"/networks/{network}", body, 403, "PolicyNotAuthorized", "update_network:shared")
    assert api("PUT", f"/networks/{network}", body, ADMIN).json["network"]["shared"] is True
    assert api.get(f"/networks/{network}", STRANGER)["network"]["shared"] is True
    (made,) = api.get("/rbac-policies?object_type=network")["rbac_policies"]
    assert (made["target_tenant"], made["project_id"], made["object_id"]) == ("*", "demo", network)
    values = {"object_type": "network", "object_id": network, "action": "access_as_shared", "target_tenant": "*"}
    everybody = {"rbac_policy": values}
    api.refused("POST", "/rbac-policies", everybody, 403, "PolicyNotAuthorized", "create_rbac_policy:target_tenant")
    api.refused("POST", "/rbac-policies", everybody, 409, "DuplicateRbacPolicy", network, ADMIN)
    assert api("DELETE", f"/networks/{network}").status_code == 204
    assert api.get("/rbac-policies", ADMIN) == {"rbac_policies": []}


def test_network_that_is_created_for_all_projects_has_a_policy(api: Api) -> None:
    network, other = (api.make("/networks", "network", ADMIN, shared=True, name=name)["id"] for name in "ab")
    api.make("/subnets", "subnet", ADMIN, network_id=network, ip_version=4, cidr="10.64.4.0/24")
    (shown,) = api.get(f"/rbac-policies?object_id={network}", ADMIN)["rbac_policies"]
    assert (
        shown == policy_view(shown["id"], network, "*") and api.get("/rbac-policies", STRANGER)["rbac_policies"] == []
    )
    again = {"rbac_policy": {name: shown[name] for name in ("object_type", "object_id", "action", "target_tenant")}}
    api.refused("POST", "/rbac-policies", again, 409, "DuplicateRbacPolicy", network, ADMIN)
    path = f"/rbac-policies/{shown['id']}"
    mine, theirs = api.port(network_id=network), api.make("/ports", "port", STRANGER, network_id=network)
    api.refused("DELETE", path, None, 409, "RbacPolicyInUse", network, ADMIN)
    assert api("DELETE", f"/ports/{theirs['id']}", token=STRANGER).status_code == 204
    assert api("DELETE", path, token=ADMIN).status_code == 204
    kept = api.get(f"/networks/{network}")["network"]
    assert (kept["shared"], kept["project_id"], mine["project_id"]) == (False, "demo", "demo")
    api.refused("GET", f"/networks/{network}", None, 404, "NetworkNotFound", network, STRANGER)
    (second,) = api.get(f"/rbac-policies?object_id={other}", ADMIN)["rbac_policies"]
    only = {"rbac_policy": {"target_tenant": THEIRS}}
    assert api("PUT", f"/rbac-policies/{second['id']}", only, ADMIN).status_code == 200
    assert api.get(f"/networks/{other}")["network"]["project_id"] == "demo"
    assert api.get(f"/networks/{other}", STRANGER)["network"]["shared"] is True
    assert api("DELETE", f"/networks/{other}").status_code == 204
    assert api.get("/rbac-policies", ADMIN) == {"rbac_policies": []}


def test_shared_network_is_kept_to_its_project_again(api: Api) -> None:
    own, of_all = api.make("/networks", "network")["id"], api.make("/networks", "network", ADMIN, shared=True)["id"]
    assert api("PUT", f"/networks/{own}", {"network": {"shared": True}}, ADMIN).status_code == 200
    for network, cidr in ((own, "10.64.3.0/24"), (of_all, "10.64.4.0/24")):
        path, alone = f"/networks/{network}", {"network": {"shared": False}}
        api.make("/subnets", "subnet", ADMIN, network_id=network, ip_version=4, cidr=cidr)
        theirs = api.make("/ports", "port", STRANGER, network_id=network)
        api.refused("PUT", path, alone, 409, "RbacPolicyInUse", network, ADMIN)
        assert api("DELETE", f"/ports/{theirs['id']}", token=STRANGER).status_code == 204
        assert api("PUT", path, alone, ADMIN).json["network"]["shared"] is False
        api.refused("GET", path, None, 404, "NetworkNotFound", network, STRANGER)
        shown = api.get(path)["network"]
        assert (shown["project_id"], shown["shared"]) == ("demo", False)
    assert api.get("/rbac-policies?object_type=network", ADMIN) == {"rbac_policies": []}


@pytest.mark.parametrize(
    ("kind", "path", "key", "values"),
    [
        ("subnetpool", "/subnetpools", "subnetpool", {"prefixes": ["10.64.0.0/16"]}),
        ("address_scope", "/address-scopes", "address_scope", {"ip_version": 4}),
        ("address_group", "/address-groups", "address_group", {"addresses": []}),
    ],
)
def test_other_resources_are_shared(api: Api, kind: str, path: str, key: str, values: dict[str, Any]) -> None:
    made = api.make(path, key, **values)
    url = f"{path}/{made['id']}"
    api.refused("GET", url, None, 404, NOT_FOUND[kind], made["id"], STRANGER)
    shared = policy(api, kind, made["id"])
    assert api.get(url, STRANGER)[key]["shared"] is True
    api.refused("PUT", url, {key: {"name": "x"}}, 403, "Forbidden", "another project", STRANGER)
    api.refused("DELETE", url, None, 403, "Forbidden", "another project", STRANGER)
    moved = api("PUT", f"/rbac-policies/{shared['id']}", {"rbac_policy": {"target_tenant": "third"}})
    assert moved.json["rbac_policy"] == shared | {"target_tenant": "third"}
    assert api(method="GET", path=url, token=STRANGER).status_code == 404
    assert api("DELETE", url).status_code == 204
    assert api.get("/rbac-policies") == {"rbac_policies": []}


NOT_FOUND = {
    "subnetpool": "SubnetPoolNotFound",
    "address_scope": "AddressScopeNotFound",
    "address_group": "AddressGroupNotFound",
}


@pytest.mark.parametrize(
    ("values", "status", "text"),
    [
        ({"object_type": "port"}, 400, "object_type"),
        ({"action": "access_as_external"}, 400, "is not external"),
        ({"action": "access_as_external", "object_type": "address_scope"}, 400, "access_as_shared"),
        ({"target_tenant": None}, 400, "target_tenant"),
        ({"target_tenant": "x" * 256}, 400, "target_tenant"),
        ({"object_id": NOBODY}, 400, NOBODY),
    ],
)
def test_invalid_policy_is_refused(api: Api, values: dict[str, Any], status: int, text: str) -> None:
    network = api.make("/networks", "network")["id"]
    body = {"object_type": "network", "object_id": network, "action": "access_as_shared", "target_tenant": THEIRS}
    refused = api("POST", "/rbac-policies", {"rbac_policy": body | values})
    assert refused.status_code == status and text in refused.text
    body = {"rbac_policy": body}
    api.refused("POST", "/rbac-policies", body, 400, "RbacPolicyInitError", network, STRANGER)


def test_project_has_a_limited_number_of_groups_and_scopes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists have all of them, so that a conductor would need memory for any number."""
    monkeypatch.setattr(address_groups, "MAX_GROUPS", 2)
    monkeypatch.setattr(address_scopes, "MAX_SCOPES", 2)
    for path, key, values in (
        ("/address-groups", "address_group", {}),
        ("/address-scopes", "address_scope", {"ip_version": 4}),
    ):
        for _ in range(2):
            api.make(path, key, **values)
        api.refused("POST", path, {key: values}, 409, "OverQuota", key)
        api.make(path, key, STRANGER, **values)


def test_address_group_does_not_grow_beyond_its_limit_by_requests_at_the_same_time(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = api.make("/address-groups", "address_group", addresses=["10.0.0.1"])
    monkeypatch.setattr(address_groups, "MAX_ADDRESSES", 2)
    url = f"/address-groups/{made['id']}/add_addresses"
    api.refused("PUT", url, {"addresses": ["10.0.0.2", "10.0.0.3"]}, 400, "InvalidInput", "at most 2 addresses")
    assert api("PUT", url, {"addresses": ["10.0.0.2"]}).status_code == 200


def test_request_for_one_resource_reads_no_others(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.make("/address-groups", "address_group")
    original, numbers = address_groups.list_, []

    def count(*args: Any) -> Any:
        found = original(*args)
        numbers.append(len(found))
        return found

    monkeypatch.setattr(address_groups, "list_", count)
    made = api.make("/address-groups", "address_group", addresses=["10.0.0.1"])
    url = f"/address-groups/{made['id']}"
    assert api.get(url)["address_group"] == made
    assert api("PUT", url, {"address_group": {"name": "x"}}).status_code == 200
    assert api("DELETE", url).status_code == 204
    assert set(numbers) == {0, 1}
    api.refused("GET", url, None, 404, "AddressGroupNotFound", made["id"])
