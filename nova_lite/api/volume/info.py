"""Facts about the API itself: its extensions, the filters of its lists, and availability zones."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.volume import versions, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.views import View
from nova_lite.policies import volume_service as policies

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


class Info(VolumeResource):
    """Extensions, filters, and availability zones."""

    @route("GET", "/extensions", policies.EXTENSIONS, response="extensions")
    def extensions(self, req: ServiceRequest) -> list[View]:
        return [
            {"name": name, "alias": alias, "description": name, "updated": "2026-01-01T00:00:00+00:00", "links": []}
            for alias, name in EXTENSIONS.items()
        ]

    @route("GET", "/resource_filters", policies.EXTENSIONS, query=("resource",), response="resource_filters")
    def resource_filters(self, req: ServiceRequest) -> list[View]:
        versions.require(req, versions.RESOURCE_FILTERS)
        resource = req.GET.get("resource")
        return [item for item in views.RESOURCE_FILTERS if resource in (None, item["resource"])]

    @route("GET", "/os-availability-zone", policies.ZONES, response="availabilityZoneInfo")
    def zones(self, req: ServiceRequest) -> list[View]:
        return [{"zoneName": self.conf.compute.default_availability_zone, "zoneState": {"available": True}}]
