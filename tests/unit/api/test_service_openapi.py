"""The OpenAPI documents of the services: valid, complete, served without a token, true to the requests that succeed."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openapi_spec_validator
import pytest

from nova_lite import policies
from nova_lite.api.http import deploy, service_openapi
from nova_lite.base import exceptions
from tests.support.every_api import EveryApi
from tests.support.requests_of_routes import APPS, BODIES

NAMES = sorted(service_openapi.MOUNTS)


def _document(api: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(service_openapi.document(api)))
    return made


@pytest.mark.parametrize("api", NAMES)
def test_document_of_a_service_is_valid(api: str) -> None:
    openapi_spec_validator.validate(_document(api))


@pytest.mark.parametrize(("api", "app"), APPS)
def test_document_of_a_service_has_exactly_its_routes(api: str, app: Any) -> None:
    described = {(method, path) for path, methods in _document(api)["paths"].items() for method in methods}
    assert described == {(route.method.lower(), route.path) for route in app.routes}


@pytest.mark.parametrize("api", NAMES)
def test_document_of_a_service_names_existing_rules(api: str) -> None:
    known = {rule.name for rule in policies.list_rules()}
    operations = [item for methods in _document(api)["paths"].values() for item in methods.values()]
    named = {item["x-openstack"]["policy"] for item in operations}
    assert named - {None} <= known and named - {None}
    assert all(item.get("security") == [] for item in operations if item["x-openstack"]["policy"] is None)


@pytest.mark.parametrize("api", NAMES)
def test_document_of_a_service_is_served_without_a_token(cloud: EveryApi, api: str) -> None:
    app = deploy.load_app(api, cloud.services)
    status, body = _get(app, "/openapi.json")
    assert status == "200 OK"
    served = json.loads(body)
    assert served["servers"] == [{"url": f"http://cloud{service_openapi.MOUNTS[api]}"}]
    assert served["paths"] == _document(api)["paths"]
    assert _get(app, "/openapi.json/more")[0].startswith("404")


def _get(app: Any, path: str) -> tuple[str, bytes]:
    found: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SERVER_NAME": "cloud",
        "SERVER_PORT": "80",
        "HTTP_HOST": "cloud",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
    }
    body = b"".join(app(environ, lambda status, headers, exc_info=None: found.append(status)))
    return found[0], body


def test_bodies_that_tests_send_fit_the_schemas_of_the_documents() -> None:
    checked = 0
    for (api, method, path), sent in BODIES.items():
        if api not in service_openapi.MOUNTS:
            continue
        document = _document(api)
        request = document["paths"][path][method.lower()].get("requestBody")
        if request is None:
            continue
        schema = {**request["content"]["application/json"]["schema"], "components": document["components"]}
        for body in sent:
            if isinstance(body, dict):
                jsonschema.Draft202012Validator(schema).validate(body)
                checked += 1
    assert checked > 70


def test_document_of_an_unknown_api_is_a_configuration_error() -> None:
    with pytest.raises(exceptions.ConfigurationError, match="api = netwrk; it must be one of dns, identity"):
        service_openapi.app_factory({}, api="netwrk")
