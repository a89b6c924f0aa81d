"""Lists of the identity API and their filters. Lists are short, so they have no pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.identity.directory import DOMAIN_ID


def listed(req: ServiceRequest, kind: str, items: Iterable[dict[str, Any]]) -> Response:
    """Return the items that match every filter in the query. A filter is the name of a field and its value."""
    matches = list(items)
    for name, value in req.GET.items():
        if matches and name in matches[0]:
            matches = [item for item in matches if _equal(item.get(name), value)]
        elif name == "domain_id" and value != DOMAIN_ID:
            matches = []
    return Response({kind: matches, "links": links(f"{req.base_url}/v3/{kind}")})


def links(url: str) -> dict[str, Any]:
    return {"self": url, "previous": None, "next": None}


def _equal(value: Any, text: str) -> bool:
    if isinstance(value, bool):
        return value is (text.lower() not in ("0", "false", "no"))
    return bool(value == text)
