"""Lists as Neutron gives them: filtered by any attribute, sorted, in pages, with the fields that are asked for."""

from __future__ import annotations

import functools
from typing import Any
from urllib.parse import urlencode

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.base import exceptions

View = dict[str, Any]

_PAGING = ("fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir")

#: What clients may narrow a list by although nothing here has it: nothing is found by it.
_NOBODYS = ("tags", "tags-any", "changed_since")
_NEGATIVE = ("not-tags", "not-tags-any")


def shown(req: ServiceRequest, key: str, view: View) -> Response:
    """One thing, with the fields that are asked for."""
    return Response({key: _cut(req, view)})


def listed(req: ServiceRequest, key: str, views: list[View], attributes: set[str], max_limit: int) -> Response:
    """``key``: the collection's; ``attributes``: those that its things have, also where there are none. Raises a 400
    for a filter or a sort key that there is not."""
    found = [view for view in views if all(_passes(view, *each) for each in _filters(req, attributes))]
    found = _sorted(req, found, attributes)
    page, links = _page(req, key, found, max_limit)
    return Response({key: [_cut(req, view) for view in page], **links})


def _cut(req: ServiceRequest, view: View) -> View:
    fields = {name for text in req.GET.getall("fields") for name in text.split(",") if name}
    return {name: view[name] for name in view if name in fields} if fields else view


def _filters(req: ServiceRequest, attributes: set[str]) -> list[tuple[str, list[str]]]:
    names = [name for name in dict.fromkeys(req.GET) if name not in (*_PAGING, *_NEGATIVE)]
    unknown = [name for name in names if name not in attributes and name not in _NOBODYS]
    if unknown:
        raise exceptions.ValidationError(
            detail=f"{', '.join(repr(name[:64]) for name in unknown)} is invalid attribute for filtering"
        )
    return [(name, req.GET.getall(name)) for name in names]


def _passes(view: View, name: str, values: list[str]) -> bool:
    """Whether the attribute is one of ``values``; several parts (``ip_address=…``) of a list have all to be there."""
    if name in _NOBODYS:
        return not any(values)
    has = view.get(name)
    if isinstance(has, list):
        if any(isinstance(each, dict) for each in has) or name == "fixed_ips":
            return all(_has_part(has, value) for value in values)
        return any(value in map(_text, has) for value in values)
    return any(_text(has) == _text(value) for value in values)


def _has_part(has: list[Any], value: str) -> bool:
    """``value``: "attribute=value", of one of the parts; ``…_substr`` for a part of it."""
    name, _, wanted = value.partition("=")
    if name.endswith("_substr"):
        return any(wanted in _text(part.get(name.removesuffix("_substr"))) for part in has)
    return any(_text(part.get(name)) == wanted for part in has)


def _text(value: Any) -> str:
    """As texts are compared: truth in one form, and nothing as nothing."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return str(value).lower()
    return "" if value is None or value == "null" else str(value)


def _sorted(req: ServiceRequest, found: list[View], attributes: set[str]) -> list[View]:
    keys, directions = req.GET.getall("sort_key"), req.GET.getall("sort_dir")
    if len(directions) not in (0, len(keys)) or any(each not in ("asc", "desc") for each in directions):
        raise exceptions.ValidationError(detail="Each sort_key has one sort_dir, asc or desc, or none has one.")
    for key in keys:
        if key not in attributes:
            raise exceptions.ValidationError(detail=f"{key[:64]} is invalid attribute for sort keys")
    for key, direction in reversed(list(zip(keys, directions or ["asc"] * len(keys), strict=True))):
        found = sorted(found, key=functools.partial(_sort_value, key), reverse=direction == "desc")
    return found


def _sort_value(key: str, view: View) -> tuple[bool, float, str]:
    """Nothing first, numbers as numbers."""
    value = view.get(key)
    number = float(value) if isinstance(value, int) else 0.0
    return value is not None, number, "" if isinstance(value, int) else str(value)


def _page(req: ServiceRequest, key: str, found: list[View], max_limit: int) -> tuple[list[View], dict[str, Any]]:
    limit = min(_limit(req) or max_limit, max_limit)
    backwards = req.GET.get("page_reverse", "").lower() in ("true", "1")
    marker = req.GET.get("marker")
    ids = [view["id"] for view in found]
    if marker and marker not in ids:
        raise exceptions.MarkerNotFound(marker=marker[:64])
    place = ids.index(marker) if marker else None
    if backwards:
        end = len(found) if place is None else place
        start = max(0, end - limit)
    else:
        start = 0 if place is None else place + 1
        end = min(len(found), start + limit)
    links = []
    if end < len(found) and end > start:
        links.append({"rel": "next", "href": _link(req, ids[end - 1], limit, False)})
    if start > 0 and end > start:
        links.append({"rel": "previous", "href": _link(req, ids[start], limit, True)})
    return found[start:end], {f"{key}_links": links} if links else {}


def _limit(req: ServiceRequest) -> int:
    """0: not said."""
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
