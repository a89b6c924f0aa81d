"""The kit of the services without microversions: declared routes and bodies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Annotated, Any, cast

import webob
from msgspec import Meta

from nova_lite.api.http import bodies, wsgi
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import PUBLIC, ServiceApplication, ServiceRequest, ServiceResource, route


def _given(sent: dict[str, Any], name: str) -> Any:
    return sent.get(name)


class _Changed(Body):
    name: Annotated[str, Meta(extra={"check": _given})] = ""
    size: Annotated[int, Meta(extra={"check": _given})] = SAME


class _Things(ServiceResource):
    """Things."""

    @route("GET", "/things/{id}", PUBLIC, response="thing")
    def show(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return {"id": id, "path": req.service_route.path}

    @route("POST", "/things", PUBLIC, response="thing", status=201)
    def create(self, req: ServiceRequest) -> dict[str, str]:
        return {"id": "1"}

    @route("DELETE", "/things/{id}", PUBLIC, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        return None

    @route("PUT", "/things/{id}", PUBLIC, response="thing")
    def update(self, req: ServiceRequest, id: str) -> wsgi.Response:
        return wsgi.Response({"other": id}, 202)


class _App(ServiceApplication):
    resources = (_Things,)


def _send(method: str, path: str) -> tuple[int, Any]:
    app = _App(cast(wsgi.ApiServices, SimpleNamespace(conf=None)))
    response = webob.Request.blank(path, method=method).get_response(app)
    return response.status_code, response.json if response.body else None


def test_result_of_handler_is_under_the_declared_key_with_the_declared_status() -> None:
    assert _send("POST", "/things") == (201, {"thing": {"id": "1"}})
    assert _send("DELETE", "/things/1") == (204, None)


def test_response_of_handler_is_sent_unchanged() -> None:
    assert _send("PUT", "/things/1") == (202, {"other": "1"})


def test_request_knows_the_route_that_serves_it() -> None:
    assert _send("GET", "/things/1") == (200, {"thing": {"id": "1", "path": "/things/{id}"}})


def test_null_is_the_default_unless_the_default_is_no_change() -> None:
    assert bodies.changes(_Changed, {"name": None, "size": None}) == {"name": ""}
    assert bodies.changes(_Changed, {"size": 5}) == {"size": 5}
    assert bodies.changes(_Changed, {}) == {}
