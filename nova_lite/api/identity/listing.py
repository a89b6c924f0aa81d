"""Lists of the identity API and their filters. Lists are short, so they have no pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response

#: Comparisons of filters, as in ``name__contains=a``. With an ``i`` before them they ignore the case.
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda value, text: text in value,
    "startswith": str.startswith,
    "endswith": str.endswith,
    "equals": str.__eq__,
}
_COMPARISONS |= {
    f"i{name}": lambda value, text, compare=compare: compare(value.casefold(), text.casefold())  # type: ignore[misc]
    for name, compare in _COMPARISONS.items()
}


def listed(req: ServiceRequest, kind: str, items: Iterable[dict[str, Any]], path: str) -> Response:
    """Return the items that match every filter in the query. A filter is the name of a field and its value,
    or with a comparison, as in ``name__contains``. ``path``: of the list.
    """
    matches = list(items)
    for name, value in req.GET.items():
        field, _, comparison = name.partition("__")
        if comparison in _COMPARISONS:
            matches = [item for item in matches if _compares(item.get(field), value, comparison)]
        elif any(not isinstance(item.get(name, []), list | dict) for item in matches):
            matches = [item for item in matches if _equal(item.get(name), value, kind == "domains")]
    return Response({kind: matches, "links": links(req.base_url + path)})


def links(url: str) -> dict[str, Any]:
    return {"self": url, "previous": None, "next": None}


def is_true(text: str) -> bool:
    return text.lower() not in ("0", "false", "no")


def _compares(value: Any, text: str, comparison: str) -> bool:
    return isinstance(value, str) and _COMPARISONS[comparison](value, text)


def _equal(value: Any, text: str, any_case: bool) -> bool:
    if isinstance(value, bool):
        return value is is_true(text)
    if any_case and isinstance(value, str):
        return value.casefold() == text.casefold()
    return bool(value == text)
