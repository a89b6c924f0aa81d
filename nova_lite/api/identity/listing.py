"""Lists of the identity API and their filters. Lists are short, so they have no pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response


def listed(req: ServiceRequest, kind: str, items: Iterable[dict[str, Any]], path: str | None = None) -> Response:
    """Return the items that match every filter in the query. A filter is the name of a field and its value.

    ``path``: of the list, if it is not ``/v3/<kind>``.
    """
    matches = list(items)
    for name, value in req.GET.items():
        if matches and name in matches[0]:
            matches = [item for item in matches if _equal(item.get(name), value, kind == "domains")]
    return Response({kind: matches, "links": links(req.base_url + (path or f"/v3/{kind}"))})


def links(url: str) -> dict[str, Any]:
    return {"self": url, "previous": None, "next": None}


def _equal(value: Any, text: str, any_case: bool) -> bool:
    if isinstance(value, bool):
        return value is (text.lower() not in ("0", "false", "no"))
    if any_case and isinstance(value, str):
        return value.casefold() == text.casefold()
    return bool(value == text)
