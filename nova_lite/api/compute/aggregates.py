"""``/os-aggregates``: groups of hosts, and the availability zones made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, action, declares
from nova_lite.base import exceptions
from nova_lite.objects import Aggregate
from nova_lite.policies import aggregates as policies

# --- schemas

_PROPERTIES: t.Schema = {"name": t.NAME, "availability_zone": {"oneOf": [t.NAME, {"type": "null"}]}}
_METADATA = t.keyed(type=["string", "null"])

CREATE_BODY = t.wrapped("aggregate", t.strict(_PROPERTIES, ("name",)))
UPDATE_BODY = t.wrapped("aggregate", t.strict(_PROPERTIES, minProperties=1))
ADD_HOST_BODY = t.wrapped("add_host", t.strict({"host": t.HOST}, ("host",)))
REMOVE_HOST_BODY = t.wrapped("remove_host", t.strict({"host": t.HOST}, ("host",)))
SET_METADATA_BODY = t.wrapped("set_metadata", t.strict({"metadata": _METADATA}, ("metadata",)))
IMAGES_BODY = t.wrapped("cache", {"type": "array", "minItems": 1, "items": t.strict({"id": t.UUID}, ("id",))})


# --- routes

_PATH = "/os-aggregates"
_ONE = _PATH + "/{id}"


class Aggregates(Extension):
    alias = "os-aggregates"
    title = "Host aggregates"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create"),
        Route("GET", _ONE, "show"),
        Route("PUT", _ONE, "update"),
        Route("DELETE", _ONE, "delete"),
        Route("POST", _ONE + "/images", "cache_images", since=Change.AGGREGATE_IMAGES),
        action("os-aggregates", "add_host", "add_host"),
        action("os-aggregates", "remove_host", "remove_host"),
        action("os-aggregates", "set_metadata", "set_metadata"),
    )

    @declares(policies.INDEX, query=t.NO_PARAMETERS, response="aggregates")
    def index(self, req: Request) -> Response:
        return Response(
            {"aggregates": [_view(req, aggregate) for aggregate in self.conductor.aggregate_list(req.context)]}
        )

    @declares(policies.CREATE, body=CREATE_BODY, response="aggregate")
    def create(self, req: Request) -> Response:
        body = req.data["aggregate"]
        created = self.conductor.aggregate_create(req.context, body["name"], body.get("availability_zone"))
        return Response({"aggregate": _created_view(req, created)})

    @declares(policies.SHOW, query=t.NO_PARAMETERS, response="aggregate")
    def show(self, req: Request, id: str) -> Response:
        return Response({"aggregate": _view(req, self.conductor.aggregate_get(req.context, _number(id)))})

    @declares(policies.UPDATE, body=UPDATE_BODY, response="aggregate")
    def update(self, req: Request, id: str) -> Response:
        changes = req.data["aggregate"]
        with _conflict_as_bad_request():
            changed = self.conductor.aggregate_update(req.context, _number(id), changes)
        return Response({"aggregate": _view(req, changed)})

    @declares(policies.DELETE)
    def delete(self, req: Request, id: str) -> Response:
        with _conflict_as_bad_request():
            self.conductor.aggregate_delete(req.context, _number(id))
        return Response()

    @declares(policies.ADD_HOST, body=ADD_HOST_BODY, response="aggregate")
    def add_host(self, req: Request, id: str) -> Response:
        host = req.data["add_host"]["host"]
        changed = self.conductor.aggregate_add_host(req.context, _number(id), host)
        return Response({"aggregate": _view(req, changed)})

    @declares(policies.REMOVE_HOST, body=REMOVE_HOST_BODY, response="aggregate")
    def remove_host(self, req: Request, id: str) -> Response:
        host = req.data["remove_host"]["host"]
        changed = self.conductor.aggregate_remove_host(req.context, _number(id), host)
        return Response({"aggregate": _view(req, changed)})

    @declares(policies.SET_METADATA, body=SET_METADATA_BODY, response="aggregate")
    def set_metadata(self, req: Request, id: str) -> Response:
        metadata = req.data["set_metadata"]["metadata"]
        with _conflict_as_bad_request():
            changed = self.conductor.aggregate_set_metadata(req.context, _number(id), metadata)
        return Response({"aggregate": _view(req, changed)})

    @declares(policies.IMAGES, body=IMAGES_BODY, status=202)
    def cache_images(self, req: Request, id: str) -> Response:
        """Request that the hosts cache images. They fetch the images after the response."""
        images = [image["id"] for image in req.data["cache"]]
        if len(set(images)) < len(images):
            raise exceptions.ValidationError(detail="Duplicate images in request")
        number = _number(id)
        described = self.images.describe(req.context, images)
        self.conductor.aggregate_cache_images(req.context, number, images, described)
        return Response(status=202)


def _number(aggregate_id: str) -> str:
    """Check an aggregate's id.

    A name is a 400, because clients then search the list for it. A negative number is a 404.
    """
    digits = aggregate_id.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise exceptions.ValidationError(detail=f"Invalid aggregate id {aggregate_id[:64]}: it must be an integer.")
    if digits != aggregate_id:
        raise exceptions.AggregateNotFound(aggregate_id=aggregate_id)
    return aggregate_id


@contextlib.contextmanager
def _conflict_as_bad_request() -> Iterator[None]:
    """Turn the conflict that an aggregate's hosts cause into a 400.

    Only adding and removing hosts returns it as a 409.
    """
    try:
        yield
    except exceptions.InvalidAggregateAction as error:
        raise exceptions.ValidationError(detail=error.message) from error


# --- views


def _view(req: Request, aggregate: Aggregate) -> dict[str, Any]:
    return _created_view(req, aggregate) | {"hosts": aggregate.hosts, "metadata": aggregate.metadata}


def _created_view(req: Request, aggregate: Aggregate) -> dict[str, Any]:
    """Return the response to a create, which has neither hosts nor metadata."""
    view: dict[str, Any] = {
        "id": aggregate.id,
        "name": aggregate.name,
        "availability_zone": aggregate.availability_zone,
        "created_at": view_helpers.iso_micros(aggregate.created_at),
        "updated_at": view_helpers.iso_micros(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
    if req.has(Change.AGGREGATE_UUID):
        view["uuid"] = aggregate.uuid
    return view
