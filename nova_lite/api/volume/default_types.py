"""Types of new volumes, by project."""

from __future__ import annotations

from typing import Annotated

from nova_lite.api.http import wsgi
from nova_lite.api.http.bodies import Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.volume import requests, versions
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.types import Types
from nova_lite.api.volume.views import View
from nova_lite.base import exceptions
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/default-types", "/default-types/{project_id}", "default_type"
_WRONG = "volume_type must be the id or name of a volume type."


class DefaultType(Body):
    volume_type: Annotated[str, checked(requests.needed(requests.text, _WRONG), maxLength=255)]


class DefaultTypes(VolumeResource):
    """Types of new volumes by project."""

    @route("GET", _ALL, policies.DEFAULT_TYPES, response="default_types")
    def index(self, req: ServiceRequest) -> list[View]:
        """List the projects that have a default type of their own."""
        versions.require(req, versions.DEFAULT_TYPES)
        found = self.conductor.volume_default_type_list(req.context, None)
        return [{"project_id": project, "volume_type_id": type_id} for project, type_id in found.items()]

    @route("GET", _ONE, policies.DEFAULT_TYPES, response=_KEY)
    def show(self, req: ServiceRequest, project_id: str) -> View:
        versions.require(req, versions.DEFAULT_TYPES)
        found = self.conductor.volume_default_type_list(req.context, project_id)
        if project_id not in found:
            _require_project(req, project_id)
            raise exceptions.NotFound(f"Project {project_id[:64]} has no default volume type of its own.")
        return {"project_id": project_id, "volume_type_id": found[project_id]}

    @route("PUT", _ONE, policies.DEFAULT_TYPES, body=DefaultType, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, project_id: str) -> View:
        versions.require(req, versions.DEFAULT_TYPES)
        reference = requests.read(req, DefaultType).volume_type
        if len(project_id) > 255:
            raise exceptions.ValidationError(detail=_WRONG)
        _require_project(req, project_id)
        kind = self.app.part(Types).find(req, reference)
        if not kind.is_public and project_id not in kind.projects:
            raise exceptions.ValidationError(detail=f"Project {project_id} has no access to volume type {kind.name}.")
        self.conductor.volume_default_type_set(req.context, project_id, kind.id)
        return {"project_id": project_id, "volume_type_id": kind.id}

    @route("DELETE", _ONE, policies.DEFAULT_TYPES, status=204)
    def delete(self, req: ServiceRequest, project_id: str) -> None:
        versions.require(req, versions.DEFAULT_TYPES)
        if not self.conductor.volume_default_type_list(req.context, project_id):
            _require_project(req, project_id)
        self.conductor.volume_default_type_set(req.context, project_id, None)


def _require_project(req: ServiceRequest, project_id: str) -> None:
    """Raise `NotFound` for a project that does not exist, where this cloud's identity service knows all."""
    has_project = req.environ.get(wsgi.HAS_PROJECT)
    if has_project is not None and not has_project(project_id):
        raise exceptions.NotFound(f"There is no project {project_id[:64]}.")
