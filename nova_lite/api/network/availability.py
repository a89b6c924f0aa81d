"""Numbers of addresses of networks that are in use, and providers of routers."""

from __future__ import annotations

import functools

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.networks import NetworkFinder
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.objects import ListQuery
from nova_lite.policies import network_service as policies

_FILTERS = {"network_id": "id", "network_name": "name", "project_id": "project_id", "tenant_id": "project_id"}


class IpAvailabilities(NetworkFinder):
    """Numbers of addresses in use."""

    @lists("/network-ip-availabilities", policies.IP_AVAILABILITY_GET, "network_ip_availabilities")
    def index(self, req: ServiceRequest) -> Response:
        fetch = functools.partial(self._counted, req, set(req.GET.getall("ip_version")))
        response = self.listed(req, listing.Source(fetch, lambda shown: [shown.view], _FILTERS, id_name="network_id"))
        for view in response.body["network_ip_availabilities"]:
            view.pop("ip_version", None)
        return response

    def _counted(self, req: ServiceRequest, versions: set[str], query: ListQuery) -> list[listing.Shown]:
        """Return the counts of a page of networks. ``versions``: of IP, if only these count."""
        items = self.items(req, query)
        used = self.conductor.network_address_counts_get(req.context, [item.id for item in items])
        shown = [listing.Shown(item.id, views.ip_availability(item, used)) for item in items]
        return [item._replace(view=_of_versions(item.view, versions)) for item in shown] if versions else shown

    @shows("/network-ip-availabilities/{id}", policies.IP_AVAILABILITY_GET, "network_ip_availability")
    def show(self, req: ServiceRequest, id: str) -> views.View:
        item = self.find(req, id)
        used = self.conductor.network_address_counts_get(req.context, [item.id])
        return listing.cut(req, views.ip_availability(item, used))


class ServiceProviders(NetworkResource):
    """Providers of routers."""

    @lists("/service-providers", policies.PROVIDERS_GET, "service_providers")
    def index(self, req: ServiceRequest) -> Response:
        """List the one provider of routers: the hosts of the guests."""
        return self.listed(req, listing.constant([views.SERVICE_PROVIDER], id_name="name"))


def _of_versions(view: views.View, versions: set[str]) -> views.View:
    """Return the counts of the subnets of these IP versions. ``ip_version`` makes the view pass its own filter."""
    subnets = [item for item in view["subnet_ip_availability"] if str(item["ip_version"]) in versions]
    totals = {name: sum(item[name] for item in subnets) for name in ("total_ips", "used_ips")}
    return view | {"subnet_ip_availability": subnets, **totals, "ip_version": next(iter(versions))}
