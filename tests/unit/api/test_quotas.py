"""``/os-quota-sets`` and ``/os-quota-class-sets``."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, Client, fault

KEYS_257 = {"cores", "instances", "ram", "key_pairs", "metadata_items", "server_groups", "server_group_members"}
KEYS_236 = KEYS_257 | {"injected_files", "injected_file_content_bytes", "injected_file_path_bytes"}
NETWORK = {"fixed_ips", "floating_ips", "security_groups", "security_group_rules"}
GROUPS = {"server_groups", "server_group_members"}
BY_VERSION = [("2.35", KEYS_236 | NETWORK), ("2.36", KEYS_236), ("2.57", KEYS_257)]
SET = "/os-quota-sets/other"
CLASS = "/os-quota-class-sets/default"


@pytest.mark.parametrize(("version", "keys"), BY_VERSION)
def test_quota_set_has_the_keys_of_its_version(api: Client, version: str, keys: set[str]) -> None:
    limits = dict.fromkeys(keys, "7")
    response = api.json("PUT", SET, {"quota_set": limits}, token=ADMIN, version=version)["quota_set"]
    assert response == dict.fromkeys(keys, 7)
    assert set(api.json("GET", f"{SET}/defaults", version=version)["quota_set"]) == keys | {"id"}
    refused = (KEYS_236 | NETWORK) - keys
    for key in refused:
        fault(api("PUT", SET, {"quota_set": {key: 1}}, token=ADMIN, version=version), "badRequest", 400)


@pytest.mark.parametrize(
    ("version", "keys"),
    [("2.49", (KEYS_236 | NETWORK) - GROUPS), ("2.50", KEYS_236), ("2.56", KEYS_236), ("2.57", KEYS_257)],
)
def test_quota_class_set_has_the_keys_of_its_version(api: Client, version: str, keys: set[str]) -> None:
    assert set(api.json("GET", CLASS, token=ADMIN, version=version)["quota_class_set"]) == keys | {"id"}
    body = {"quota_class_set": {"cores": 5}}
    response = api.json("PUT", CLASS, body, token=ADMIN, version=version)["quota_class_set"]
    assert set(response) == keys
    assert response["cores"] == 5


def test_quota_update_uses_internal_names_and_force(api: Client) -> None:
    body = {"quota_set": {"injected_file_path_bytes": 9, "cores": -1, "force": "true"}}
    api.json("PUT", SET, body, token=ADMIN)
    assert api.last_call("quota_update") == ("other", {"injected_file_path_length": 9, "cores": -1}, True, None)
    api.json("PUT", SET, {"quota_set": {}}, token=ADMIN)
    assert api.last_call("quota_update") == ("other", {}, False, None)


@pytest.mark.parametrize(
    "limits",
    [
        {"cores": -2},
        {"cores": 2**31},
        {"cores": "2147483648"},
        {"cores": "x"},
        {"cores": 1.5},
        {"volumes": 1},
        {"force": 7},
    ],
)
def test_malformed_quota_update_is_refused(api: Client, limits: Any) -> None:
    fault(api("PUT", SET, {"quota_set": limits}, token=ADMIN), "badRequest", 400)
    fault(api("PUT", CLASS, {"quota_class_set": limits}, token=ADMIN), "badRequest", 400)


def test_quota_below_usage_is_refused(api: Client) -> None:
    api.conductor.error = exceptions.QuotaBelowUse(limit=1, resource="cores", used=2)
    message = fault(api("PUT", SET, {"quota_set": {"cores": 1}}, token=ADMIN), "badRequest", 400)
    assert message == "Quota limit 1 for cores must be greater than or equal to already used 2."


def test_quota_delete_restores_the_defaults(api: Client) -> None:
    response = api("DELETE", SET, token=ADMIN)
    assert (response.status_code, response.body) == (202, b"")
    assert api.last_call("quota_delete") == ("other", None)


def test_quota_of_one_user_is_separate(api: Client) -> None:
    for path in (SET, f"{SET}/detail"):
        assert api.json("GET", f"{path}?user_id=u", token=ADMIN)["quota_set"]["id"] == "other"
        assert api.last_call("limits_get") == ("other", "u")
    response = api.json("PUT", f"{SET}?user_id=u", {"quota_set": {"cores": 1}}, token=ADMIN)["quota_set"]
    assert response["cores"] == 1
    assert api.last_call("quota_update") == ("other", {"cores": 1}, False, "u")
    assert api("DELETE", f"{SET}?user_id=u", token=ADMIN).status_code == 202
    assert api.last_call("quota_delete") == ("other", "u")
    api.json("GET", f"{SET}?user_id=", token=ADMIN)
    assert api.last_call("limits_get") == ("other", None)


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("PUT", {"quota_set": {}}), ("DELETE", None)])
def test_overlong_user_id_is_refused(api: Client, method: str, body: Any) -> None:
    fault(api(method, f"{SET}?user_id={'u' * 256}", body, token=ADMIN), "badRequest", 400)
    assert api.conductor.calls == []


def test_user_quotas_of_other_projects_are_for_admins(api: Client) -> None:
    assert api("GET", "/os-quota-sets/demo/detail?user_id=u").status_code == 200
    for method, path in (("GET", SET), ("PUT", SET), ("DELETE", SET), ("PUT", "/os-quota-sets/demo")):
        fault(api(method, f"{path}?user_id=u"), "forbidden", 403)


def test_user_quota_above_the_projects_is_refused(api: Client) -> None:
    api.conductor.error = exceptions.QuotaAboveProject(limit=9, resource="cores", maximum=8)
    message = fault(api("PUT", f"{SET}?user_id=u", {"quota_set": {"cores": 9}}, token=ADMIN), "badRequest", 400)
    assert message == "Quota limit 9 for cores must be less than or equal to 8."


def test_other_quota_classes_are_stored_without_effect(api: Client) -> None:
    """Other classes store their limits, which have no effect."""
    gold, silver = "/os-quota-class-sets/gold", "/os-quota-class-sets/silver"
    default = api.json("GET", CLASS, token=ADMIN)["quota_class_set"]
    assert api.json("PUT", gold, {"quota_class_set": {"cores": 3}}, token=ADMIN)["quota_class_set"]["cores"] == 3
    assert api.json("GET", gold, token=ADMIN)["quota_class_set"] == default | {"id": "gold", "cores": 3}
    assert api.json("GET", silver, token=ADMIN)["quota_class_set"] == default | {"id": "silver"}
    assert api.json("GET", CLASS, token=ADMIN)["quota_class_set"] == default
    assert api.json("GET", "/os-quota-sets/demo", token=ADMIN)["quota_set"]["cores"] == default["cores"]
    fault(api("GET", f"/os-quota-class-sets/{'g' * 256}", token=ADMIN), "badRequest", 400)


def test_quota_rules_are_enforced(api: Client) -> None:
    assert api("GET", "/os-quota-sets/demo").status_code == 200
    assert api("GET", "/os-quota-sets/other/defaults").status_code == 200
    for method, path in (("GET", SET), ("PUT", SET), ("DELETE", SET), ("PUT", "/os-quota-sets/demo"), ("GET", CLASS)):
        fault(api(method, path), "forbidden", 403)
