"""Lists in Neutron's form: filtered by any attribute, sorted, in pages, with the requested fields."""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import urlencode

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.base import exceptions

View = dict[str, Any]

_PAGING = ("fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir")

#: Filters that clients may use although no resource has the attribute. They match nothing.
_UNMATCHED = ("tags", "tags-any", "changed_since")
#: Filters that exclude tags. No resource has tags, so they match everything.
_NEGATIVE = ("not-tags", "not-tags-any")


def shown(req: ServiceRequest, key: str, view: View) -> Response:
    """Return the response for one resource, with the requested fields."""
    return Response({key: _cut(req, view)})


def listed(req: ServiceRequest, key: str, views: list[View], attributes: set[str], max_limit: int) -> Response:
    """Return the response for a list. Raises a 400 for an unknown filter or sort key.

    ``key``: name of the collection. ``attributes``: of its resources, needed for an empty list.
    """
    matches = [view for view in views if all(_passes(view, *condition) for condition in _filters(req, attributes))]
    matches = _sorted(req, matches, attributes)
    page, links = _page(req, key, matches, max_limit)
    return Response({key: [_cut(req, view) for view in page], **links})


def _cut(req: ServiceRequest, view: View) -> View:
    fields = {name for text in req.GET.getall("fields") for name in text.split(",") if name}
    return {name: view[name] for name in view if name in fields} if fields else view


def _filters(req: ServiceRequest, attributes: set[str]) -> list[tuple[str, list[str]]]:
    names = [name for name in dict.fromkeys(req.GET) if name not in (*_PAGING, *_NEGATIVE)]
    unknown = [name for name in names if name not in attributes and name not in _UNMATCHED]
    if unknown:
        raise exceptions.ValidationError(
            detail=f"{', '.join(repr(name[:64]) for name in unknown)} is invalid attribute for filtering"
        )
    return [(name, req.GET.getall(name)) for name in names]


def _passes(view: View, name: str, values: list[str]) -> bool:
    """Return whether the attribute has one of ``values``. Conditions on parts (``ip_address=…``) must all match."""
    if name in _UNMATCHED:
        return not any(values)
    actual = view.get(name)
    if isinstance(actual, list):
        if any(isinstance(part, dict) for part in actual) or name == "fixed_ips":
            return all(_has_part(actual, value) for value in values)
        return any(value in map(_text, actual) for value in values)
    return any(_text(actual) == _text(value) for value in values)


def _has_part(parts: list[Any], condition: str) -> bool:
    """Return whether a part matches "attribute=value", or contains the value if the name ends in ``_substr``."""
    name, _, value = condition.partition("=")
    if name.endswith("_substr"):
        return any(value in _text(part.get(name.removesuffix("_substr"))) for part in parts)
    return any(_text(part.get(name)) == value for part in parts)


def _text(value: Any) -> str:
    """Return the text for comparisons: booleans in lower case, an empty text for null."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return str(value).lower()
    return "" if value is None or value == "null" else str(value)


def _sorted(req: ServiceRequest, matches: list[View], attributes: set[str]) -> list[View]:
    keys, directions = req.GET.getall("sort_key"), req.GET.getall("sort_dir")
    if len(directions) not in (0, len(keys)) or any(direction not in ("asc", "desc") for direction in directions):
        raise exceptions.ValidationError(detail="Give one sort_dir (asc or desc) for each sort_key, or none.")
    for key in keys:
        if key not in attributes:
            raise exceptions.ValidationError(detail=f"{key[:64]} is invalid attribute for sort keys")
    for key, direction in reversed(list(zip(keys, directions or ["asc"] * len(keys), strict=True))):
        matches = sorted(matches, key=functools.partial(_sort_value, key), reverse=direction == "desc")
    return matches


def _sort_value(key: str, view: View) -> tuple[bool, float, str]:
    """Return the value for sorting: null first, numbers by value."""
    value = view.get(key)
    number = float(value) if isinstance(value, int) else 0.0
    return value is not None, number, "" if isinstance(value, int) else str(value)


def _page(req: ServiceRequest, key: str, matches: list[View], max_limit: int) -> tuple[list[View], dict[str, Any]]:
    limit = min(_limit(req) or max_limit, max_limit)
    backwards = req.GET.get("page_reverse", "").lower() in ("true", "1")
    marker = req.GET.get("marker")
    ids = [view["id"] for view in matches]
    if marker and marker not in ids:
        raise exceptions.MarkerNotFound(marker=marker[:64])
    place = ids.index(marker) if marker else None
    if backwards:
        end = len(matches) if place is None else place
        start = max(0, end - limit)
    else:
        start = 0 if place is None else place + 1
        end = min(len(matches), start + limit)
    links = []
    if end < len(matches) and end > start:
        links.append({"rel": "next", "href": _link(req, ids[end - 1], limit, False)})
    if start > 0 and end > start:
        links.append({"rel": "previous", "href": _link(req, ids[start], limit, True)})
    return matches[start:end], {f"{key}_links": links} if links else {}


def _limit(req: ServiceRequest) -> int:
    """Return the limit of the query, 0 if there is none."""
    text = req.GET.get("limit", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise exceptions.ValidationError(detail="limit must be an integer of 0 or above.")
    return int(text)


def _link(req: ServiceRequest, marker: str, limit: int, backwards: bool) -> str:
    query = [(name, value) for name, value in req.GET.items() if name not in ("marker", "page_reverse", "limit")]
    query += [("limit", str(limit)), ("marker", marker)]
    if backwards:
        query.append(("page_reverse", "True"))
    return f"{req.base_url}{req.environ['PATH_INFO']}?{urlencode(query)}"
