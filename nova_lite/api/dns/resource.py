"""Base class of the resources, and lists in Designate's form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from nova_lite.api.http import wsgi
from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, ServiceResource
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, requests
from nova_lite.base import exceptions
from nova_lite.dns.objects import WING, DnsQuery
from nova_lite.policies import dns as policies

B = TypeVar("B", bound=Body)

#: Header by which an admin sees all projects.
ALL_PROJECTS = "X-Auth-All-Projects"
_PAGING = ("limit", "marker", "sort_key", "sort_dir")


def parameters(filters: tuple[str, ...]) -> tuple[str, ...]:
    return *_PAGING, *filters


class DnsResource(ServiceResource):
    """Resource whose conductor's half is the wing. ``kind``: its name in errors."""

    kind = "zone"

    def read(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_read(req.context, WING, method, msgspec.to_builtins(arguments))

    def change(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_change(req.context, WING, method, msgspec.to_builtins(arguments))

    @staticmethod
    def url(req: ServiceRequest) -> str:
        return req.base_url.rstrip("/")

    def query(self, req: ServiceRequest, filters: tuple[str, ...], sort_keys: tuple[str, ...]) -> DnsQuery:
        """Return the query of a list request. Raises a 400, or a 403."""
        for name in req.GET:
            if name not in parameters(filters):
                raise exceptions.ValidationError(detail=f"Invalid query parameter '{name[:32]}'.")
        everybody = req.headers.get(ALL_PROJECTS, "").lower() == "true"
        if everybody:
            req.authorize(policies.EVERYBODY)
        limit = fields.number(req.GET["limit"], "limit", 1, 2**31 - 1) if "limit" in req.GET else None
        sort_key, direction = req.GET.get("sort_key", "created_at"), req.GET.get("sort_dir", "asc").lower()
        if sort_key not in sort_keys or direction not in ("asc", "desc"):
            raise exceptions.ValidationError(detail=f"Lists are sorted by one of {', '.join(sort_keys)}: asc or desc.")
        return DnsQuery(
            filters={name: req.GET[name] for name in filters if name in req.GET},
            sort_key=sort_key,
            descending=direction == "desc",
            marker=req.GET.get("marker"),
            limit=min(limit or self.conf.api.max_limit, self.conf.api.max_limit),
            everybody=everybody,
        )

    def listed(
        self, req: ServiceRequest, key: str, page: Mapping[str, Any], query: DnsQuery, view: Callable[[Any], Any]
    ) -> Response:
        """Return the response to a list request, with a link to the next page."""
        items, total = page["items"], page["total"]
        here = f"{self.url(req)}{req.environ.get('PATH_INFO', '')}"
        links = {"self": f"{here}?{req.query_string}" if req.query_string else here}
        if query.limit is not None and len(items) == query.limit and total > query.limit:
            following = {**req.GET, "marker": items[-1]["id"]}
            links["next"] = f"{here}?{urlencode(following)}"
        return Response({key: [view(item) for item in items], "links": links, "metadata": {"total_count": total}})


def body(req: ServiceRequest, kind: type[B]) -> B:
    """Return the object of a request, which is the whole body. Raises a 400."""
    requests.require_known(req.json_object(), kind)
    return requests.read(req, kind)


def changes(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    """Return the attributes of a change. Raises a 400."""
    requests.require_known(req.json_object(), kind)
    return requests.changes(req, kind)


def accepted(view: Any) -> Response:
    """Return the response to a change that the name server gets soon."""
    return wsgi.Response(view, 202)
