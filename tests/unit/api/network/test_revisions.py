"""Changes of one revision only (``If-Match``), and lists of what has changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.network.conftest import KINDS, Api, make_one_of_each

CHANGES: dict[str, dict[str, Any]] = {
    "networks": {"name": "two"},
    "subnets": {"name": "two"},
    "subnetpools": {"name": "two"},
    "ports": {"name": "two"},
    "routers": {"name": "two"},
    "floatingips": {"description": "two"},
    "security_groups": {"name": "two"},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_change_of_an_older_revision_is_refused(api: Api, kind: str) -> None:
    path, key = KINDS[kind]
    url = f"{path}/{make_one_of_each(api)[kind]['id']}"
    first = api.get(url)[key]["revision_number"]
    assert api("PUT", f"{url}/tags/red", If_Match=f"revision_number={first}").status_code == 201
    second = api.get(url)[key]["revision_number"]
    assert second > first
    for method, body in (("PUT", {key: CHANGES[kind]}), ("DELETE", None)):
        refused = api(method, url, body, If_Match=f"revision_number={first}")
        assert refused.status_code == 412
        assert refused.json["NeutronError"] == {
            "type": "RevisionNumberConstraintFailed",
            "message": f"Constrained to {first}, but current revision is {second}",
            "detail": "",
        }
    changed = api("PUT", url, {key: CHANGES[kind]}, If_Match=f"revision_number={second}")
    assert changed.status_code == 200
    third = changed.json[key]["revision_number"]
    assert third > second
    if kind != "networks":
        assert api("DELETE", url, If_Match=f"revision_number={third}").status_code == 204


def test_group_has_another_revision_after_each_change_of_its_rules(api: Api) -> None:
    made = api.make("/security-groups", "security_group", name="web")
    rule = {"security_group_id": made["id"], "direction": "ingress"}
    added = api.make("/security-group-rules", "security_group_rule", **rule)
    url = f"/security-groups/{made['id']}"
    with_rule = api.get(url)["security_group"]["revision_number"]
    assert api("DELETE", f"/security-group-rules/{added['id']}").status_code == 204
    assert made["revision_number"] < with_rule < api.get(url)["security_group"]["revision_number"]


def test_rule_has_one_revision(api: Api) -> None:
    url = f"/security-group-rules/{make_one_of_each(api)['security_group_rules']['id']}"
    assert api("DELETE", url, If_Match="revision_number=2").status_code == 412
    assert api("DELETE", url, If_Match="revision_number=1").status_code == 204


@pytest.mark.parametrize("header", ["", "*", "5", "revision_number=", "revision_number=-1", "revision_number=1,2"])
def test_header_without_a_revision_is_refused(api: Api, header: str) -> None:
    url = f"/routers/{api.make('/routers', 'router')['id']}"
    refused = api("DELETE", url, If_Match=header)
    assert refused.status_code == 400 and "If-Match" in refused.text
    assert api("GET", url, If_Match=header).status_code == 200


@pytest.mark.parametrize("kind", CHANGES)
def test_list_of_changed_resources_has_those_of_the_time_that_they_show(api: Api, kind: str) -> None:
    path, _ = KINDS[kind]
    made = make_one_of_each(api)[kind]
    changed = api.get(f"{path}?id={made['id']}")[kind][0]["updated_at"]
    for since, found in ((changed, [made["id"]]), ("", [made["id"]]), ("2126-01-01T00:00:00Z", [])):
        listed = api.get(f"{path}?id={made['id']}&changed_since={since}")[kind]
        assert [one["id"] for one in listed] == found, since
    message = "changed_since is a time, as 2026-05-01T10:00:00Z, and not 'yesterday'"
    api.refused("GET", f"{path}?changed_since=yesterday", None, 400, "HTTPBadRequest", message)
