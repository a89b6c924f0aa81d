"""``/os-simple-tenant-usage``: what projects used in a period."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

from oslo_utils import timeutils

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import usage as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Query, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import InstanceUsage
from nova_lite.policies import usage as policies

_PATH = "/os-simple-tenant-usage"


class TenantUsage(Extension):
    """``start`` and ``end`` are now unless given. Pages (2.40) are of servers, so a project may go on on the next."""

    alias = "os-simple-tenant-usage"
    title = "Usage by project"
    routes = (
        Route("GET", _PATH, "index"),
        Route("GET", _PATH + "/{id}", "show"),
    )

    @declares(policies.LIST, query=queries.USAGE, answer="tenant_usages")
    def index(self, req: Request) -> Response:
        start, end = _period(req.query)
        used, links = self._list(req, "tenant_usages_links", None, start, end)
        by_project = itertools.groupby(used, key=lambda usage: usage.project_id)
        detailed = req.query.one("detailed") == "1"
        usages = [views.project(name, list(servers), start, end, detailed) for name, servers in by_project]
        return Response({"tenant_usages": usages, **links})

    @declares(policies.SHOW, target={"project_id": "id"}, query=queries.USAGE, answer="tenant_usage")
    def show(self, req: Request, id: str) -> Response:
        start, end = _period(req.query)
        used, links = self._list(req, "tenant_usage_links", id, start, end)
        view = views.project(id, used, start, end, detailed=True) if used else {}
        return Response({"tenant_usage": view, **links})

    def _list(
        self, req: Request, key: str, project_id: str | None, start: datetime.datetime, end: datetime.datetime
    ) -> tuple[list[InstanceUsage], dict[str, Any]]:
        limit = (req.query.limit or self.conf.api.max_limit) if req.has(Change.USAGE_PAGING) else None
        used = self.conductor.usage_list(req.context, project_id, start, end, limit, req.query.marker)
        return used, req.next_page(key, used, limit, lambda usage: usage.uuid)


def _period(query: Query) -> tuple[datetime.datetime, datetime.datetime]:
    now = timeutils.utcnow()
    start, end = query.time("start") or now, query.time("end") or now
    if start > end:
        raise exceptions.ValidationError(detail="Invalid start time. The start time cannot occur after the end time.")
    return start, end
