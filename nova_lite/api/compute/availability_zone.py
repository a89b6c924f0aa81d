"""``/os-availability-zone``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import services as views
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.policies import hosts as policies

#: The zone of hosts that run no servers; for admins only.
INTERNAL = "internal"


class AvailabilityZones(Extension):
    alias = "os-availability-zone"
    title = "Availability zones"
    routes = (
        Route("GET", "/os-availability-zone", "index"),
        Route("GET", "/os-availability-zone/detail", "detail"),
    )

    @declares(policies.ZONES_LIST, query=queries.NOTHING, answer="availabilityZoneInfo")
    def index(self, req: Request) -> Response:
        zones = self.conductor.availability_zone_list(req.context)
        shown = [views.zone(zone, with_hosts=False) for zone in zones if zone.name != INTERNAL]
        return Response({"availabilityZoneInfo": shown})

    @declares(policies.ZONES_DETAIL, query=queries.NOTHING, answer="availabilityZoneInfo")
    def detail(self, req: Request) -> Response:
        zones = self.conductor.availability_zone_list(req.context)
        return Response({"availabilityZoneInfo": [views.zone(zone, with_hosts=True) for zone in zones]})
