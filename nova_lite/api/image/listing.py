"""Filters, sort order and pages of image lists.

The conductor reads one page at a time, by the filters that are columns. The others are applied here, so a list reads on
until it has a page.
"""

from __future__ import annotations

import csv
import datetime
import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import msgspec

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.image import views
from nova_lite.base import exceptions
from nova_lite.objects import Image, ImageQuery

_SORT_KEYS = (
    "name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at", "visibility",
    "owner", "min_disk", "min_ram",
)  # fmt: skip
_CONTROL = ("limit", "marker", "sort", "sort_key", "sort_dir", "member_status")
#: Parameters of the queries of lists. Names of properties are filters, too.
PARAMETERS = (*_CONTROL, *views.FIELDS, "size_min", "size_max", "tag")
#: Statuses of a project that an image is shared with.
MEMBER_STATUSES = ("pending", "accepted", "rejected")
_OPERATORS = {
    "gt": operator.gt,
    "gte": operator.ge,
    "eq": operator.eq,
    "neq": operator.ne,
    "lt": operator.lt,
    "lte": operator.le,
}
#: Filters by columns. The texts of others have several forms.
_SELECTABLE = ("id", "name", "status", "container_format", "disk_format", "visibility", "owner")
#: Images that are read at a time once a page needs more than its own.
MAX_CHUNK = 1000
_ACCEPTS_LISTS = ("id", "name", "status", "container_format", "disk_format")


def page(req: ServiceRequest, fetch: Callable[[ImageQuery], list[Image]], max_limit: int) -> dict[str, Any]:
    """Return ``{"images": [...], "first": ..., "next": ...}``. Raises `Invalid` for an unknown filter or sort key.

    ``fetch`` returns the images of a query.
    """
    filters = [(name, value) for name, value in req.GET.items() if name not in _CONTROL]
    limit = min(_number("limit", req.GET.get("limit", str(max_limit))), max_limit)
    query = _query(req, filters)
    matches = (image for image in _read(fetch, query, limit + 1) if _visible(req, image) and _matches(image, filters))
    found = list(itertools.islice(matches, limit + 1)) if limit else []
    shown = found[:limit]
    query_of_page = [(name, value) for name, value in req.GET.items() if name != "marker"]
    body: dict[str, Any] = {
        "images": [views.show(image) for image in shown],
        "first": _url(query_of_page),
        "schema": "/v2/schemas/images",
    }
    if len(found) > limit:
        body["next"] = _url([*query_of_page, ("marker", shown[-1].id)])
    return body


def _read(fetch: Callable[[ImageQuery], list[Image]], query: ImageQuery, needed: int) -> Iterator[Image]:
    """Yield the images of the query in its order. ``needed``: the number that is probably needed."""
    size = needed
    while True:
        images = fetch(msgspec.structs.replace(query, limit=size))
        yield from images
        if len(images) < size:
            return
        query = msgspec.structs.replace(query, marker=images[-1].id)
        size = MAX_CHUNK


def _query(req: ServiceRequest, filters: list[tuple[str, str]]) -> ImageQuery:
    """Return the query that selects all matching images, and perhaps others. Raises the errors of the filters."""
    order = _order(req)
    query = ImageQuery(
        community="visibility" in req.GET,
        sort_keys=[key for key, _ in order],
        sort_dirs=["desc" if descending else "asc" for _, descending in order],
        marker=req.GET.get("marker"),
    )
    for name, value in filters:
        if name in ("size_min", "size_max"):
            bounds = query.minimums if name == "size_min" else query.maximums
            bounds["size"] = _number(name, value)
        elif name in ("created_at", "updated_at"):
            _select_time(query, name, *_time(name, value))
        elif name in _SELECTABLE and (name, value) != ("visibility", "all"):
            values = _values(name, value)
            if name == "visibility" and not set(values) <= set(views.VISIBILITIES):
                known = ", ".join((*views.VISIBILITIES, "all"))
                raise exceptions.ValidationError(detail=f"Invalid visibility: {value[:64]}. It is one of {known}.")
            query.filters[name] = values
    return query


def _select_time(query: ImageQuery, name: str, compare: str, limit: datetime.datetime) -> None:
    """Select the times around a limit. `_compare` decides about the second of the limit itself."""
    second = datetime.timedelta(seconds=1)
    try:
        if compare in ("gt", "gte", "eq"):
            query.earliest[name] = limit - second
        if compare in ("lt", "lte", "eq"):
            query.latest[name] = limit + second
    except OverflowError:  # nothing is that old or that new
        return


def _url(query: list[tuple[str, str]]) -> str:
    return "/v2/images" + (f"?{urlencode(query)}" if query else "")


def _visible(req: ServiceRequest, image: Image) -> bool:
    """Hide images with ``os_hidden``, unless the query names it, and community images of other projects, unless the
    query has the filter ``visibility``. Hide images that are shared with the project, unless it has accepted them or
    the query has their ``member_status``.
    """
    wanted = _member_status(req)
    if image.hidden and "os_hidden" not in req.GET:
        return False
    if image.owner is not None and image.owner == req.context.project_id:
        return True
    if image.visibility == "shared" and image.member_status is not None:
        return wanted in ("all", image.member_status)
    return "visibility" in req.GET or image.visibility != "community"


def _member_status(req: ServiceRequest) -> str:
    wanted: str = req.GET.get("member_status", "accepted")
    if wanted not in (*MEMBER_STATUSES, "all"):
        statuses = ", ".join((*MEMBER_STATUSES, "all"))
        raise exceptions.ValidationError(detail=f"Invalid status: {wanted[:64]}. It is one of {statuses}.")
    return wanted


def _matches(image: Image, filters: list[tuple[str, str]]) -> bool:
    return all(_match(image, name, value) for name, value in filters)


def _match(image: Image, name: str, value: str) -> bool:
    if name == "visibility" and value == "all":
        return True
    if name in ("size_min", "size_max"):
        limit = _number(name, value)
        return image.size >= limit if name == "size_min" else image.size <= limit
    if name in ("created_at", "updated_at"):
        return _compare(getattr(image, name) or image.created_at, name, value)
    if name == "tag":
        return value in image.tags
    shown = views.show(image).get(name)
    if isinstance(shown, bool):
        return shown is (value.lower() == "true")
    return shown is not None and str(shown) in _values(name, value)


def _values(name: str, value: str) -> list[str]:
    """Return the accepted values of a filter: of a list in ``in:a,b``, else the value itself."""
    if name not in _ACCEPTS_LISTS or not value.startswith("in:"):
        return [value]
    try:
        return next(csv.reader([value[3:]]), [])
    except csv.Error as error:
        raise exceptions.ValidationError(detail=f"Invalid list for {name}: {value[:64]}") from error


def _compare(moment: datetime.datetime | None, name: str, value: str) -> bool:
    compare, limit = _time(name, value)
    return moment is not None and bool(_OPERATORS[compare](moment.replace(microsecond=0), limit))


def _time(name: str, value: str) -> tuple[str, datetime.datetime]:
    """Return the comparison and the limit of a filter by time."""
    name_of_operator, _, text = value.partition(":")
    if name_of_operator not in _OPERATORS:
        name_of_operator, text = "eq", value
    try:
        limit = datetime.datetime.fromisoformat(text)
        if limit.tzinfo is not None:
            limit = limit.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise exceptions.ValidationError(detail=f"Invalid time for {name}: {value[:64]}") from error
    return name_of_operator, limit


def _order(req: ServiceRequest) -> list[tuple[str, bool]]:
    """Return pairs of field and whether it is descending. The id comes last and makes the order unique."""
    if "sort" in req.GET:
        if "sort_key" in req.GET or "sort_dir" in req.GET:
            raise exceptions.ValidationError(detail="Old and new sorting syntax cannot be combined")
        pairs = [part.partition(":")[::2] for part in req.GET["sort"].split(",")]
    else:
        directions = req.GET.getall("sort_dir")
        keys = req.GET.getall("sort_key") or ["created_at"]
        if len(directions) not in (0, 1, len(keys)):
            raise exceptions.ValidationError(detail="Number of sort dirs does not match the number of sort keys")
        directions = directions * len(keys) if len(directions) <= 1 else directions
        pairs = list(zip(keys, directions or ["desc"] * len(keys), strict=True))
    for key, direction in pairs:
        if key not in _SORT_KEYS:
            raise exceptions.InvalidSortKey(key=key[:64], valid=", ".join(_SORT_KEYS))
        if direction not in ("", "asc", "desc"):
            raise exceptions.ValidationError(detail="Invalid sort direction: must be asc or desc")
    return [(key, direction != "asc") for key, direction in [*pairs, ("id", "desc")]]


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise exceptions.ValidationError(detail=f"{name} param must be a positive integer")
    return int(text)
