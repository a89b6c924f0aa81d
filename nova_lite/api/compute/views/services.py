"""Services, and the hosts of availability zones."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute.views import times
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Request
from nova_lite.objects import AvailabilityZone, Service


def show(req: Request, service: Service) -> dict[str, Any]:
    view = {
        "id": service.uuid if req.has(Change.UUIDS_OF_SERVICES) else service.id,
        "binary": service.binary,
        "host": service.host,
        "zone": service.availability_zone,
        "status": status(service),
        "state": state(service),
        "updated_at": times.micros(service.last_seen_up or service.updated_at or service.created_at),
        "disabled_reason": service.disabled_reason,
    }
    if req.has(Change.SERVICE_FORCED_DOWN):
        view["forced_down"] = service.forced_down
    return view


def status(service: Service) -> str:
    return "disabled" if service.disabled else "enabled"


def state(service: Service) -> str:
    return "up" if service.up and not service.forced_down else "down"


def zone(zone: AvailabilityZone, with_hosts: bool) -> dict[str, Any]:
    hosts = None
    if with_hosts:
        hosts = {
            host: {
                service.binary: {
                    "available": state(service) == "up",
                    "active": not service.disabled,
                    "updated_at": times.micros(service.last_seen_up or service.updated_at or service.created_at),
                }
                for service in services
            }
            for host, services in zone.hosts.items()
        }
    return {"zoneName": zone.name, "zoneState": {"available": zone.available}, "hosts": hosts}
