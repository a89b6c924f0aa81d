"""Machines that do the work on volumes, for admins: services, hosts, pools and capabilities.

All hosts share one directory or pool. Each of them can do the work on any volume, so each is shown as a backend of its
own.
"""

from __future__ import annotations

from typing import Any

from nova_lite.api.http import rest
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import requests, versions, views
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

#: Extensions of Cinder's API that this API serves, by alias.
EXTENSIONS = {
    "os-hosts": "Hosts",
    "os-services": "Services",
    "os-quota-sets": "Quotas",
    "os-quota-class-sets": "QuotaClasses",
    "os-types-manage": "TypesManage",
    "os-types-extra-specs": "TypesExtraSpecs",
    "os-volume-type-access": "VolumeTypeAccess",
    "os-volume-transfer": "VolumeTransfer",
    "os-volume-actions": "VolumeActions",
    "os-snapshot-actions": "SnapshotActions",
    "os-admin-actions": "AdminActions",
    "os-vol-image-meta": "VolumeImageMetadata",
    "os-availability-zone": "AvailabilityZones",
    "encryption": "VolumeTypeEncryption",
    "qos-specs": "Qos_specs_manage",
    "capabilities": "Capabilities",
    "scheduler-stats": "Scheduler_stats",
}


class Backends(rest.ServiceApplication):
    """Handlers of `VolumeApp`."""

    backend_routes = (
        ServiceRoute("GET", "/os-services", "service_list", policies.SERVICES),
        *(ServiceRoute("PUT", f"/os-services/{name}", "change_service", policies.CHANGE_SERVICES) for name in CHANGES),
        ServiceRoute("GET", "/os-hosts", "hosts", policies.HOSTS),
        ServiceRoute("GET", "/os-hosts/{name}", "host", policies.HOSTS),
        ServiceRoute("GET", "/scheduler-stats/get_pools", "pools", policies.POOLS),
        ServiceRoute("GET", "/capabilities/{name}", "capabilities", policies.CAPABILITIES),
        ServiceRoute("GET", "/extensions", "extensions", policies.EXTENSIONS),
    )

    def _services(self, req: ServiceRequest) -> list[Service]:
        return self.conductor.service_list(req.context, None, views.COMPUTE)

    def _service(self, req: ServiceRequest, name: str) -> Service:
        """Return the service of a host. ``name``: of the host, maybe with its backend and pool as in ``host@x#y``."""
        host = name.partition("#")[0].partition("@")[0]
        for service in self._services(req):
            if service.host == host:
                return service
        raise exceptions.NotFound(f"Host {name[:64]} could not be found.")

    def service_list(self, req: ServiceRequest) -> Response:
        """List the hosts that do the work on volumes."""
        services = self._services(req)
        minor = versions.minor_of(req.headers)
        shown = [views.service(service, binary, minor) for binary in views.BINARIES for service in services]
        for name in ("host", "binary"):
            shown = [view for view in shown if req.GET.get(name) in (None, view[name])]
        return Response({"services": shown})

    def change_service(self, req: ServiceRequest) -> Response:
        """Refuse to change a service: it is part of the host's compute service."""
        fields = req.json_object()
        action = req.path_info.rpartition("/")[2]
        host, binary = requests.text(fields, "host"), requests.text(fields, "binary")
        if action == "disable-log-reason" and not requests.text(fields, "disabled_reason"):
            raise exceptions.ValidationError(detail="Disabled reason contains invalid characters or is too long.")
        known = [service.host for service in self._services(req)]
        if host not in known or binary not in (None, *views.BINARIES):
            if action in ("freeze", "thaw"):
                raise exceptions.ValidationError(detail=f"Host {str(host)[:64]} does no work on volumes.")
            raise exceptions.NotFound(f"Service {str(binary)[:64]} could not be found on host {str(host)[:64]}.")
        raise exceptions.NotServed(
            what="A change of a volume service", instead=" Disable the host's compute service, or drain the host."
        )

    def hosts(self, req: ServiceRequest) -> Response:
        shown = [_host(service) for service in self._services(req)]
        return Response({"hosts": [view for view in shown if req.GET.get("zone") in (None, view["zone"])]})

    def host(self, req: ServiceRequest, name: str) -> Response:
        """Show the volumes that the host serves: all."""
        self._service(req, name)
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
        return Response({"host": shown})

    def pools(self, req: ServiceRequest) -> Response:
        detail = requests.flag(req.GET.get("detail", False), "detail")
        return Response(
            {
                "pools": [
                    _pool(service, self.conf.volume.backend, detail) for service in self._services(req) if service.up
                ]
            }
        )

    def capabilities(self, req: ServiceRequest, name: str) -> Response:
        service = self._service(req, name)
        backend = self.conf.volume.backend
        protocol, description = _described(backend)
        return Response(
            {
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
        )

    def extensions(self, req: ServiceRequest) -> Response:
        shown = [
            {"name": name, "alias": alias, "description": name, "updated": "2026-01-01T00:00:00+00:00", "links": []}
            for alias, name in EXTENSIONS.items()
        ]
        return Response({"extensions": shown})


def _host(service: Service) -> dict[str, Any]:
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


def _pool(service: Service, backend: str, detail: bool) -> dict[str, Any]:
    view: dict[str, Any] = {"name": f"{service.host}@{backend}#{backend}"}
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
            "multiattach": False,
            "thin_provisioning_support": True,
            "timestamp": views.time(service.last_seen_up or service.updated_at),
        }
    return view
