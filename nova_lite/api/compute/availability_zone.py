"""``/os-availability-zone``: availability zones, and for admins their hosts."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import view_helpers
from nova_lite.api.compute.services import state
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.objects import AvailabilityZone
from nova_lite.policies import availability_zone as policies

#: The zone of the control plane's hosts. Only admins see it.
INTERNAL = "internal"


class AvailabilityZones(Extension):
    alias = "os-availability-zone"
    title = "Availability zones"
    routes = (
        Route("GET", "/os-availability-zone", "index"),
        Route("GET", "/os-availability-zone/detail", "detail"),
    )

    @declares(policies.LIST, query=t.NO_PARAMETERS, response="availabilityZoneInfo")
    def index(self, req: Request) -> Response:
        zones = self.conductor.availability_zone_list(req.context)
        shown = [_view(zone, with_hosts=False) for zone in zones if zone.name != INTERNAL]
        return Response({"availabilityZoneInfo": shown})

    @declares(policies.DETAIL, query=t.NO_PARAMETERS, response="availabilityZoneInfo")
    def detail(self, req: Request) -> Response:
        zones = self.conductor.availability_zone_list(req.context)
        return Response({"availabilityZoneInfo": [_view(zone, with_hosts=True) for zone in zones]})


# --- views


def _view(zone: AvailabilityZone, with_hosts: bool) -> dict[str, Any]:
    hosts = None
    if with_hosts:
        hosts = {
            host: {
                service.binary: {
                    "available": state(service) == "up",
                    "active": not service.disabled,
                    "updated_at": view_helpers.iso_micros(
                        service.last_seen_up or service.updated_at or service.created_at
                    ),
                }
                for service in members
            }
            for host, members in zone.hosts.items()
        }
    return {"zoneName": zone.name, "zoneState": {"available": zone.available}, "hosts": hosts}
