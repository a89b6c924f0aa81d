"""Agents and availability zones. Each compute host is shown as an agent."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions
from nova_lite.policies import network_service as policies

_COMPUTE = "nova-compute"


class AgentResource(Resource):
    """Handlers of ``/agents`` and ``/availability_zones``."""

    def agents(self, req: ServiceRequest) -> Response:
        services = self.conductor.service_list(req.context, None, _COMPUTE) if req.allows(policies.AGENT_GET) else []
        return self.listed(req, "agents", listing.constant([views.agent(service) for service in services]))

    def agent(self, req: ServiceRequest, id: str) -> Response:
        for service in self.conductor.service_list(req.context, None, _COMPUTE):
            if (view := views.agent(service))["id"] == id:
                return listing.shown(req, "agent", view)
        raise exceptions.NotFound(f"Agent {id[:64]} could not be found.")

    def availability_zones(self, req: ServiceRequest) -> Response:
        """List the zones of the compute hosts. Every network is in all of them."""
        zones = [zone for zone in self.conductor.availability_zone_list(req.context) if zone.name != "internal"]
        shown: list[dict[str, Any]] = [
            {
                "id": zone.name,
                "name": zone.name,
                "resource": "network",
                "state": "available" if zone.available else "unavailable",
            }
            for zone in zones
        ]
        return self.listed(req, "availability_zones", listing.constant(shown))
