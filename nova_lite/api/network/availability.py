"""Numbers of addresses of networks that are in use, and providers of routers."""

from __future__ import annotations

import functools

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, views
from nova_lite.api.network.networks import NetworkResource
from nova_lite.objects import ListQuery

_FILTERS = {"network_id": "id", "network_name": "name", "project_id": "project_id", "tenant_id": "project_id"}


class AvailabilityResource(NetworkResource):
    """Handlers of ``/network-ip-availabilities`` and ``/service-providers``."""

    def ip_availabilities(self, req: ServiceRequest) -> Response:
        fetch = functools.partial(self._counted, req, set(req.GET.getall("ip_version")))
        source = listing.Source(fetch, lambda shown: [shown.view], _FILTERS, id_name="network_id")
        response = self.listed(req, "network_ip_availabilities", source)
        for view in response.body["network_ip_availabilities"]:
            view.pop("ip_version", None)
        return response

    def _counted(self, req: ServiceRequest, versions: set[str], query: ListQuery) -> list[listing.Shown]:
        """Return the counts of a page of networks. ``versions``: of IP, if only these count."""
        items = self._items(req, False, query)
        used = self.conductor.network_address_counts_get(req.context, [item.id for item in items])
        shown = [listing.Shown(item.id, views.ip_availability(item, used)) for item in items]
        return [item._replace(view=_of_versions(item.view, versions)) for item in shown] if versions else shown

    def ip_availability(self, req: ServiceRequest, id: str) -> Response:
        item = self._find(req, id)
        used = self.conductor.network_address_counts_get(req.context, [item.id])
        return listing.shown(req, "network_ip_availability", views.ip_availability(item, used))

    def service_providers(self, req: ServiceRequest) -> Response:
        """List the one provider of routers: the hosts of the guests."""
        return self.listed(req, "service_providers", listing.constant([views.SERVICE_PROVIDER], id_name="name"))


def _of_versions(view: views.View, versions: set[str]) -> views.View:
    """Return the counts of the subnets of these IP versions. ``ip_version`` makes the view pass its own filter."""
    subnets = [item for item in view["subnet_ip_availability"] if str(item["ip_version"]) in versions]
    totals = {name: sum(item[name] for item in subnets) for name in ("total_ips", "used_ips")}
    return view | {"subnet_ip_availability": subnets, **totals, "ip_version": next(iter(versions))}
