"""``/flavors``: the sizes of servers."""

from __future__ import annotations

from typing import Any, NamedTuple

from oslo_utils import strutils

from nova_lite.api import shared_objects
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import Flavor
from nova_lite.policies import flavors as policies

# --- schemas

_FLAVOR_21: t.Schema = {
    "name": t.NAME,
    "id": {
        "type": ["string", "number", "null"],
        "minimum": 0,
        "minLength": 1,
        "maxLength": 255,
        "pattern": r"^(?! )[a-zA-Z0-9. _-]+(?<! )$",
    },
    "ram": t.POSITIVE,
    "vcpus": t.POSITIVE,
    "disk": t.NON_NEGATIVE,
    "OS-FLV-EXT-DATA:ephemeral": t.NON_NEGATIVE,
    "swap": t.NON_NEGATIVE,
    "rxtx_factor": {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$", "minimum": 1e-9, "maximum": 1e9},
    "os-flavor-access:is_public": t.BOOLEAN,
}
_DESCRIPTION: t.Schema = {"type": ["string", "null"], "maxLength": 65535, "format": "printable"}
_FLAVOR_2102: t.Schema = {
    **{name: schema for name, schema in _FLAVOR_21.items() if name != "rxtx_factor"},
    "description": _DESCRIPTION,
}
_REQUIRED = ("name", "ram", "vcpus", "disk")

CREATE_BODY = Versioned(
    {
        1: t.wrapped("flavor", t.strict(_FLAVOR_21, _REQUIRED)),
        Change.FLAVOR_DESCRIPTION: t.wrapped(
            "flavor", t.strict({**_FLAVOR_21, "description": _DESCRIPTION}, _REQUIRED)
        ),
        Change.NO_UNKNOWN_QUERIES: t.wrapped("flavor", t.strict(_FLAVOR_2102, _REQUIRED)),
    }
)

UPDATE_BODY = t.wrapped("flavor", t.strict({"description": _DESCRIPTION}, ("description",)))

_SORT_KEYS = (
    "created_at", "description", "disabled", "ephemeral_gb", "flavorid", "id", "is_public", "memory_mb", "name",
    "root_gb", "swap", "updated_at", "vcpus",
)  # fmt: skip
_LIST: t.Schema = {
    **t.PAGING,
    "is_public": t.Q_ANY,
    "minRam": t.Q_ANY,
    "minDisk": t.Q_ANY,
    "sort_key": t.repeatable(t.one_of(*_SORT_KEYS, "rxtx_factor")),
    "sort_dir": t.Q_SORT_DIR,
}
_LIST_2102: t.Schema = {**_LIST, "name": t.Q_REGEX, "sort_key": t.repeatable(t.one_of(*_SORT_KEYS))}

INDEX_QUERY = Versioned(
    {
        1: t.loose_query(_LIST),
        Change.STRICT_QUERIES: t.strict(_LIST),
        Change.NO_UNKNOWN_QUERIES: t.strict(_LIST_2102),
    }
)


# --- routes


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

    @declares(policies.INDEX, query=INDEX_QUERY, response="flavors")
    def index(self, req: Request) -> Response:
        flavors, links = self._list(req)
        return Response({"flavors": _short_views(req, flavors), **links})

    @declares(policies.DETAIL, query=INDEX_QUERY, response="flavors")
    def detail(self, req: Request) -> Response:
        flavors, links = self._list(req)
        return Response({"flavors": _detail_views(req, flavors), **links})

    @declares(policies.SHOW, query=t.NO_PARAMETERS, response="flavor")
    def show(self, req: Request, id: str) -> Response:
        return Response({"flavor": _view(req, self.conductor.flavor_get(req.context, id))})

    @declares(policies.CREATE, body=CREATE_BODY, response="flavor")
    def create(self, req: Request) -> Response:
        flavor = self.conductor.flavor_create(req.context, _flavor(req.data["flavor"]))
        return Response({"flavor": _view(req, flavor)})

    @declares(policies.UPDATE, body=UPDATE_BODY, response="flavor")
    def update(self, req: Request, id: str) -> Response:
        flavor = self.conductor.flavor_update(req.context, id, req.data["flavor"]["description"])
        return Response({"flavor": _view(req, flavor)})

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
    """Return the visibility filter: True for public flavors, False for private ones, None for both.

    Callers without permission for private flavors always get the public ones.
    """
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
    """Return the flavor of a request. Its id is empty if the conductor has to generate it."""
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


# --- views


def _short_views(req: Request, flavors: list[Flavor]) -> list[dict[str, Any]]:
    return [_short_view(req, flavor) for flavor in flavors]


class Form(NamedTuple):
    """All that a detailed view depends on, apart from the flavor: version, fronts of links, permission."""

    minor: int
    url: str
    bookmark_url: str
    with_specs: bool

    def has(self, change: Change) -> bool:
        return self.minor >= change


def _detail_views(req: Request, flavors: list[Flavor]) -> list[Any]:
    """Return the views of flavors: values, or JSON texts from the cache."""
    with_specs = req.has(Change.FLAVOR_EXTRA_SPECS) and req.allows(policies.SPECS_INDEX)
    form = Form(req.version.minor, req.link(), req.bookmark(), with_specs)
    return [shared_objects.view(flavor, form, _detail_view) for flavor in flavors]


def _view(req: Request, flavor: Flavor) -> Any:
    return _detail_views(req, [flavor])[0]


def embedded_view(flavor: Flavor, with_specs: bool) -> dict[str, Any]:
    """Return the flavor in the form in which a server shows it since 2.47."""
    view: dict[str, Any] = {
        "vcpus": flavor.vcpus,
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "ephemeral": flavor.ephemeral_gb,
        "swap": flavor.swap,
        "original_name": flavor.name,
    }
    if with_specs:
        view["extra_specs"] = flavor.extra_specs
    return view


def _short_view(req: Request, flavor: Flavor) -> dict[str, Any]:
    return _short(flavor, Form(req.version.minor, req.link(), req.bookmark(), with_specs=False))


def _short(flavor: Flavor, form: Form) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": flavor.flavorid,
        "name": flavor.name,
        "links": [
            {"rel": "self", "href": f"{form.url}/flavors/{flavor.flavorid}"},
            {"rel": "bookmark", "href": f"{form.bookmark_url}/flavors/{flavor.flavorid}"},
        ],
    }
    if form.has(Change.FLAVOR_DESCRIPTION):
        view["description"] = flavor.description
    return view


def _detail_view(flavor: Flavor, form: Form) -> dict[str, Any]:
    no_swap: Any = 0 if form.has(Change.STRICT_QUERIES) else ""
    view = _short(flavor, form) | {
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "swap": flavor.swap or no_swap,
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "vcpus": flavor.vcpus,
        "os-flavor-access:is_public": flavor.is_public,
    }
    if not form.has(Change.NO_UNKNOWN_QUERIES):
        view |= {"OS-FLV-DISABLED:disabled": flavor.disabled, "rxtx_factor": flavor.rxtx_factor}
    if form.with_specs:
        view["extra_specs"] = flavor.extra_specs
    return view
