"""``/os-server-groups``."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, STRANGER, Client, fault

PATH = "/os-server-groups"
OLD = {"server_group": {"name": "g", "policies": ["affinity"]}}
NEW = {"server_group": {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": "3"}}}
KEYS = {"id", "name", "members"}
OWNER = {"project_id", "user_id"}


@pytest.mark.parametrize(
    ("version", "body", "keys"),
    [
        ("2.1", OLD, KEYS | {"policies", "metadata"}),
        ("2.12", OLD, KEYS | {"policies", "metadata"}),
        ("2.13", OLD, KEYS | {"policies", "metadata"} | OWNER),
        ("2.63", OLD, KEYS | {"policies", "metadata"} | OWNER),
        ("2.64", NEW, KEYS | {"policy", "rules"} | OWNER),
    ],
)
def test_server_group_has_the_keys_of_its_version(api: Client, version: str, body: Any, keys: set[str]) -> None:
    created = api.json("POST", PATH, body, version=version)["server_group"]
    assert set(created) == keys
    assert api.json("GET", f"{PATH}/{created['id']}", version=version) == {"server_group": created}
    assert api.json("GET", PATH, version=version) == {"server_groups": [created]}


def test_server_group_has_policy_and_rules_since_2_64(api: Client) -> None:
    assert api.json("POST", PATH, OLD)["server_group"]["policies"] == ["affinity"]
    created = api.json("POST", PATH, NEW, version="2.64")["server_group"]
    assert (created["policy"], created["rules"]) == ("anti-affinity", {"max_server_per_host": 3})


@pytest.mark.parametrize(
    ("version", "group"),
    [
        ("2.1", {"name": "g"}),
        ("2.1", {"name": "g", "policies": []}),
        ("2.1", {"name": "g", "policies": ["affinity", "anti-affinity"]}),
        ("2.1", {"name": "", "policies": ["affinity"]}),
        ("2.1", {"name": "g", "policies": ["affinity"], "rules": {}}),
        ("2.14", {"name": "g", "policies": ["soft-affinity"]}),
        ("2.63", {"name": "g", "policy": "affinity"}),
        ("2.64", {"name": "g", "policies": ["affinity"]}),
        ("2.64", {"name": "g", "policy": "nonsense"}),
        ("2.64", {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 0}}),
        ("2.64", {"name": "g", "policy": "anti-affinity", "rules": {"more": 1}}),
    ],
)
def test_malformed_server_group_is_refused(api: Client, version: str, group: Any) -> None:
    fault(api("POST", PATH, {"server_group": group}, version=version), "badRequest", 400)


def test_soft_policies_are_allowed_since_2_15(api: Client) -> None:
    body = {"server_group": {"name": "g", "policies": ["soft-affinity"]}}
    assert api.json("POST", PATH, body, version="2.15")["server_group"]["policies"] == ["soft-affinity"]


def test_server_group_list_parameters_are_checked(api: Client) -> None:
    api("GET", f"{PATH}?limit=2&offset=1&all_projects=True")
    assert api.last_call("server_group_list") == (False, 2, 1)
    api("GET", f"{PATH}?all_projects=1&limit=0", token=ADMIN)
    assert api.last_call("server_group_list") == (True, 1000, 0)
    for query in ("limit=x", "offset=-1"):
        assert api("GET", f"{PATH}?{query}").status_code == 400
    assert api("GET", f"{PATH}?more=1", version="2.74").status_code == 200
    assert api("GET", f"{PATH}?more=1", version="2.75").status_code == 400


def test_server_group_of_another_project_is_404(api: Client) -> None:
    group = api.json("POST", PATH, OLD)["server_group"]["id"]
    for method in ("GET", "DELETE"):
        fault(api(method, f"{PATH}/{group}", token=STRANGER), "itemNotFound", 404)
    assert api("GET", f"{PATH}/{group}", token=ADMIN).status_code == 200
    assert api("DELETE", f"{PATH}/{group}").status_code == 204
    assert api("DELETE", f"{PATH}/{group}").status_code == 404


def test_server_group_above_quota_is_403(api: Client) -> None:
    api.conductor.error = exceptions.QuotaExceeded(overs="server_groups", requested=1, used=10, allowed=10)
    assert "server_groups" in fault(api("POST", PATH, OLD), "forbidden", 403)
