"""``/flavors/{id}/os-flavor-access`` and its actions."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite.base import exceptions
from tests.support.api_client import ADMIN, Client, fault

LIST = "/flavors/1/os-flavor-access"
ACTION = "/flavors/1/action"
ADD: Any = {"addTenantAccess": {"tenant": "p1"}}
REMOVE: Any = {"removeTenantAccess": {"tenant": "p1"}}


def test_flavor_access_is_added_listed_and_removed(api: Client) -> None:
    flavor = {"name": "private", "ram": 64, "disk": 1, "vcpus": 1, "id": "2", "os-flavor-access:is_public": False}
    api.json("POST", "/flavors", {"flavor": flavor}, token=ADMIN)
    shown = {"flavor_access": [{"flavor_id": "2", "tenant_id": "p1"}]}
    assert api.json("POST", "/flavors/2/action", ADD, token=ADMIN) == shown
    assert api.json("GET", "/flavors/2/os-flavor-access", token=ADMIN) == shown
    assert api.json("POST", "/flavors/2/action", REMOVE, token=ADMIN) == {"flavor_access": []}


def test_public_flavor_access_is_refused_since_2_7(api: Client) -> None:
    for version, even_public in (("2.6", True), ("2.7", False)):
        api("POST", ACTION, ADD, token=ADMIN, version=version)
        assert api.last_call("flavor_access_add") == ("1", "p1", even_public)


def test_refused_flavor_access_is_an_error(api: Client) -> None:
    both = {"flavor_id": "1", "project_id": "p1"}
    for body, error, code in (
        (ADD, exceptions.FlavorIsPublic(), 409),
        (ADD, exceptions.FlavorAccessExists(**both), 409),
        (ADD, exceptions.FlavorNotFound(flavor_id="1"), 404),
        (REMOVE, exceptions.FlavorAccessNotFound(**both), 404),
    ):
        api.conductor.error = error
        assert api("POST", ACTION, body, token=ADMIN).status_code == code
    api.conductor.error = exceptions.FlavorAccessNotKept()
    fault(api("GET", LIST, token=ADMIN), "itemNotFound", 404)


@pytest.mark.parametrize(
    "body",
    [
        {"addTenantAccess": {}},
        {"addTenantAccess": {"tenant": ""}},
        {"addTenantAccess": {"tenant": 5}},
        {"addTenantAccess": {"tenant": "p", "more": 1}},
        {"removeTenantAccess": None},
        {"nonsense": {"tenant": "p"}},
    ],
)
def test_malformed_flavor_access_is_refused(api: Client, body: Any) -> None:
    fault(api("POST", ACTION, body, token=ADMIN), "badRequest", 400)


def test_flavor_access_is_for_admins_only(api: Client) -> None:
    for response in (api("GET", LIST), api("POST", ACTION, ADD), api("POST", ACTION, REMOVE)):
        fault(response, "forbidden", 403)
