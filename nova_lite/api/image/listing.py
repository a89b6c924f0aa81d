"""Filters, sort order and pages of image lists. Images are few, so this filters all images of the caller."""

from __future__ import annotations

import csv
import datetime
import operator
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.image import views
from nova_lite.base import exceptions
from nova_lite.objects import Image

_SORT_KEYS = (
    "name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at", "visibility",
    "owner", "min_disk", "min_ram",
)  # fmt: skip
_CONTROL = ("limit", "marker", "sort", "sort_key", "sort_dir", "member_status")
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
_ACCEPTS_LISTS = ("id", "name", "status", "container_format", "disk_format")


def page(req: ServiceRequest, images: Iterable[Image], max_limit: int) -> dict[str, Any]:
    """Return ``{"images": [...], "first": ..., "next": ...}``. Raises `Invalid` for an unknown filter or sort key."""
    filters = [(name, value) for name, value in req.GET.items() if name not in _CONTROL]
    chosen = [
        image for image in images if _visible(req, image) and all(_match(image, name, value) for name, value in filters)
    ]
    for key, descending in reversed(_order(req)):
        chosen.sort(key=lambda image, key=key: _sort_value(image, key), reverse=descending)  # type: ignore[misc]
    start = _after(req.GET.get("marker"), chosen)
    limit = min(_number("limit", req.GET.get("limit", str(max_limit))), max_limit)
    shown = chosen[start : start + limit]
    query = [(name, value) for name, value in req.GET.items() if name != "marker"]
    body: dict[str, Any] = {
        "images": [views.show(image) for image in shown],
        "first": _url(query),
        "schema": "/v2/schemas/images",
    }
    if shown and start + limit < len(chosen):
        body["next"] = _url([*query, ("marker", shown[-1].id)])
    return body


def _url(query: list[tuple[str, str]]) -> str:
    return "/v2/images" + (f"?{urlencode(query)}" if query else "")


def _visible(req: ServiceRequest, image: Image) -> bool:
    """Hide community images of other projects, unless the query has the filter ``visibility``, and images that are
    shared with the project, unless it has accepted them or the query has their ``member_status``.
    """
    wanted = _member_status(req)
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
    if name in _ACCEPTS_LISTS and value.startswith("in:"):
        return str(shown) in next(csv.reader([value[3:]]), [])
    return shown is not None and str(shown) == value


def _compare(moment: datetime.datetime | None, name: str, value: str) -> bool:
    name_of_operator, _, text = value.partition(":")
    if name_of_operator not in _OPERATORS:
        name_of_operator, text = "eq", value
    try:
        limit = datetime.datetime.fromisoformat(text)
        if limit.tzinfo is not None:
            limit = limit.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise exceptions.ValidationError(detail=f"Invalid time for {name}: {value[:64]}") from error
    if moment is None:
        return False
    return bool(_OPERATORS[name_of_operator](moment.replace(microsecond=0), limit))


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


def _sort_value(image: Image, key: str) -> Any:
    value = getattr(image, key)
    if key == "updated_at" and value is None:
        value = image.created_at
    return (value is not None, value) if value is not None else (False,)


def _after(marker: str | None, images: list[Image]) -> int:
    if marker is None:
        return 0
    for index, image in enumerate(images):
        if image.id == marker:
            return index + 1
    raise exceptions.MarkerNotFound(marker=marker[:64])


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise exceptions.ValidationError(detail=f"{name} param must be a positive integer")
    return int(text)
