"""Quotas of projects, and limits of the service."""

from __future__ import annotations

from typing import Annotated, Any

from nova_lite.api.dns import resource
from nova_lite.api.dns.resource import DnsResource
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.network import fields
from nova_lite.dns.objects import LIMITS, MIN_TTL
from nova_lite.dns.records import MAX_NAME
from nova_lite.policies import dns as policies

_PATH = "/quotas/{project_id}"
_TARGET = {"project_id": "project_id"}
_Limit = Annotated[Any, fields.within(-1, 2**31 - 1)]


class ChangedQuota(Body):
    zones: _Limit = SAME
    zone_recordsets: _Limit = SAME
    zone_records: _Limit = SAME
    recordset_records: _Limit = SAME


class Quotas(DnsResource):
    """Quotas and limits."""

    kind = "quota"

    @route("GET", "/limits", policies.LIMITS)
    def limits(self, req: ServiceRequest) -> dict[str, Any]:
        """Show the limits of the caller's project."""
        found = self.read(req, "limits_get", project_id=req.context.project_id or "")
        lengths = {"max_zone_name_length": MAX_NAME, "max_recordset_name_length": MAX_NAME}
        pages = {"min_ttl": MIN_TTL, "max_page_limit": self.conf.api.max_limit}
        return {f"max_{name}": limit for name, limit in found.items()} | lengths | pages

    @route("GET", _PATH, policies.QUOTA_GET, target=_TARGET)
    def show(self, req: ServiceRequest, project_id: str) -> dict[str, int]:
        found: dict[str, int] = self.read(req, "limits_get", project_id=project_id)
        return found

    @route("PATCH", _PATH, policies.QUOTA_UPDATE, body=ChangedQuota)
    def update(self, req: ServiceRequest, project_id: str) -> dict[str, int]:
        changes = resource.changes(req, ChangedQuota)
        found: dict[str, int] = self.change(req, "limits_set", project_id=project_id, changes=changes)
        return found

    @route("DELETE", _PATH, policies.QUOTA_UPDATE, status=204)
    def delete(self, req: ServiceRequest, project_id: str) -> None:
        """Reset the project's quotas to the defaults."""
        self.change(req, "limits_set", project_id=project_id, changes=dict.fromkeys(LIMITS))
