"""The resource ``/os-aggregates``."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, Client, fault
from tests.support.control_plane import IMAGE_ID

KEYS = {"id", "name", "availability_zone", "created_at", "updated_at", "deleted", "deleted_at", "hosts", "metadata"}
PATH = "/os-aggregates"


@pytest.fixture
def made(api: Client) -> Client:
    api.json("POST", PATH, {"aggregate": {"name": "fast", "availability_zone": "az1"}}, token=ADMIN)
    return api


def test_aggregate_has_the_keys_of_its_version(made: Client) -> None:
    assert made.last_call("aggregate_create") == ("fast", "az1")
    for version, keys in (("2.1", KEYS), ("2.40", KEYS), ("2.41", KEYS | {"uuid"})):
        (shown,) = made.json("GET", PATH, token=ADMIN, version=version)["aggregates"]
        assert set(shown) == keys
        assert set(made.json("GET", f"{PATH}/1", token=ADMIN, version=version)["aggregate"]) == keys
        body = {"aggregate": {"name": "another"}}
        created = made.json("POST", PATH, body, token=ADMIN, version=version)["aggregate"]
        assert set(created) == keys - {"hosts", "metadata"}
        assert made("DELETE", f"{PATH}/{created['id']}", token=ADMIN).status_code == 200


def test_aggregate_changes_reach_the_conductor(made: Client) -> None:
    change = {"aggregate": {"availability_zone": None}}
    assert made.json("PUT", f"{PATH}/1", change, token=ADMIN)["aggregate"]["id"] == 1
    assert made.last_call("aggregate_update") == ("1", {"availability_zone": None})
    path = f"{PATH}/1/action"
    assert made.json("POST", path, {"add_host": {"host": "h1"}}, token=ADMIN)["aggregate"]["hosts"] == ["h1"]
    assert made.json("POST", path, {"remove_host": {"host": "h1"}}, token=ADMIN)["aggregate"]["hosts"] == []
    made.json("POST", path, {"set_metadata": {"metadata": {"ssd": "true", "old": None}}}, token=ADMIN)
    assert made.last_call("aggregate_set_metadata") == ("1", {"ssd": "true", "old": None})
    response = made("DELETE", f"{PATH}/1", token=ADMIN)
    assert (response.status_code, response.body) == (200, b"")


@pytest.mark.parametrize("path", ["fast", "1.5", "--1", "%C2%B2"])
def test_aggregate_id_must_be_a_number(made: Client, path: str) -> None:
    """A 400 makes clients search the list for the name."""
    fault(made("GET", f"{PATH}/{path}", token=ADMIN), "badRequest", 400)
    fault(made("DELETE", f"{PATH}/{path}", token=ADMIN), "badRequest", 400)
    fault(made("POST", f"{PATH}/{path}/action", {"add_host": {"host": "h"}}, token=ADMIN), "badRequest", 400)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "", {"aggregate": {}}),
        ("POST", "", {"aggregate": {"name": ""}}),
        ("POST", "", {"aggregate": {"name": "a", "availability_zone": ""}}),
        ("POST", "", {"aggregate": {"name": "a", "more": 1}}),
        ("POST", "", {"aggregate": {"name": "a"}, "more": 1}),
        ("PUT", "/1", {"aggregate": {}}),
        ("PUT", "/1", {"aggregate": {"hosts": []}}),
        ("POST", "/1/action", {"add_host": {}}),
        ("POST", "/1/action", {"add_host": {"host": "a b"}}),
        ("POST", "/1/action", {"remove_host": {"host": "a", "more": 1}}),
        ("POST", "/1/action", {"set_metadata": {"metadata": {"a/b": "c"}}}),
        ("POST", "/1/action", {"set_metadata": {"metadata": {"a": 1}}}),
        ("POST", "/1/action", {"set_metadata": {}}),
        ("POST", "/1/action", {"nonsense": {}}),
        ("POST", "/1/images", {"cache": []}),
        ("POST", "/1/images", {"cache": [{"id": "x"}]}),
        ("POST", "/1/images", {"cache": [{"id": IMAGE_ID}, {"id": IMAGE_ID}]}),
    ],
)
def test_malformed_aggregate_bodies_are_refused(made: Client, method: str, path: str, body: Any) -> None:
    fault(made(method, PATH + path, body, token=ADMIN, version="2.81"), "badRequest", 400)


def test_aggregate_change_that_conflicts_with_hosts_is_refused(made: Client) -> None:
    made.conductor.error = exceptions.InvalidAggregateAction(action="a", aggregate_id=1, reason="r")
    for method, path, body, code in (
        ("PUT", "/1", {"aggregate": {"name": "b"}}, 400),
        ("DELETE", "/1", None, 400),
        ("POST", "/1/action", {"set_metadata": {"metadata": {}}}, 400),
        ("POST", "/1/action", {"add_host": {"host": "h"}}, 409),
        ("POST", "/1/action", {"remove_host": {"host": "h"}}, 409),
    ):
        assert made(method, PATH + path, body, token=ADMIN).status_code == code, (method, path)


def test_unknown_aggregate_is_404(api: Client) -> None:
    fault(api("GET", f"{PATH}/7", token=ADMIN), "itemNotFound", 404)


def test_aggregate_images_are_cached_on_its_hosts(made: Client) -> None:
    body = {"cache": [{"id": IMAGE_ID}]}
    assert made("POST", f"{PATH}/1/images", body, token=ADMIN, version="2.80").status_code == 404
    response = made("POST", f"{PATH}/1/images", body, token=ADMIN, version="2.81")
    assert (response.status_code, response.body) == (202, b"")
    assert made.last_call("aggregate_cache_images") == ("1", [IMAGE_ID], {})


def test_aggregate_list_refuses_unknown_parameters_since_2_102(made: Client) -> None:
    for path in (PATH, f"{PATH}/1"):
        assert made("GET", f"{path}?x=1", token=ADMIN, version="2.101").status_code == 200
        assert made("GET", f"{path}?x=1", token=ADMIN, version="2.102").status_code == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("POST", ""), ("GET", "/1"), ("PUT", "/1"), ("DELETE", "/1"), ("POST", "/1/images")],
)
def test_aggregates_are_for_admins_only(made: Client, method: str, path: str) -> None:
    fault(made(method, PATH + path, version="2.81"), "forbidden", 403)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_negative_aggregate_id_is_404(made: Client, method: str) -> None:
    assert "could not be found" in fault(made(method, f"{PATH}/-1", token=ADMIN), "itemNotFound", 404)
