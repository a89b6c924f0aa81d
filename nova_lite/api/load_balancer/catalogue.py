"""Providers, flavors, and what this cloud does not have."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, ServiceResource, route
from nova_lite.api.load_balancer.views import View
from nova_lite.api.network import listing
from nova_lite.base import exceptions
from nova_lite.load_balancer.objects import PROVIDERS
from nova_lite.policies import load_balancer as policies


class Catalogue(ServiceResource):
    """Providers, flavors, availability zones and L7 policies."""

    @route("GET", "/lbaas/providers", policies.CATALOGUE, query=("fields",), response="providers")
    def providers(self, req: ServiceRequest) -> list[View]:
        return [listing.cut(req, {"name": name, "description": text}) for name, text in PROVIDERS.items()]

    @route("GET", "/lbaas/flavors", policies.CATALOGUE, response="flavors")
    @route("GET", "/lbaas/flavorprofiles", policies.CATALOGUE, response="flavorprofiles")
    @route("GET", "/lbaas/availabilityzones", policies.CATALOGUE, response="availability_zones")
    @route("GET", "/lbaas/l7policies", policies.CATALOGUE, response="l7policies")
    def empty(self, req: ServiceRequest) -> list[View]:
        """List what there is none of."""
        return []

    @route("POST", "/lbaas/l7policies", policies.L7_CREATE, response="l7policy")
    def create_l7policy(self, req: ServiceRequest) -> View:
        raise exceptions.NotServed(
            what="L7 policies", instead=" Give each destination a listener and a pool of its own."
        )
