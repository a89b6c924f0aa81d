"""The OpenAPI document: valid, complete, true."""

from __future__ import annotations

import json
from typing import Any

import openapi_spec_validator
import pytest

from nova_lite import policies
from nova_lite.api.compute import keypairs
from nova_lite.api.http import microversions, openapi, router
from nova_lite.api.http.microversions import Versioned
from tests.support.api_client import Client

DOCUMENT: dict[str, Any] = json.loads(json.dumps(openapi.document()))
PATHS = DOCUMENT["paths"]
ACTION = PATHS["/servers/{id}/action"]["post"]


def test_document_is_valid() -> None:
    openapi_spec_validator.validate(DOCUMENT)


def test_document_has_exactly_the_served_routes() -> None:
    served = {
        (route.path, route.method.lower()) for extension in router.extension_classes() for route in extension.routes
    }
    assert {(path, method) for path, methods in PATHS.items() for method in methods} == served


def test_document_has_exactly_the_served_actions() -> None:
    actions = {
        route.action: route
        for extension in router.extension_classes()
        for route in extension.routes
        if route.action and route.path == "/servers/{id}/action"
    }
    assert set(ACTION["x-openstack"]["actions"]) == set(actions)
    bodies = ACTION["requestBody"]["content"]["application/json"]["schema"]["oneOf"]
    assert {body["required"][0] for body in bodies} == {
        name for name, action in actions.items() if action.serves(microversions.MAXIMUM)
    }


def test_document_names_existing_rules() -> None:
    known = {rule.name for rule in policies.list_rules()}
    for methods in PATHS.values():
        for operation in methods.values():
            histories = operation["x-openstack"].get("actions", {"": operation["x-openstack"]})
            for history in histories.values():
                assert history["policy"] is None or history["policy"] in known


def test_document_describes_the_newest_version() -> None:
    create = PATHS["/os-keypairs"]["post"]
    schema = create["requestBody"]["content"]["application/json"]["schema"]
    assert schema == keypairs.CREATE_BODY.at(microversions.MAXIMUM)
    assert schema["properties"]["keypair"]["required"] == ["name", "public_key"]
    ranges = [(body["min-ver"], body["max-ver"]) for body in create["x-openstack"]["bodies"]]
    assert ranges == [("2.92", None), ("2.10", "2.91"), ("2.2", "2.9"), ("2.1", "2.1")]
    assert {"200", "201"} <= set(create["responses"])


def test_ended_route_is_described_in_its_last_version() -> None:
    uptime = PATHS["/os-hypervisors/{id}/uptime"]["get"]
    header = next(parameter for parameter in uptime["parameters"] if parameter["name"] == microversions.HEADER)
    assert header["schema"]["enum"] == ["compute 2.87"]
    assert uptime["x-openstack"]["max-ver"] == "2.87"


def test_query_schema_becomes_parameters() -> None:
    parameters = {item["name"]: item for item in PATHS["/servers"]["get"]["parameters"] if item["in"] == "query"}
    assert {"limit", "marker", "sort_key", "tags", "changes-before"} <= set(parameters)
    assert parameters["limit"]["schema"]["type"] == "array"


def test_patterns_are_valid_in_json_schema() -> None:
    assert r"\\Z" not in json.dumps(DOCUMENT)


def test_document_has_ranges_of_versions() -> None:
    assert Versioned({1: "a", 5: "b"}).ranges() == [(5, None, "b"), (1, 4, "a")]


# --- as it is served


def test_document_is_served_without_token(api: Client) -> None:
    served = api.json("GET", "/openapi.json", base="", token=None)
    assert served == DOCUMENT | {"servers": [{"url": "http://cloud:8774/v2.1"}]}


@pytest.mark.parametrize(("method", "path"), [("POST", "/openapi.json"), ("GET", "/openapi.json/more")])
def test_other_paths_of_the_document_are_404(api: Client, method: str, path: str) -> None:
    assert api(method, path, base="", token=None).status_code == 404
