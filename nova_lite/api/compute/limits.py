"""``/limits``: what a project may use, and what it uses."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import quotas as views
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.policies import quotas as policies


class Limits(Extension):
    alias = "limits"
    title = "Limits"
    routes = (Route("GET", "/limits", "index"),)

    @declares(policies.LIMITS, query=queries.LIMITS, answer="limits")
    def index(self, req: Request) -> Response:
        project_id = req.query.one("tenant_id") or str(req.context.project_id)
        if project_id != req.context.project_id:
            req.authorize(policies.LIMITS_OTHER)
        limits = self.conductor.limits_get(req.context, project_id)
        return Response({"limits": {"rate": [], "absolute": views.absolute(req, limits)}})
