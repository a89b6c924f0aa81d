"""``/flavors``."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute.schemas import flavors as schemas
from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import flavors as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Flavor
from nova_lite.policies import flavors as policies


class Flavors(Extension):
    alias = "flavors"
    title = "Flavors"
    routes = (
        Route("GET", "/flavors", "index"),
        Route("GET", "/flavors/detail", "detail"),
        Route("POST", "/flavors", "create"),
        Route("GET", "/flavors/{id}", "show"),
        Route("PUT", "/flavors/{id}", "update", since=Change.FLAVOR_DESCRIPTION),
        Route("DELETE", "/flavors/{id}", "delete"),
    )

    @declares(policies.INDEX, query=schemas.INDEX, answer="flavors")
    def index(self, req: Request) -> Response:
        flavors, links = self._list(req)
        return Response({"flavors": views.index(req, flavors), **links})

    @declares(policies.DETAIL, query=schemas.INDEX, answer="flavors")
    def detail(self, req: Request) -> Response:
        flavors, links = self._list(req)
        return Response({"flavors": views.detail(req, flavors), **links})

    @declares(policies.SHOW, query=queries.NOTHING, answer="flavor")
    def show(self, req: Request, id: str) -> Response:
        return Response({"flavor": views.show(req, self.conductor.flavor_get(req.context, id))})

    @declares(policies.CREATE, body=schemas.CREATE, answer="flavor")
    def create(self, req: Request) -> Response:
        flavor = self.conductor.flavor_create(req.context, _flavor(req.data["flavor"]))
        return Response({"flavor": views.show(req, flavor)})

    @declares(policies.UPDATE, body=schemas.UPDATE, answer="flavor")
    def update(self, req: Request, id: str) -> Response:
        flavor = self.conductor.flavor_update(req.context, id, req.data["flavor"]["description"])
        return Response({"flavor": views.show(req, flavor)})

    @declares(policies.DELETE, status=202)
    def delete(self, req: Request, id: str) -> Response:
        self.conductor.flavor_delete(req.context, id)
        return Response(status=202)

    def _list(self, req: Request) -> tuple[list[Flavor], dict[str, Any]]:
        query = req.query
        flavors = self.conductor.flavor_list(
            req.context,
            _is_public(req, query),
            _number(query, "minRam"),
            _number(query, "minDisk"),
            query.limit,
            query.marker,
            query.one("sort_key") or "flavorid",
            query.one("sort_dir") or "asc",
            query.one("name"),
        )
        return flavors, req.next_page("flavors_links", flavors, query.limit, lambda item: item.flavorid)


def _is_public(req: Request, query: Query) -> bool | None:
    """Which flavors: public ones, private ones, or (None) both; whoever may not see private ones gets public ones."""
    if not req.allows(policies.LIST_PRIVATE):
        return True
    text = query.one("is_public")
    if text is None:
        return True
    if text.lower() == "none":
        return None
    try:
        return strutils.bool_from_string(text, strict=True)
    except ValueError as error:
        raise exceptions.ValidationError(detail=f"Invalid is_public filter [{text[:64]}]") from error


def _number(query: Query, name: str) -> int | None:
    text = query.one(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise exceptions.ValidationError(detail=f"Invalid {name} filter [{text[:64]}]") from error


def _flavor(body: dict[str, Any]) -> Flavor:
    """An id that is left out, null or "auto" is made up by the conductor."""
    flavorid = body.get("id")
    return Flavor(
        flavorid="" if flavorid is None or flavorid == "auto" else str(flavorid),
        name=body["name"].strip(),
        vcpus=int(body["vcpus"]),
        memory_mb=int(body["ram"]),
        root_gb=int(body["disk"]),
        ephemeral_gb=int(body.get("OS-FLV-EXT-DATA:ephemeral", 0)),
        swap=int(body.get("swap", 0)),
        rxtx_factor=float(body.get("rxtx_factor", 1.0)),
        is_public=strutils.bool_from_string(body.get("os-flavor-access:is_public", True)),
        description=body.get("description"),
    )
