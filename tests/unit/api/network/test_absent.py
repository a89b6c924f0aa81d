"""Kinds of resources that this network service does not have, and agents for members."""

from __future__ import annotations

import pytest

from tests.support.api_client import ADMIN
from tests.unit.api.network.conftest import Api

NOBODY = "00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("path", "key", "one", "text"),
    [
        ("/subnetpools", "subnetpools", "subnetpool", "give each subnet a cidr"),
        ("/address-groups", "address_groups", "address_group", "in each rule"),
        ("/rbac-policies", "rbac_policies", "rbac_policy", "network create --share"),
    ],
)
def test_absent_kind_has_an_empty_list(api: Api, path: str, key: str, one: str, text: str) -> None:
    assert api.get(path) == {key: []}
    assert api.get(f"{path}?project_id=demo&limit=5&sort_key=id", ADMIN) == {key: []}
    api.refused("GET", f"{path}?nonsense=1", None, 400, "HTTPBadRequest", "nonsense")
    api.refused("GET", f"{path}/{NOBODY}", None, 404, "NotFound", "has none")
    api.refused("POST", path, {one: {"name": "new"}}, 403, "Forbidden", text)


def test_member_gets_no_agents(api: Api) -> None:
    assert api.get("/agents") == {"agents": []}
    api.refused("GET", f"/agents/{NOBODY}", None, 403, "PolicyNotAuthorized", "get_agent")


def test_extensions_are_those_that_are_served(api: Api) -> None:
    known = {item["alias"] for item in api.get("/extensions")["extensions"]}
    assert known == {
        *("agent", "availability_zone", "binding", "ext-gw-mode", "external-net", "filter-validation"),
        *("fip-port-details", "net-mtu", "network-ip-availability", "network_availability_zone", "pagination"),
        *("port-security", "project-id", "quota-check-limit", "quota_details", "quotas", "revision-if-match"),
        *("router", "security-group", "security-groups-normalized-cidr", "service-type", "sorting"),
        *("standard-attr-description", "standard-attr-revisions", "standard-attr-tag", "standard-attr-timestamp"),
        *("tag-creation", "tag-ports-during-bulk-creation"),
    }
    for alias in known:
        assert api.get(f"/extensions/{alias}")["extension"]["alias"] == alias
