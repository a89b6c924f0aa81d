"""Lists in Neutron's form: filtered by any attribute, sorted, in pages, with the requested fields."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Set
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlencode

from nova_lite.api.http import validation
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.base import exceptions
from nova_lite.objects import ListQuery

View = dict[str, Any]
#: An attribute and its accepted values.
Condition: TypeAlias = tuple[str, list[str]]


class Identified(Protocol):
    @property
    def id(self) -> str: ...


class Shown(NamedTuple):
    """A resource that its source has made already."""

    id: str
    view: View


_PAGING = ("fields", "limit", "marker", "page_reverse", "sort_key", "sort_dir")

#: The filter by the time of the last change, for resources that have `_CHANGED`.
_SINCE, _CHANGED = "changed_since", "updated_at"
#: Filters by tags. Each value is a list of tags, separated by commas.
_TAGS: dict[str, Callable[[set[str], set[str]], bool]] = {
    "tags": lambda present, named: named <= present,
    "tags-any": lambda present, named: not named.isdisjoint(present),
    "not-tags": lambda present, named: not named <= present,
    "not-tags-any": lambda present, named: named.isdisjoint(present),
}


def parameters(attributes: set[str]) -> tuple[str, ...]:
    """Return the names of the query parameters of a list."""
    return *_PAGING, *sorted(attributes), *_TAGS, *_since(attributes)


def _since(attributes: Set[str]) -> list[str]:
    return [_SINCE] if _CHANGED in attributes else []


def listed(req: ServiceRequest, key: str, source: Source[Any], attributes: set[str], max_limit: int) -> Response:
    """Return the response for a list. Raises a 400 for an unknown filter or sort key.

    ``key``: name of the collection. ``attributes``: of its resources, needed for an empty list. A list is in the order
    of ids and reads no more than its page, unless the query sorts it.
    """
    conditions = _filters(req, attributes | source.hidden)
    reader = _Reader(source, conditions, max_limit)
    if _sort_keys(req, attributes):
        matches = _sorted(req, list(reader.views(None, False)), attributes)
        page, links = _page(req, key, (matches, source.id_name), max_limit)
    else:
        page, links = _page_by_id(req, key, reader, max_limit)
    return Response({key: [cut(req, _without(view, source.hidden)) for view in page], **links})


Item = TypeVar("Item", bound=Identified)


class Source(Generic[Item]):
    """Things of a list.

    ``fetch`` returns the things that a query selects, in the order of their ids. It may return more than that, as older
    conductors do. ``views`` returns the resources that a thing is shown as. ``filters``: fields of ``fetch`` by the
    attribute that they filter. ``marker``: the field by which ``fetch`` finds the thing of a resource's id.
    ``id_name``: the attribute of a resource that is its id. ``hidden``: attributes of ``views`` for filters only, which
    responses do not have.
    """

    def __init__(
        self,
        fetch: Callable[[ListQuery], list[Item]],
        views: Callable[[Item], list[View]],
        filters: Mapping[str, str] = MappingProxyType({}),
        marker: str = "id",
        id_name: str = "id",
        hidden: Set[str] = frozenset(),
    ) -> None:
        self.fetch = fetch
        self.views = views
        self.filters = filters
        self.marker = marker
        self.id_name = id_name
        self.hidden = hidden


def constant(views: list[View], id_name: str = "id") -> Source[Shown]:
    """Return the source of a list that needs no conductor to select its things."""
    things = [Shown(view[id_name], view) for view in views]
    return Source(lambda query: things, lambda shown: [shown.view], id_name=id_name)


class _Reader:
    """Reads resources of a source in the order of their ids, as many as are needed."""

    def __init__(self, source: Source[Any], conditions: list[Condition], max_limit: int) -> None:
        self._source = source
        self.id_name = source.id_name
        self._conditions = conditions
        selected = [(name, values) for name, values in conditions if name in source.filters and _is_exact(values)]
        self._filters = {source.filters[name]: values for name, values in selected}
        self._selects_all = len(selected) == len(conditions)
        self._max_limit = max_limit

    def matches(self, view: View) -> bool:
        return all(_passes(view, *condition) for condition in self._conditions)

    def views(self, marker: str | None, backwards: bool, limit: int | None = None) -> Iterator[View]:
        """Yield the matching resources after, or before, the marker. ``limit``: the number that is probably needed."""
        after = None
        if marker is not None:
            after, rest = self._at(marker, backwards)
            yield from filter(self.matches, rest)
        size = limit if limit is not None and self._selects_all else self._max_limit
        while True:
            items = self._page(ListQuery(filters=self._filters, marker=after, limit=size, backwards=backwards))
            for item in items:
                shown = self._source.views(item)
                yield from filter(self.matches, reversed(shown) if backwards else shown)
            if len(items) < size:
                return
            after = items[-1].id

    def _page(self, query: ListQuery) -> list[Any]:
        def is_beyond(item: Any) -> bool:
            return query.marker is None or (item.id < query.marker if query.backwards else item.id > query.marker)

        found = filter(is_beyond, self._source.fetch(query))
        return sorted(found, key=attrgetter("id"), reverse=query.backwards)[: query.limit]

    def _at(self, marker: str, backwards: bool) -> tuple[str, list[View]]:
        """Return the id of the marker's thing, and its further resources. Raises `MarkerNotFound`."""
        for item in self._source.fetch(ListQuery(filters={self._source.marker: [marker]}, limit=1)):
            shown = self._source.views(item)
            shown = shown[::-1] if backwards else shown
            ids = [view[self._source.id_name] for view in shown]
            if marker in ids:
                return item.id, shown[ids.index(marker) + 1 :]
        raise exceptions.MarkerNotFound(marker=marker[:64])


def _is_exact(values: list[str]) -> bool:
    """Check whether the conductor can compare these values. `_text` equates some texts that differ."""
    return not any(value.lower() in ("", "null", "true", "false") for value in values)


def cut(req: ServiceRequest, view: View) -> View:
    """Return the requested fields of a resource."""
    fields = {name for text in req.GET.getall("fields") for name in text.split(",") if name}
    return {name: view[name] for name in view if name in fields} if fields else view


def _without(view: View, names: Set[str]) -> View:
    return {name: value for name, value in view.items() if name not in names} if names else view


def _filters(req: ServiceRequest, attributes: Set[str]) -> list[Condition]:
    names = [name for name in dict.fromkeys(req.GET) if name not in _PAGING]
    known = {*attributes, *_TAGS, *_since(attributes)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise exceptions.ValidationError(
            detail=f"{', '.join(repr(name[:64]) for name in unknown)} is invalid attribute for filtering"
        )
    return [(name, _times(req.GET.getall(name)) if name == _SINCE else req.GET.getall(name)) for name in names]


def _times(values: list[str]) -> list[str]:
    """Return times in the form of responses. An empty text is no time. Raises `ValidationError` for other texts."""
    try:
        return [f"{validation.parse_time(text).isoformat(timespec='seconds')}Z" for text in values if text]
    except ValueError as error:
        raise exceptions.ValidationError(
            detail=f"{_SINCE} is a time, as 2026-05-01T10:00:00Z, and not {', '.join(map(repr, values))[:64]}"
        ) from error


def _passes(view: View, name: str, values: list[str]) -> bool:
    """Return whether the attribute has one of ``values``. Conditions on parts (``ip_address=…``) must all match."""
    if name == _SINCE:
        return all((view[_CHANGED] or "") >= value for value in values)
    if name in _TAGS:
        named = {tag for value in values for tag in value.split(",") if tag}
        return not named or _TAGS[name](set(view.get("tags") or ()), named)
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


def _sort_keys(req: ServiceRequest, attributes: set[str]) -> list[str]:
    keys: list[str] = req.GET.getall("sort_key")
    directions = req.GET.getall("sort_dir")
    if len(directions) not in (0, len(keys)) or any(direction not in ("asc", "desc") for direction in directions):
        raise exceptions.ValidationError(detail="Give one sort_dir (asc or desc) for each sort_key, or none.")
    for key in keys:
        if key not in attributes:
            raise exceptions.ValidationError(detail=f"{key[:64]} is invalid attribute for sort keys")
    return keys


def _sorted(req: ServiceRequest, matches: list[View], attributes: set[str]) -> list[View]:
    keys, directions = _sort_keys(req, attributes), req.GET.getall("sort_dir")
    for key, direction in reversed(list(zip(keys, directions or ["asc"] * len(keys), strict=True))):
        matches = sorted(matches, key=functools.partial(_sort_value, key), reverse=direction == "desc")
    return matches


def _sort_value(key: str, view: View) -> tuple[bool, float, str]:
    """Return the value for sorting: null first, numbers by value."""
    value = view.get(key)
    number = float(value) if isinstance(value, int) else 0.0
    return value is not None, number, "" if isinstance(value, int) else str(value)


def _page(
    req: ServiceRequest, key: str, found: tuple[list[View], str], max_limit: int
) -> tuple[list[View], dict[str, Any]]:
    """Return a page of the sorted resources ``found``, given with the name of their ids."""
    limit, backwards, marker = _paging(req, max_limit)
    matches, id_name = found
    ids = [view[id_name] for view in matches]
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


def _page_by_id(req: ServiceRequest, key: str, reader: _Reader, max_limit: int) -> tuple[list[View], dict[str, Any]]:
    """Return a page in the order of ids. Whether another one follows is known by its first resource."""
    limit, backwards, marker = _paging(req, max_limit)
    found = list(itertools.islice(reader.views(marker or None, backwards, limit + 1), limit + 1))
    page, is_more, is_less = found[:limit], len(found) > limit, bool(marker)
    if backwards:
        page, is_more, is_less = page[::-1], is_less, is_more
    links = []
    if page and is_more:
        links.append({"rel": "next", "href": _link(req, page[-1][reader.id_name], limit, False)})
    if page and is_less:
        links.append({"rel": "previous", "href": _link(req, page[0][reader.id_name], limit, True)})
    return page, {f"{key}_links": links} if links else {}


def _paging(req: ServiceRequest, max_limit: int) -> tuple[int, bool, str | None]:
    """Return limit, direction (True: backwards) and marker of the query."""
    backwards = req.GET.get("page_reverse", "").lower() in ("true", "1")
    return min(_limit(req) or max_limit, max_limit), backwards, req.GET.get("marker")


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
