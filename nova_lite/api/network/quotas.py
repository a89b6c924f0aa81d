"""Quotas of projects."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions

_QUOTAS = (
    "network",
    "subnet",
    "subnetpool",
    "port",
    "router",
    "floatingip",
    "security_group",
    "security_group_rule",
    "rbac_policy",
)


class QuotaResource(Resource):
    """Handlers of ``/quotas``."""

    def quotas(self, req: ServiceRequest) -> Response:
        """List the quotas of the projects that have limits of their own."""
        limits = self.conductor.network_limits_list(req.context)
        shown = [views.project_quota(of_one) for of_one in limits]
        return self.listed(req, "quotas", listing.constant(shown, id_name="project_id"))

    def own_quota(self, req: ServiceRequest) -> Response:
        """Name the caller's project."""
        return Response({"tenant": {"tenant_id": req.context.project_id or ""}})

    def quota(self, req: ServiceRequest, project_id: str) -> Response:
        return Response({"quota": views.quota(self.conductor.network_limits_get(req.context, project_id))})

    def quota_details(self, req: ServiceRequest, project_id: str) -> Response:
        return Response({"quota": views.quota_details(self.conductor.network_limits_get(req.context, project_id))})

    def quota_default(self, req: ServiceRequest, project_id: str) -> Response:
        """Show the quota of a project that has no limits of its own."""
        return Response({"quota": views.quota(self.conductor.network_limits_get(req.context, ""))})

    def update_quota(self, req: ServiceRequest, project_id: str) -> Response:
        known = (*_QUOTAS, "project_id", "tenant_id", "check_limit", "force")
        fields = requests.body(req, "quota", known, ())
        limits = {name: requests.number(fields, name, -1, 2**31 - 1) for name in _QUOTAS if name in fields}
        if None in limits.values():
            raise exceptions.ValidationError(detail="A quota is a number; -1 is no limit.")
        if requests.flag(fields, "check_limit"):
            quotas = self.conductor.network_limits_get(req.context, project_id).quotas
            for name, limit in limits.items():
                if limit is not None and 0 <= limit < quotas[name].used:
                    raise exceptions.QuotaBelowUse(limit=limit, resource=name, used=quotas[name].used)
        return Response({"quota": views.quota(self.conductor.network_limits_update(req.context, project_id, limits))})

    def delete_quota(self, req: ServiceRequest, project_id: str) -> Response:
        """Reset the project's limits to the defaults."""
        self.conductor.network_limits_update(req.context, project_id, dict.fromkeys(_QUOTAS))
        return Response(status=204)
