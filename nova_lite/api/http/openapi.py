"""The OpenAPI 3.1 document of the compute API, made from its routes, what their handlers declare, and their schemas.

It describes the newest microversion that has an operation. What other versions have is in ``x-openstack``, where
``min-ver`` and ``max-ver`` say from and to which version something holds (null: to the newest).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import webob

from nova_lite.api.http import deploy, microversions, wsgi
from nova_lite.api.http.inventory import RouteEntry, route_entries
from nova_lite.api.http.microversions import Version, Versioned
from nova_lite.api.http.validation import Schema
from nova_lite.base import version

#: What any operation may answer, and what those that change something may answer besides.
FAULTS = (400, 401, 403, 404, 406, 501, 503)
FAULTS_OF_CHANGES = (409, 413, 415)

_VARIABLE = re.compile(r"{(\w+)}")
_FAULT: Schema = {
    "description": "The name of the fault, and what it is about; a URL that is not known has no name.",
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
    """Paste factory."""
    del global_conf, local_conf
    return Document(deploy.conf().api.compute_link_prefix)


class Document:
    """WSGI application that serves the document to anybody."""

    def __init__(self, link_prefix: str | None) -> None:
        self._link_prefix = link_prefix

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        return self._respond(environ)(environ, start_response)

    def _respond(self, environ: dict[str, Any]) -> webob.Response:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD") or environ.get("PATH_INFO", "") not in ("", "/"):
            return wsgi.unknown_url()
        root = wsgi.root_url(environ, self._link_prefix)
        return wsgi.to_response(wsgi.Response({**document(), "servers": [{"url": f"{root}/v2.1"}]}))


@functools.cache
def document() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nova_lite compute API",
            "version": str(microversions.MAXIMUM),
            "description": "The Compute API of OpenStack. Each path may have the project's id in front. Operations are "
            "described as of the version that their header parameter names.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "x-implementation": version.VERSION,
        },
        "servers": [{"url": "/v2.1"}],
        "security": [{"token": []}],
        "paths": _paths(),
        "components": {
            "securitySchemes": {"token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}},
            "schemas": {"Fault": _FAULT},
            "responses": {
                str(code): {
                    "description": _phrase(code),
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Fault"}}},
                }
                for code in (*FAULTS, *FAULTS_OF_CHANGES, 410)
            }
            | {"414": {"description": _phrase(414), "content": {"text/plain": {"schema": {"type": "string"}}}}},
        },
    }


def _paths() -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for (path, method), group in itertools.groupby(route_entries(), key=lambda row: (row.path, row.method)):
        rows = list(group)
        describe = _actions if rows[0].action is not None else _one
        paths.setdefault(path, {})[method.lower()] = describe(rows)
    return paths


def _one(rows: list[RouteEntry]) -> dict[str, Any]:
    """A route; ``rows`` are its version ranges, the newest first."""
    row = max(rows, key=lambda row: row.newest)
    described = _frame(row, row.newest)
    declared = row.declared
    if declared.query:
        described["parameters"] += _query_parameters(declared.query.at(row.newest))
    if declared.body:
        described["requestBody"] = _body(_schema(declared.body.at(row.newest)))
    described["responses"] = _responses(rows, row.method)
    described["x-openstack"] = history = _history(row)
    if len(rows) > 1:
        history["variants"] = [_history(other) for other in rows if other is not row]
    return described


def _actions(rows: list[RouteEntry]) -> dict[str, Any]:
    """The route that leads to actions: a body of each action that the newest version has."""
    newest = max(row.newest for row in rows)
    described = _frame(rows[0], newest)
    described["requestBody"] = _body({"oneOf": [_action_body(row) for row in rows if row.newest == newest]})
    described["responses"] = _responses(rows, rows[0].method)
    described["x-openstack"] = {"actions": {row.action: _history(row) for row in reversed(rows)}}
    return described


def _action_body(row: RouteEntry) -> Schema:
    if row.declared.body:
        schema: Schema = _schema(row.declared.body.at(row.newest))
        return schema
    return {"type": "object", "properties": {row.action: {}}, "required": [row.action], "additionalProperties": False}


def _frame(row: RouteEntry, asked: Version) -> dict[str, Any]:
    name = "_".join((row.method.lower(), *re.findall(r"\w+", row.path)))
    variables = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _VARIABLE.findall(row.path)
    ]
    header = {
        "name": microversions.HEADER,
        "in": "header",
        "required": True,
        "description": "Without it the version is 2.1, which is not what is described here.",
        "schema": {"type": "string", "enum": [f"{microversions.SERVICE} {asked}"]},
    }
    return {"operationId": name, "tags": [row.resource], "parameters": [*variables, header]}


def _query_parameters(schema: Schema) -> list[dict[str, Any]]:
    """Every parameter may be repeated, as its schema says: an array."""
    return [
        {"name": name, "in": "query", "style": "form", "explode": True, "schema": _schema(values)}
        for name, values in schema["properties"].items()
    ]


def _body(schema: Schema) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _responses(rows: Iterable[RouteEntry], method: str) -> dict[str, Any]:
    bodies: dict[int, list[Schema | None]] = {}
    for row in rows:
        if row.served:
            for status in row.declared.status.all():
                bodies.setdefault(status, []).append(_response_schema(row.declared.response))
            for status in row.declared.also:
                bodies.setdefault(status, []).append(None if status == 204 else _response_schema(row.declared.response))
    codes = {*FAULTS, 414, *(() if method == "GET" else FAULTS_OF_CHANGES)}
    codes |= {status for row in rows for status in row.declared.status.all() if status >= 400}
    codes |= {code for row in rows for code in row.declared.faults}
    responses = {str(code): {"$ref": f"#/components/responses/{code}"} for code in codes}
    return responses | {str(status): _success(status, schemas) for status, schemas in sorted(bodies.items())}


def _success(status: int, schemas: list[Schema | None]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _phrase(status)}
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


def _history(row: RouteEntry) -> dict[str, Any]:
    found: dict[str, Any] = _range(row.since, row.until)
    found["policy"] = row.declared.policy or None
    for name, schemas in (("bodies", row.declared.body), ("queries", row.declared.query)):
        if schemas:
            found[name] = _variants(row, schemas)
    return found


def _variants(row: RouteEntry, schemas: Versioned[Schema]) -> list[dict[str, Any]]:
    """The schemas of all versions that have the operation, the newest first."""
    return [
        {**_range(max(since, row.since), row.until if until is None else until), "schema": _schema(schema)}
        for since, until, schema in schemas.ranges()
        if (until is None or until >= row.since) and (row.until is None or since <= row.until)
    ]


def _range(since: int, until: int | None) -> dict[str, Any]:
    major = microversions.MAXIMUM.major
    return {"min-ver": f"{major}.{since}", "max-ver": None if until is None else f"{major}.{until}"}


def _schema(schema: Any) -> Any:
    r"""In the words of JSON Schema 2020-12, whose patterns know no ``\Z``."""
    if isinstance(schema, dict):
        return {key.replace(r"\Z", "$"): _schema(value) for key, value in schema.items()}
    if isinstance(schema, list | tuple):
        return [_schema(item) for item in schema]
    return schema.replace(r"\Z", "$") if isinstance(schema, str) else schema


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
