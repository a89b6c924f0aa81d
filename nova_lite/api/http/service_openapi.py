"""The OpenAPI 3.1 documents of the services without microversions, made from the routes of their resources."""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

from nova_lite.api.http import bodies, openapi, rest
from nova_lite.api.http.rest import ServiceApplication, ServiceRoute
from nova_lite.api.http.validation import Schema
from nova_lite.base import exceptions

#: The path of each API at its address, by its name in ``[api] enabled_apis``.
MOUNTS = {
    "dns": "/v2", "identity": "", "image": "/v2", "key_manager": "/v1", "load_balancer": "/v2", "network": "/v2.0",
    "placement": "", "volume": "/v3",
}  # fmt: skip

_FAULT: Schema = {"description": "A fault, in the form of this API.", "type": "object"}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> openapi.Document:
    """Make the application for paste. Its option ``api`` names the API."""
    del global_conf
    api = local_conf.get("api", "")
    if api not in MOUNTS:
        raise exceptions.ConfigurationError(
            reason=f"[api] paste_config: openapi has api = {api}; it must be one of {', '.join(MOUNTS)}."
        )
    return openapi.Document(functools.partial(document, api), MOUNTS[api], None)


@functools.cache
def document(api: str) -> dict[str, Any]:
    """Return the document of an API of `MOUNTS`."""
    app = application(api)
    entries = sorted(app.routes, key=lambda route: (route.path, route.method))
    kinds = list(dict.fromkeys(route.body for route in entries if route.body is not None))
    found, parts = bodies.schemas(kinds)
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, Any] = {}
    for route in entries:
        described = _operation(route, schemas[route.body] if route.body else None)
        paths.setdefault(route.path, {})[route.method.lower()] = described
    return openapi.frame(f"nova_lite {api} API", MOUNTS[api] or "/") | {
        "paths": paths,
        "components": openapi.components({**parts, "Fault": _FAULT}),
    }


def application(api: str) -> type[ServiceApplication]:
    """Return the application of an API of `MOUNTS`."""
    module = importlib.import_module(f"nova_lite.api.{api}.app")
    app: type[ServiceApplication] = getattr(module, f"{api.title().replace('_', '')}App")
    return app


def _operation(route: ServiceRoute, body: Schema | None) -> dict[str, Any]:
    names = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in dict.fromkeys(route.query)]
    described: dict[str, Any] = {
        "operationId": openapi.operation_id(route.method, route.path),
        "tags": [_title(route)],
        "parameters": [*openapi.path_variables(route.path), *names],
        "responses": _responses(route),
        "x-openstack": {"policy": route.policy or None},
    }
    if route.policy == rest.PUBLIC:
        described["security"] = []
    if body is not None:
        described["requestBody"] = openapi.body(_under(route.key, body) if route.key else body)
    return described


def _title(route: ServiceRoute) -> str:
    """Return the first words of a resource's docstring."""
    return re.split(r"[.:\n]", str(route.resource.__doc__), maxsplit=1)[0].strip()


def _under(key: str, schema: Schema) -> Schema:
    return {"type": "object", "properties": {key: schema}, "required": [key]}


def _responses(route: ServiceRoute) -> dict[str, Any]:
    changes = () if route.method == "GET" else openapi.FAULTS_OF_CHANGES
    faults = {str(code): {"$ref": f"#/components/responses/{code}"} for code in (*openapi.FAULTS, *changes)}
    response: dict[str, Any] = {"description": openapi.phrase(route.status)}
    if route.response is not None:
        schema = {"type": "object", "required": [route.response]}
        response["content"] = {"application/json": {"schema": schema}}
    return {**faults, str(route.status): response}
