"""Quotas of projects."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, requests, views
from nova_lite.api.network.resource import NetworkResource, lists
from nova_lite.base import exceptions
from nova_lite.policies import network_service as policies

_PATH = "/quotas/{project_id}"
_TARGET = {"project_id": "project_id"}


def _limit(value: Any, name: str, **limits: int) -> int:
    if value is None:
        raise exceptions.ValidationError(detail="A quota is a number; -1 is no limit.")
    return fields.number(value, name, **limits)


Limit: TypeAlias = Annotated[int, fields.within(-1, 2**31 - 1, _limit, null=True)]


class Limits(Body):
    network: Limit = SAME
    subnet: Limit = SAME
    subnetpool: Limit = SAME
    port: Limit = SAME
    router: Limit = SAME
    floatingip: Limit = SAME
    security_group: Limit = SAME
    security_group_rule: Limit = SAME
    rbac_policy: Limit = SAME
    trunk: Limit = SAME


class ChangedQuota(Limits):
    check_limit: fields.Flag = False
    force: fields.Ignored = SAME
    project_id: fields.Ignored = SAME
    tenant_id: fields.Ignored = SAME


class Quotas(NetworkResource):
    """Quotas of projects."""

    @lists("/quotas", policies.QUOTA_LIST, "quotas")
    def index(self, req: ServiceRequest) -> Response:
        """List the quotas of the projects that have limits of their own."""
        shown = [views.project_quota(limits) for limits in self.conductor.network_limits_list(req.context)]
        return self.listed(req, listing.constant(shown, id_name="project_id"))

    @route("GET", "/quotas/tenant", policies.QUOTA_LIST, response="tenant")
    @route("GET", "/quotas/project", policies.QUOTA_LIST, response="tenant")
    def own(self, req: ServiceRequest) -> views.View:
        """Name the caller's project."""
        return {"tenant_id": req.context.project_id or ""}

    @route("GET", _PATH, policies.QUOTA_GET, target=_TARGET, response="quota")
    def show(self, req: ServiceRequest, project_id: str) -> views.View:
        return views.quota(self.conductor.network_limits_get(req.context, project_id))

    @route("GET", f"{_PATH}/details", policies.QUOTA_GET, target=_TARGET, response="quota")
    @route("GET", f"{_PATH}/details.json", policies.QUOTA_GET, target=_TARGET, response="quota")
    def details(self, req: ServiceRequest, project_id: str) -> views.View:
        return views.quota_details(self.conductor.network_limits_get(req.context, project_id))

    @route("GET", f"{_PATH}/default", policies.QUOTA_GET, target=_TARGET, response="quota")
    def default(self, req: ServiceRequest, project_id: str) -> views.View:
        """Show the quota of a project that has no limits of its own."""
        return views.quota(self.conductor.network_limits_get(req.context, ""))

    @route("PUT", _PATH, policies.QUOTA_UPDATE, body=ChangedQuota, key="quota", response="quota")
    def update(self, req: ServiceRequest, project_id: str) -> views.View:
        limits = requests.changes(req, ChangedQuota)
        if limits.pop("check_limit", False):
            quotas = self.conductor.network_limits_get(req.context, project_id).quotas
            for name, limit in limits.items():
                if 0 <= limit < quotas[name].used:
                    raise exceptions.QuotaBelowUse(limit=limit, resource=name, used=quotas[name].used)
        return views.quota(self.conductor.network_limits_update(req.context, project_id, limits))

    @route("DELETE", _PATH, policies.QUOTA_UPDATE, status=204)
    def delete(self, req: ServiceRequest, project_id: str) -> None:
        """Reset the project's limits to the defaults."""
        self.conductor.network_limits_update(req.context, project_id, dict.fromkeys(bodies.names(Limits)))
