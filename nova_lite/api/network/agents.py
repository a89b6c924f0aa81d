"""Agents and availability zones. Each compute host is shown as an agent."""

from __future__ import annotations

from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.policies import network_service as policies

_COMPUTE = "nova-compute"


class Agents(NetworkResource):
    """Agents."""

    @lists("/agents", policies.AGENT_LIST, "agents")
    def index(self, req: ServiceRequest) -> Response:
        services = self.conductor.service_list(req.context, None, _COMPUTE) if req.allows(policies.AGENT_GET) else []
        return self.listed(req, listing.constant([views.agent(service) for service in services]))

    @shows("/agents/{id}", policies.AGENT_GET, "agent")
    def show(self, req: ServiceRequest, id: str) -> views.View:
        for service in self.conductor.service_list(req.context, None, _COMPUTE):
            if (view := views.agent(service))["id"] == id:
                return listing.cut(req, view)
        raise exceptions.NotFound(f"Agent {id[:64]} could not be found.")


class AvailabilityZones(NetworkResource):
    """Availability zones."""

    @lists("/availability_zones", policies.ZONES_GET, "availability_zones")
    def index(self, req: ServiceRequest) -> Response:
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
        return self.listed(req, listing.constant(shown))
