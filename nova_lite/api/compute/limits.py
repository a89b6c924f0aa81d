"""``/limits`` and ``/os-quota-sets``: what a project may use, and what it uses."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import quotas as views
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import catalogue as policies


class Limits(Extension):
    alias = "limits"
    title = "Limits"
    routes = (Route("GET", "/limits", "index"),)

    @declares(policies.LIMITS, query=queries.LIMITS, answer="limits")
    def index(self, req: Request) -> Answer:
        req.authorize(policies.LIMITS)
        project_id = req.query(queries.LIMITS).one("tenant_id") or req.context.project_id
        if project_id != req.context.project_id:
            req.authorize(policies.LIMITS_OTHER)
        limits = self.conductor.limits_get(req.context, project_id)
        return Answer({"limits": {"rate": [], "absolute": views.absolute(req, limits)}})


class QuotaSets(Extension):
    alias = "os-quota-sets"
    title = "Quotas"
    routes = (
        Route("GET", "/os-quota-sets/{id}", "show"),
        Route("GET", "/os-quota-sets/{id}/detail", "detail"),
    )

    @declares(policies.QUOTAS_SHOW, query=queries.QUOTAS, answer="quota_set")
    def show(self, req: Request, id: str) -> Answer:
        req.authorize(policies.QUOTAS_SHOW, {"project_id": id})
        req.query(queries.QUOTAS)
        return Answer({"quota_set": views.quota_set(req, self.conductor.limits_get(req.context, id), detail=False)})

    @declares(policies.QUOTAS_DETAIL, query=queries.QUOTAS, answer="quota_set")
    def detail(self, req: Request, id: str) -> Answer:
        req.authorize(policies.QUOTAS_DETAIL, {"project_id": id})
        req.query(queries.QUOTAS)
        return Answer({"quota_set": views.quota_set(req, self.conductor.limits_get(req.context, id), detail=True)})
