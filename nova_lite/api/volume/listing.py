"""Queries of volume and snapshot lists: filters, sort order and pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

from nova_lite.api.http import json_text
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.volume import versions
from nova_lite.api.volume.requests import flag, metadata
from nova_lite.base import exceptions
from nova_lite.objects import VolumeFilters


class HasId(Protocol):
    id: str


Item = TypeVar("Item", bound=HasId)


#: Parameters of the queries of pages, and of lists.
PAGE = ("limit", "marker", "offset")
PARAMETERS = (
    *PAGE, "sort", "sort_key", "sort_dir", "with_count", "all_tenants", "all_projects", "project_id", "bootable",
    "name", "display_name", "status", "volume_id", "metadata",
)  # fmt: skip


def query_of(req: ServiceRequest, max_limit: int) -> dict[str, Any]:
    """Return the arguments of `volume_list` and `snapshot_list`: filters, sort order, and the position of the page."""
    query = req.GET
    sort = query.get("sort")
    pairs = [part.partition(":")[::2] for part in sort.split(",")] if sort else []
    keys = [key for key, _ in pairs] or ([query["sort_key"]] if "sort_key" in query else [])
    dirs = [direction or "desc" for _, direction in pairs] or ([query["sort_dir"]] if "sort_dir" in query else [])
    limit = min(_number(query.get("limit"), "limit", max_limit), max_limit)
    return {
        "filters": _filters(req),
        "limit": limit,
        "marker": query.get("marker"),
        "sort_keys": ["name" if key == "display_name" else key for key in keys],
        "sort_dirs": dirs or ["desc"] * len(keys),
        "offset": _number(query.get("offset"), "offset", 0),
    }


def page_of(req: ServiceRequest, found: Sequence[Item], max_limit: int) -> Sequence[Item]:
    """Return a page of a short list, by ``marker``, ``offset`` and ``limit``. Items have ``id``."""
    query = req.GET
    limit = min(_number(query.get("limit"), "limit", max_limit), max_limit)
    start = _number(query.get("offset"), "offset", 0)
    if "marker" in query:
        ids = [item.id for item in found]
        if query["marker"] not in ids:
            raise exceptions.MarkerNotFound(marker=query["marker"][:64])
        start += ids.index(query["marker"]) + 1
    return found[start:][:limit]


def next_link(req: ServiceRequest, key: str, last: str | None) -> dict[str, Any]:
    """Return a link to the next page. ``last``: the last id on a full page, None on a page that is not full."""
    if last is None:
        return {}
    query = [(name, value) for name, value in req.GET.items() if name not in ("marker", "offset")]
    url = f"{req.base_url}{req.environ['PATH_INFO']}?{urlencode([*query, ('marker', last)])}"
    return {key: [{"rel": "next", "href": url}]}


def count(
    req: ServiceRequest, query: dict[str, Any], found: Sequence[Any], fetch: Callable[..., Sequence[Any]]
) -> dict[str, Any]:
    """Return the number of things that the filters match, on all pages, if the request wants it (3.45)."""
    if versions.minor_of(req) < versions.COUNTS or not flag(req.GET.get("with_count", False), "with_count"):
        return {}
    is_whole = query["marker"] is None and not query["offset"] and len(found) < query["limit"]
    whole = {**query, "limit": None, "marker": None, "offset": 0}
    return {"count": len(found if is_whole else fetch(req.context, **whole))}


def wants_all_projects(req: ServiceRequest) -> bool:
    return any(req.GET.get(name, "").lower() in ("1", "true") for name in ("all_tenants", "all_projects"))


def _filters(req: ServiceRequest) -> VolumeFilters:
    query = req.GET
    is_of_all = req.context.is_admin and wants_all_projects(req)
    project = query.get("project_id") if is_of_all else req.context.project_id
    bootable = query.get("bootable")
    return VolumeFilters(
        project_id=project,
        name=query.get("name", query.get("display_name")),
        status=query.get("status"),
        bootable=None if bootable is None else flag(bootable, "bootable"),
        volume_id=query.get("volume_id"),
        metadata=_pairs(query.get("metadata")),
    )


def _pairs(text: str | None) -> dict[str, str] | None:
    """Parse the filter ``metadata``. Clients send a Python dict or a JSON object."""
    if text is None:
        return None
    try:
        value = json_text.parse(text.replace("'", '"').encode())
    except exceptions.ValidationError as error:
        raise exceptions.ValidationError(detail="metadata must be an object.") from error
    return metadata(value)


def _number(text: str | None, name: str, default: int) -> int:
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise exceptions.ValidationError(detail=f"{name} must be an integer of 0 or above.")
    return int(text)
