"""Quotas, agents, zones, extensions, and routers, of which there are none."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import Request
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import extensions, listing, requests, views
from nova_lite.api.network.part import Part
from nova_lite.base import exceptions

_COMPUTE = "nova-compute"
_QUOTAS = ("network", "port", "floatingip", "security_group", "security_group_rule")


class OtherResources(Part):
    def quota(self, req: Request, project_id: str) -> Response:
        return Response({"quota": views.quota(self.conductor.network_limits_get(req.context, project_id))})

    def quota_details(self, req: Request, project_id: str) -> Response:
        return Response({"quota": views.quota_details(self.conductor.network_limits_get(req.context, project_id))})

    def quota_default(self, req: Request, project_id: str) -> Response:
        """What a project without limits of its own may have."""
        return Response({"quota": views.quota(self.conductor.network_limits_get(req.context, ""))})

    def update_quota(self, req: Request, project_id: str) -> Response:
        known = (*_QUOTAS, "project_id", "tenant_id", "subnet", "check_limit", "force")
        wanted = requests.body(req, "quota", known, ())
        limits = {name: requests.number(wanted, name, -1, 2**31 - 1) for name in (*_QUOTAS, "subnet") if name in wanted}
        if "subnet" in limits:
            raise exceptions.ValidationError(detail="A network has one subnet here: set the quota of networks.")
        if None in limits.values():
            raise exceptions.ValidationError(detail="A quota is a number; -1 is no limit.")
        if requests.flag(wanted, "check_limit"):
            has = self.conductor.network_limits_get(req.context, project_id).quotas
            for name, limit in limits.items():
                if limit is not None and 0 <= limit < has[name].used:
                    raise exceptions.QuotaBelowUse(limit=limit, resource=name, used=has[name].used)
        return Response({"quota": views.quota(self.conductor.network_limits_update(req.context, project_id, limits))})

    def delete_quota(self, req: Request, project_id: str) -> Response:
        """The defaults again."""
        self.conductor.network_limits_update(req.context, project_id, dict.fromkeys(_QUOTAS))
        return Response(status=204)

    def agents(self, req: Request) -> Response:
        found = self.conductor.service_list(req.context, None, _COMPUTE)
        return self.listed(req, "agents", [views.agent(each) for each in found])

    def agent(self, req: Request, id: str) -> Response:
        for each in self.conductor.service_list(req.context, None, _COMPUTE):
            if (view := views.agent(each))["id"] == id:
                return listing.shown(req, "agent", view)
        raise exceptions.NotFound(f"Agent {id[:64]} could not be found.")

    def availability_zones(self, req: Request) -> Response:
        """Networks are in all zones."""
        found = [each for each in self.conductor.availability_zone_list(req.context) if each.name != "internal"]
        shown: list[dict[str, Any]] = [
            {
                "id": each.name,
                "name": each.name,
                "resource": "network",
                "state": "available" if each.available else "unavailable",
            }
            for each in found
        ]
        return self.listed(req, "availability_zones", shown)

    def extensions(self, req: Request) -> Response:
        return Response({"extensions": extensions.views()})

    def extension(self, req: Request, alias: str) -> Response:
        for each in extensions.views():
            if each["alias"] == alias:
                return Response({"extension": each})
        raise exceptions.NotFound(f"Extension with alias {alias[:64]} does not exist")

    def routers(self, req: Request) -> Response:
        return self.listed(req, "routers", [])

    def router(self, req: Request, id: str) -> Response:
        raise exceptions.NotFound(f"Router {id[:64]} could not be found: there are none here.")

    def create_router(self, req: Request) -> Response:
        raise exceptions.NotServed(
            what="Making a router",
            instead=" The hosts route between its networks and to the outside, and floating addresses need no router.",
        )
