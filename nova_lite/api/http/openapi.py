"""The OpenAPI 3.1 document of the compute API, made from its routes, their declarations, and their schemas.

It describes each operation in the newest microversion that has it. Other versions are described in ``x-openstack``,
where ``min-ver`` and ``max-ver`` are the first and last version (null: no end).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any

import webob

from nova_lite.api.http import deploy, microversions, wsgi
from nova_lite.api.http.inventory import RouteEntry, route_entries
from nova_lite.api.http.microversions import Version, Versioned
from nova_lite.api.http.validation import Schema
from nova_lite.base import version

#: Statuses of failure of all operations, and further ones of operations that change something.
FAULTS = (400, 401, 403, 404, 406, 501, 503)
FAULTS_OF_CHANGES = (409, 413, 415)

_VARIABLE = re.compile(r"{(\w+)}")
_FAULT: Schema = {
    "description": "The name of the fault, its code, and its message. The fault of an unknown URL has no name.",
    "type": "object",
    "anyOf": [
        {
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": {
                "type": "object",
                "properties": {"code": {"type": "integer"}, "message": {"type": "string"}},
                "required": ["code", "message"],
            },
        },
        {
            "properties": {name: {"type": "string"} for name in ("code", "message", "title")},
            "required": ["code", "message", "title"],
            "additionalProperties": False,
        },
    ],
}


def app_factory(global_conf: dict[str, str], **local_conf: str) -> Document:
    """Make the application for paste."""
    del global_conf, local_conf
    return Document(document, "/v2.1", deploy.conf().api.compute_link_prefix)


class Document:
    """WSGI application that serves a document without authentication. ``mount``: path of the API at its address."""

    def __init__(self, made: Callable[[], dict[str, Any]], mount: str, link_prefix: str | None) -> None:
        self._made = made
        self._mount = mount
        self._link_prefix = link_prefix

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self._respond(environ)(environ, start_response)

    def _respond(self, environ: dict[str, Any]) -> webob.Response:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD") or environ.get("PATH_INFO", "") not in ("", "/"):
            return wsgi.unknown_url()
        root = wsgi.root_url(environ, self._link_prefix)
        return wsgi.to_response(wsgi.Response({**self._made(), "servers": [{"url": root + self._mount}]}))


@functools.cache
def document() -> dict[str, Any]:
    """Return the document of the compute API."""
    made = frame("nova_lite compute API", "/v2.1")
    made["info"]["version"] = str(microversions.MAXIMUM)
    made["info"]["description"] = (
        "The Compute API of OpenStack. The project's id may precede each path. Each operation is described in the "
        "version that its header parameter names."
    )
    return {**made, "paths": _paths(), "components": components({"Fault": _FAULT})}


def frame(title: str, mount: str) -> dict[str, Any]:
    """Return the parts of a document that are before its paths."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version.VERSION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "x-implementation": version.VERSION,
        },
        "servers": [{"url": mount}],
        "security": [{"token": []}],
    }


def components(schemas: dict[str, Schema]) -> dict[str, Any]:
    """Return the parts of a document to which its paths refer. ``schemas``: one is ``Fault``."""
    return {
        "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
        "schemas": schemas,
        "responses": {
            str(code): {
                "description": phrase(code),
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Fault"}}},
            }
            for code in (*FAULTS, *FAULTS_OF_CHANGES, 410)
        }
        | {"414": {"description": phrase(414), "content": {"text/plain": {"schema": {"type": "string"}}}}},
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for (path, method), group in itertools.groupby(route_entries(), key=lambda entry: (entry.path, entry.method)):
        entries = list(group)
        describe = _actions if entries[0].action is not None else _one
        paths.setdefault(path, {})[method.lower()] = describe(entries)
    return paths


def _one(entries: list[RouteEntry]) -> dict[str, Any]:
    """Describe a route. ``entries`` are its version ranges, the newest first."""
    entry = max(entries, key=lambda entry: entry.newest)
    described = _frame(entry, entry.newest)
    declared = entry.declared
    if declared.query:
        described["parameters"] += _query_parameters(declared.query.at(entry.newest))
    if declared.body:
        described["requestBody"] = body(_schema(declared.body.at(entry.newest)))
    described["responses"] = _responses(entries, entry.method)
    described["x-openstack"] = history = _history(entry)
    if len(entries) > 1:
        history["variants"] = [_history(other) for other in entries if other is not entry]
    return described


def _actions(entries: list[RouteEntry]) -> dict[str, Any]:
    """Describe a route of actions, with the bodies of all actions of the newest version."""
    newest = max(entry.newest for entry in entries)
    described = _frame(entries[0], newest)
    described["requestBody"] = body({"oneOf": [_action_body(entry) for entry in entries if entry.newest == newest]})
    described["responses"] = _responses(entries, entries[0].method)
    described["x-openstack"] = {"actions": {entry.action: _history(entry) for entry in reversed(entries)}}
    return described


def _action_body(entry: RouteEntry) -> Schema:
    if entry.declared.body:
        schema: Schema = _schema(entry.declared.body.at(entry.newest))
        return schema
    return {
        "type": "object",
        "properties": {entry.action: {}},
        "required": [entry.action],
        "additionalProperties": False,
    }


def _frame(entry: RouteEntry, newest: Version) -> dict[str, Any]:
    header = {
        "name": microversions.HEADER,
        "in": "header",
        "required": True,
        "description": "Without this header the version is 2.1, which differs from this description.",
        "schema": {"type": "string", "enum": [f"{microversions.SERVICE} {newest}"]},
    }
    name = operation_id(entry.method, entry.path)
    return {"operationId": name, "tags": [entry.resource], "parameters": [*path_variables(entry.path), header]}


def operation_id(method: str, path: str) -> str:
    """Return the name of an operation, which is unique in its document."""
    return "_".join((method.lower(), *re.findall(r"\w+", path)))


def path_variables(path: str) -> list[dict[str, Any]]:
    """Describe the variables of a path."""
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _VARIABLE.findall(path)
    ]


def _query_parameters(schema: Schema) -> list[dict[str, Any]]:
    """Describe the query parameters. Each may be repeated, so its schema is an array."""
    return [
        {"name": name, "in": "query", "style": "form", "explode": True, "schema": _schema(values)}
        for name, values in schema["properties"].items()
    ]


def body(schema: Schema) -> dict[str, Any]:
    """Describe the body of a request."""
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses(entries: Iterable[RouteEntry], method: str) -> dict[str, Any]:
    bodies: dict[int, list[Schema | None]] = {}
    for entry in entries:
        if entry.served:
            for status in entry.declared.status.all():
                bodies.setdefault(status, []).append(_response_schema(entry.declared.response))
            for status in entry.declared.other_statuses:
                bodies.setdefault(status, []).append(
                    None if status == 204 else _response_schema(entry.declared.response)
                )
    codes = {*FAULTS, 414, *(() if method == "GET" else FAULTS_OF_CHANGES)}
    codes |= {status for entry in entries for status in entry.declared.status.all() if status >= 400}
    codes |= {code for entry in entries for code in entry.declared.faults}
    responses = {str(code): {"$ref": f"#/components/responses/{code}"} for code in codes}
    return responses | {str(status): _success(status, schemas) for status, schemas in sorted(bodies.items())}


def _success(status: int, schemas: list[Schema | None]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": phrase(status)}
    distinct = [schema for place, schema in enumerate(schemas) if schema and schema not in schemas[:place]]
    if distinct and None not in schemas:
        schema = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
        response["content"] = {"application/json": {"schema": schema}}
    return response


def _response_schema(keys: tuple[str, ...] | None) -> Schema | None:
    if keys is None:
        return None
    if wsgi.ANY_KEY in keys:
        return {"type": "object", "minProperties": 1, "maxProperties": 1}
    if len(keys) == 1:
        return {"type": "object", "required": list(keys)}
    return {"type": "object", "anyOf": [{"required": [key]} for key in keys]}


def _history(entry: RouteEntry) -> dict[str, Any]:
    history: dict[str, Any] = _range(entry.since, entry.until)
    history["policy"] = entry.declared.policy or None
    for name, schemas in (("bodies", entry.declared.body), ("queries", entry.declared.query)):
        if schemas:
            history[name] = _variants(entry, schemas)
    return history


def _variants(entry: RouteEntry, schemas: Versioned[Schema]) -> list[dict[str, Any]]:
    """Return the schemas of all versions that have the operation, the newest first."""
    return [
        {**_range(max(since, entry.since), entry.until if until is None else until), "schema": _schema(schema)}
        for since, until, schema in schemas.ranges()
        if (until is None or until >= entry.since) and (entry.until is None or since <= entry.until)
    ]


def _range(since: int, until: int | None) -> dict[str, Any]:
    major = microversions.MAXIMUM.major
    return {"min-ver": f"{major}.{since}", "max-ver": None if until is None else f"{major}.{until}"}


def _schema(schema: Any) -> Any:
    r"""Convert a schema to JSON Schema 2020-12, whose patterns have no ``\Z``."""
    if isinstance(schema, dict):
        return {key.replace(r"\Z", "$"): _schema(value) for key, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [_schema(item) for item in schema]
    return schema.replace(r"\Z", "$") if isinstance(schema, str) else schema


def phrase(status: int) -> str:
    """Return the words of a status."""
    return HTTPStatus(status).phrase
