"""Limits of projects, and facts about the API: extensions, filters of lists, availability zones."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.volume import requests, versions, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.base import exceptions
from nova_lite.objects import VolumeUse
from nova_lite.policies import volume_service as policies

_SET, _CLASS = "/os-quota-sets/{id}", "/os-quota-class-sets/{name}"
#: The project that has no limits of its own, so that its limits are the defaults.
_NO_PROJECT = ""

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
    def extensions(self, req: ServiceRequest) -> list[views.View]:
        return [
            {"name": name, "alias": alias, "description": name, "updated": "2026-01-01T00:00:00+00:00", "links": []}
            for alias, name in EXTENSIONS.items()
        ]

    @route("GET", "/resource_filters", policies.EXTENSIONS, query=("resource",), response="resource_filters")
    def resource_filters(self, req: ServiceRequest) -> list[views.View]:
        versions.require(req, versions.RESOURCE_FILTERS)
        resource = req.GET.get("resource")
        return [item for item in views.RESOURCE_FILTERS if resource in (None, item["resource"])]

    @route("GET", "/os-availability-zone", policies.ZONES, response="availabilityZoneInfo")
    def zones(self, req: ServiceRequest) -> list[views.View]:
        return [{"zoneName": self.conf.compute.default_availability_zone, "zoneState": {"available": True}}]


class Quotas(VolumeResource):
    """Quotas of projects, and of all projects that have no own ones, which are those of the class ``default``."""

    @route("GET", "/limits", policies.LIMITS, response="limits")
    def limits(self, req: ServiceRequest) -> views.View:
        return views.limits(self.conductor.volume_usage(req.context, str(req.context.project_id)))

    @route("GET", _SET, policies.QUOTAS, target={"project_id": "id"}, query=("usage",), response="quota_set")
    def show(self, req: ServiceRequest, id: str) -> views.View:
        with_usage = req.GET.get("usage", "").lower() in ("true", "1")
        return views.quota_set(self.conductor.volume_usage(req.context, id), id, with_usage)

    @route("GET", f"{_SET}/defaults", policies.QUOTAS, target={"project_id": "id"}, response="quota_set")
    def show_defaults(self, req: ServiceRequest, id: str) -> views.View:
        return views.quota_set(self.conductor.volume_usage(req.context, _NO_PROJECT), id, with_usage=False)

    @route("PUT", _SET, policies.UPDATE_QUOTAS, key="quota_set", response="quota_set")
    def update(self, req: ServiceRequest, id: str) -> views.View:
        limits = self._limits(req)
        if len(id) > 255 or not id:
            raise exceptions.ValidationError(detail="A project's id has at most 255 characters.")
        return _changed(self.conductor.volume_quota_update(req.context, id, limits))

    @route("DELETE", _SET, policies.DELETE_QUOTAS)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_quota_delete(req.context, id)

    @route("GET", _CLASS, policies.TYPES, response="quota_class_set")
    def show_class(self, req: ServiceRequest, name: str) -> views.View:
        _require_default(name)
        return self.show_defaults(req, name)

    @route("PUT", _CLASS, policies.UPDATE_CLASSES, key="quota_class_set", response="quota_class_set")
    def update_class(self, req: ServiceRequest, name: str) -> views.View:
        _require_default(name)
        return _changed(self.conductor.volume_quota_update(req.context, _NO_PROJECT, self._limits(req)))

    def _limits(self, req: ServiceRequest) -> dict[str, int]:
        """Return the limits in the body."""
        sent = requests.body(req)
        return requests.quotas(sent, sorted(self.conductor.volume_usage(req.context, _NO_PROJECT).limits))


def _changed(use: VolumeUse) -> views.View:
    """Return the view for responses to changes, which has no id."""
    view = views.quota_set(use, "", with_usage=False)
    del view["id"]
    return view


def _require_default(name: str) -> None:
    if name != "default":
        raise exceptions.NotFound(f"Quota class {name[:64]} could not be found.")
