"""Security groups without connection tracking."""

from __future__ import annotations

from typing import Any

from nova_lite.objects.security_group import default_id
from tests.unit.api.network.conftest import Api

OTHER = "admin:service"
#: Error of a port with groups of both kinds.
MIXED = (409, "SecurityGroupConflict", "all stateful or all stateless")


def group(api: Api, name: str, token: str = "alice:demo", **values: Any) -> dict[str, Any]:
    return api.make("/security-groups", "security_group", token, name=name, **values)


def test_group_is_stateful_unless_the_request_says_otherwise(api: Api) -> None:
    assert group(api, "one")["stateful"] is True
    made = group(api, "two", stateful=False, description="d")
    assert (made["stateful"], made["description"]) == (False, "d")
    assert [rule["direction"] for rule in made["security_group_rules"]] == ["egress", "egress"]
    assert group(api, "three", stateful=False, tags=["red"])["tags"] == ["red"]
    bodies = {"security_groups": [{"name": "four", "stateful": False}, {"name": "five"}]}
    shown = api("POST", "/security-groups", bodies).json["security_groups"]
    assert [item["stateful"] for item in shown] == [False, True]
    listed = api.get("/security-groups?stateful=false&sort_key=name")["security_groups"]
    assert [item["name"] for item in listed] == ["four", "three", "two"]
    assert api.get(f"/security-groups/{made['id']}")["security_group"]["stateful"] is False


def test_group_changes_its_kind_only_while_nothing_is_in_it(api: Api) -> None:
    made = group(api, "one")
    path = f"/security-groups/{made['id']}"
    off = {"security_group": {"stateful": False}}
    port = api.port(security_groups=[made["id"]])
    api.refused("PUT", path, off, 409, "SecurityGroupInUse", port["id"])
    assert api("PUT", path, {"security_group": {"stateful": True}}).json["security_group"]["stateful"] is True
    api("PUT", f"/ports/{port['id']}", {"port": {"security_groups": []}})
    changed = api("PUT", path, off).json["security_group"]
    assert changed["stateful"] is False
    assert changed["revision_number"] > made["revision_number"]
    assert api("PUT", path, {"security_group": {"name": "two"}}).json["security_group"]["stateful"] is False
    for wrong in ("no", 0, []):
        api.refused("PUT", path, {"security_group": {"stateful": wrong}}, 400, "HTTPBadRequest", "stateful")


def test_default_group_stays_stateful(api: Api) -> None:
    path = f"/security-groups/{default_id('demo')}"
    refusal = (409, "SecurityGroupCannotUpdateDefault", "stays stateful")
    api.refused("PUT", path, {"security_group": {"stateful": False}}, *refusal)
    assert api.get(path)["security_group"]["stateful"] is True


def test_port_with_groups_of_both_kinds_is_refused(api: Api) -> None:
    """The default group has no row here, and another project shares a group."""
    stateful, stateless = group(api, "one")["id"], group(api, "two", stateful=False)["id"]
    shared = group(api, "three", OTHER, stateful=False)["id"]
    share = {"object_type": "security_group", "object_id": shared, "action": "access_as_shared"}
    api.make("/rbac-policies", "rbac_policy", OTHER, target_tenant="demo", **share)
    for one, two in ((stateful, stateless), (default_id("demo"), stateless), (stateful, shared)):
        body = {"port": {"network_id": api.shared.id, "security_groups": [one, two]}}
        api.refused("POST", "/ports", body, *MIXED)
        port = api.port(security_groups=[one])
        api.refused("PUT", f"/ports/{port['id']}", {"port": {"security_groups": [one, two]}}, *MIXED)
        assert api.get(f"/ports/{port['id']}")["port"]["security_groups"] == [one]
    assert set(api.port(security_groups=[stateless, shared])["security_groups"]) == {stateless, shared}
