"""Machines that do the work on volumes, for admins: services, hosts, pools and capabilities.

All hosts share one directory or pool. Each of them can do the work on any volume, so each is shown as a backend of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova_lite.api.http import bodies
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.volume import requests, versions, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.base import exceptions
from nova_lite.base.version import VERSION
from nova_lite.objects import Service, VolumeFilters
from nova_lite.policies import volume_service as policies

#: Name for clients that compare it.
VENDOR = "Open Source"
#: Protocol and description of each backend of the built-in service.
BACKENDS = {
    "local": ("file", "Files in a directory that all hosts share"),
    "rbd": ("ceph", "Images in a pool of Ceph that all hosts reach"),
}
CHANGES = ("enable", "disable", "disable-log-reason", "freeze", "thaw", "failover_host", "failover")


class ServiceChange(bodies.Body):
    host: requests.Text = None
    binary: requests.Text = None
    disabled_reason: requests.Anything = None


class _OfHosts(VolumeResource):
    """Base of the resources that are about hosts."""

    def services(self, req: ServiceRequest) -> list[Service]:
        return self.conductor.service_list(req.context, None, views.COMPUTE)

    def service(self, req: ServiceRequest, name: str) -> Service:
        """Return the service of a host. ``name``: of the host, maybe with its backend and pool as in ``host@x#y``."""
        host = name.partition("#")[0].partition("@")[0]
        for service in self.services(req):
            if service.host == host:
                return service
        raise exceptions.NotFound(f"Host {name[:64]} could not be found.")


class Services(_OfHosts):
    """Services that do the work on volumes."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for made in super().declared_routes():
            for name in CHANGES if made.handler == "change" else ("",):
                yield made._replace(path=made.path + name)

    @route("GET", "/os-services", policies.SERVICES, query=("host", "binary"), response="services")
    def index(self, req: ServiceRequest) -> list[views.View]:
        """List the hosts that do the work on volumes."""
        services, minor = self.services(req), versions.minor_of(req)
        shown = [views.service(service, binary, minor) for binary in views.BINARIES for service in services]
        for name in ("host", "binary"):
            shown = [view for view in shown if req.GET.get(name) in (None, view[name])]
        return shown

    @route("PUT", "/os-services/", policies.CHANGE_SERVICES, body=ServiceChange)
    def change(self, req: ServiceRequest) -> None:
        """Refuse to change a service: it is part of the host's compute service."""
        sent, action = req.json_object(), req.path_info.rpartition("/")[2]
        body = bodies.read(ServiceChange, sent)
        if action == "disable-log-reason" and not requests.text(sent, "disabled_reason"):
            raise exceptions.ValidationError(detail="Disabled reason contains invalid characters or is too long.")
        known = [service.host for service in self.services(req)]
        if body.host not in known or body.binary not in (None, *views.BINARIES):
            host, binary = str(body.host)[:64], str(body.binary)[:64]
            if action in ("freeze", "thaw"):
                raise exceptions.ValidationError(detail=f"Host {host} does no work on volumes.")
            raise exceptions.NotFound(f"Service {binary} could not be found on host {host}.")
        raise exceptions.NotServed(
            what="A change of a volume service", instead=" Disable the host's compute service, or drain the host."
        )


class Hosts(_OfHosts):
    """Hosts that do the work on volumes."""

    @route("GET", "/os-hosts", policies.HOSTS, query=("zone",), response="hosts")
    def index(self, req: ServiceRequest) -> list[views.View]:
        shown = [_host(service) for service in self.services(req)]
        return [view for view in shown if req.GET.get("zone") in (None, view["zone"])]

    @route("GET", "/os-hosts/{name}", policies.HOSTS, response="host")
    def show(self, req: ServiceRequest, name: str) -> list[views.View]:
        """Show the volumes that the host serves: all."""
        self.service(req, name)
        whole: dict[str, Any] = {"filters": VolumeFilters(), "limit": None, "marker": None, "offset": 0}
        whole |= {"sort_keys": [], "sort_dirs": []}
        volumes = self.conductor.volume_list(req.context, **whole)
        snapshots = self.conductor.snapshot_list(req.context, **whole)
        projects = sorted({volume.project_id for volume in volumes} | {copied.project_id for copied in snapshots})
        shown = []
        for project in (None, *projects):
            sizes = [item.size for item in volumes if project in (None, item.project_id)]
            copies = [item.size for item in snapshots if project in (None, item.project_id)]
            counts = {
                "host": name,
                "project": "(total)" if project is None else project,
                "volume_count": str(len(sizes)),
                "total_volume_gb": str(sum(sizes)),
                "snapshot_count": str(len(copies)),
                "total_snapshot_gb": str(sum(copies)),
            }
            shown.append({"resource": counts})
        return shown


class Pools(_OfHosts):
    """Pools and capabilities of the hosts' backends."""

    @route("GET", "/scheduler-stats/get_pools", policies.POOLS, query=("detail",), response="pools")
    def index(self, req: ServiceRequest) -> list[views.View]:
        detail = requests.flag(req.GET.get("detail", False), "detail")
        return [_pool(service, self.conf.volume.backend, detail) for service in self.services(req) if service.up]

    @route("GET", "/capabilities/{name}", policies.CAPABILITIES)
    def show(self, req: ServiceRequest, name: str) -> views.View:
        service, backend = self.service(req, name), self.conf.volume.backend
        protocol, description = _described(backend)
        return {
            "namespace": f"OS::Storage::Capabilities::{service.host}",
            "vendor_name": VENDOR,
            "volume_backend_name": backend,
            "pool_name": None,
            "driver_version": VERSION,
            "storage_protocol": protocol,
            "display_name": None,
            "description": description,
            "visibility": None,
            "replication_targets": [],
            "properties": {},
        }


def _host(service: Service) -> views.View:
    return {
        "host_name": service.host,
        "service": views.BINARY,
        "zone": service.availability_zone,
        "service-status": "available" if service.up else "unavailable",
        "service-state": "disabled" if service.disabled else "enabled",
        "last-update": views.time(service.last_seen_up or service.updated_at),
    }


def _described(backend: str) -> tuple[str, str]:
    """Return protocol and description of a backend. A plug-in has only its name."""
    return BACKENDS.get(backend, (backend, backend))


def _pool(service: Service, backend: str, detail: bool) -> views.View:
    view: views.View = {"name": f"{service.host}@{backend}#{backend}"}
    if detail:
        view["capabilities"] = {
            "pool_name": backend,
            "volume_backend_name": backend,
            "vendor_name": VENDOR,
            "driver_version": VERSION,
            "storage_protocol": _described(backend)[0],
            "total_capacity_gb": "unknown",
            "free_capacity_gb": "unknown",
            "reserved_percentage": 0,
            "QoS_support": False,
            "multiattach": True,
            "thin_provisioning_support": True,
            "timestamp": views.time(service.last_seen_up or service.updated_at),
        }
    return view
