"""Comparison of responses with the OpenAPI document."""

from __future__ import annotations

import functools
import re

import jsonschema
import webob

from nova_lite.api.http import openapi


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return patterns of all paths, those with few variables first, as the router matches them."""
    paths = sorted(openapi.document()["paths"], key=lambda path: (path.count("{"), path))
    return [(re.compile(re.sub(r"{\w+}", "[^/]+", path)), path) for path in paths]


def check(method: str, url: str, response: webob.Response) -> None:
    """Check a response against the document. ``url`` starts after the version (``/servers?limit=1``).

    Requests that are not operations are ignored.
    """
    where = url.partition("?")[0].rstrip("/")
    path = next((path for pattern, path in _patterns() if pattern.fullmatch(where)), None)
    operation = openapi.document()["paths"].get(path, {}).get(method.lower())
    if operation is None:
        return
    code = str(response.status_code)
    assert code == "500" or code in operation["responses"], f"{method} {path} answered {code}: {response.text}"
    described = operation["responses"].get(code, {})
    if "$ref" in described:
        described = openapi.document()["components"]["responses"][code]
        schema = openapi.document()["components"]["schemas"]["Fault"]
    elif "content" in described:
        schema = described["content"]["application/json"]["schema"]
    else:
        return
    if response.body or response.status_code < 400:
        jsonschema.Draft202012Validator(schema).validate(response.json)
