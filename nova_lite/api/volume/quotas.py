"""Limits of projects: quota sets, the class of the defaults, and the limits that each caller sees."""

from __future__ import annotations

from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.volume import requests, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.views import View
from nova_lite.base import exceptions
from nova_lite.objects import VolumeUse
from nova_lite.policies import volume_service as policies

_SET, _CLASS = "/os-quota-sets/{id}", "/os-quota-class-sets/{name}"
#: The project that has no limits of its own, so that its limits are the defaults.
_NO_PROJECT = ""


class Quotas(VolumeResource):
    """Quotas of projects, and of all projects that have no own ones, which are those of the class ``default``."""

    @route("GET", "/limits", policies.LIMITS, response="limits")
    def limits(self, req: ServiceRequest) -> View:
        return views.limits(self.conductor.volume_usage(req.context, str(req.context.project_id)))

    @route("GET", _SET, policies.QUOTAS, target={"project_id": "id"}, query=("usage",), response="quota_set")
    def show(self, req: ServiceRequest, id: str) -> View:
        with_usage = req.GET.get("usage", "").lower() in ("true", "1")
        return views.quota_set(self.conductor.volume_usage(req.context, id), id, with_usage)

    @route("GET", f"{_SET}/defaults", policies.QUOTAS, target={"project_id": "id"}, response="quota_set")
    def show_defaults(self, req: ServiceRequest, id: str) -> View:
        return views.quota_set(self.conductor.volume_usage(req.context, _NO_PROJECT), id, with_usage=False)

    @route("PUT", _SET, policies.UPDATE_QUOTAS, key="quota_set", response="quota_set")
    def update(self, req: ServiceRequest, id: str) -> View:
        limits = self._limits(req)
        if len(id) > 255 or not id:
            raise exceptions.ValidationError(detail="A project's id has at most 255 characters.")
        return _changed(self.conductor.volume_quota_update(req.context, id, limits))

    @route("DELETE", _SET, policies.DELETE_QUOTAS)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_quota_delete(req.context, id)

    @route("GET", _CLASS, policies.TYPES, response="quota_class_set")
    def show_class(self, req: ServiceRequest, name: str) -> View:
        _require_default(name)
        return self.show_defaults(req, name)

    @route("PUT", _CLASS, policies.UPDATE_CLASSES, key="quota_class_set", response="quota_class_set")
    def update_class(self, req: ServiceRequest, name: str) -> View:
        _require_default(name)
        return _changed(self.conductor.volume_quota_update(req.context, _NO_PROJECT, self._limits(req)))

    def _limits(self, req: ServiceRequest) -> dict[str, int]:
        """Return the limits in the body."""
        sent = requests.body(req)
        return requests.quotas(sent, sorted(self.conductor.volume_usage(req.context, _NO_PROJECT).limits))


def _changed(use: VolumeUse) -> View:
    """Return the view for responses to changes, which has no id."""
    view = views.quota_set(use, "", with_usage=False)
    del view["id"]
    return view


def _require_default(name: str) -> None:
    if name != "default":
        raise exceptions.NotFound(f"Quota class {name[:64]} could not be found.")
