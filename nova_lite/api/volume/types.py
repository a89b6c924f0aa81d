"""Types of volumes, their extra specs, and the projects that may use private ones."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import msgspec

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import SAME, Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import requests, views
from nova_lite.api.volume.requests import Metadata, RequiredFlag, Text
from nova_lite.api.volume.resource import VolumeResource, action
from nova_lite.api.volume.views import View
from nova_lite.base import exceptions
from nova_lite.objects import VolumeType
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/types", "/types/{id}", "volume_type"
_SPECS = f"{_ONE}/extra_specs"
_SPEC = f"{_SPECS}/{{key}}"
_PUBLIC = "os-volume-type-access:is_public"

_name = requests.needed(requests.text, "A volume type needs a name.")


def _changed_name(fields: dict[str, Any], name: str) -> Any:
    return SAME if fields[name] is None else _name(fields, name)


def _is_public(fields: dict[str, Any], name: str) -> Any:
    """Return whether a type is public. The longer name is another one for the same, which the shorter one replaces."""
    value = None if name == _PUBLIC and "is_public" in fields else fields[name]
    return SAME if value is None else requests.flag(value, "is_public")


class NewVolumeType(Body):
    name: Annotated[str, checked(_name, maxLength=255)]
    description: Text = None
    is_public: RequiredFlag = msgspec.field(default=True, name=_PUBLIC)
    extra_specs: Metadata = {}


class ChangedVolumeType(Body):
    name: Annotated[str, checked(_changed_name, maxLength=255)] = SAME
    description: Text = None
    is_public: Annotated[bool, checked(_is_public)] = SAME
    access_is_public: Annotated[bool, checked(_is_public)] = msgspec.field(default=SAME, name=_PUBLIC)


class Access(Body):
    project: Text = None


class Types(VolumeResource):
    """Types of volumes."""

    @route("GET", _ALL, policies.TYPES, query=("is_public",), response="volume_types")
    def index(self, req: ServiceRequest) -> list[View]:
        found = self.conductor.volume_type_list(req.context)
        wanted = req.GET.get("is_public", "none").lower()
        if wanted not in ("none", ""):
            is_public = requests.flag(wanted, "is_public")
            found = [kind for kind in found if kind.is_public is is_public]
        return [views.volume_type(kind) for kind in found]

    @route("GET", _ONE, policies.TYPES, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> View:
        return views.volume_type(self.find(req, id))

    def find(self, req: ServiceRequest, reference: str) -> VolumeType:
        return self.conductor.volume_type_get(req.context, self.reference(req, reference))

    def reference(self, req: ServiceRequest, reference: str) -> str:
        """Return the name or id of a type. ``default``: that of the caller's project."""
        if reference != "default":
            return reference
        own = self.conductor.volume_default_type_list(req.context, str(req.context.project_id))
        return own.get(str(req.context.project_id), str(self.conf.volume.default_type))

    @route("POST", _ALL, policies.CHANGE_TYPES, body=NewVolumeType, key=_KEY, response=_KEY)
    def create(self, req: ServiceRequest) -> View:
        body = requests.read(req, NewVolumeType)
        wanted = VolumeType(
            id=str(uuid.uuid4()),
            name=body.name,
            description=body.description,
            is_public=body.is_public,
            extra_specs=body.extra_specs,
        )
        return views.created_type(self.conductor.volume_type_create(req.context, wanted))

    @route("PUT", _ONE, policies.CHANGE_TYPES, body=ChangedVolumeType, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> View:
        changes = bodies.changes(ChangedVolumeType, requests.body(req, bodies.names(ChangedVolumeType)))
        if "access_is_public" in changes:
            changes["is_public"] = changes.pop("access_is_public")
        if not changes:
            raise exceptions.ValidationError(
                detail="Specify volume type name, description, is_public or a combination."
            )
        return views.changed_type(self.change(req, id, changes))

    def change(self, req: ServiceRequest, reference: str, changes: dict[str, Any]) -> VolumeType:
        return self.conductor.volume_type_update(req.context, self.find(req, reference).id, changes)

    @route("DELETE", _ONE, policies.CHANGE_TYPES, status=202)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.conductor.volume_type_delete(req.context, self.find(req, id).id)

    # --- projects that may use a private type

    @route("GET", f"{_ONE}/os-volume-type-access", policies.TYPE_ACCESS, response="volume_type_access")
    def access(self, req: ServiceRequest, id: str) -> list[View]:
        found = self.find(req, id)
        if found.is_public:
            raise exceptions.NotFound("Access list not available for public volume types.")
        return [{"volume_type_id": found.id, "project_id": project} for project in found.projects]

    @route("POST", f"{_ONE}/action", policies.CHANGE_TYPES, status=202)
    def act(self, req: ServiceRequest, id: str) -> Response:
        return super().act(req, id)

    @action("addProjectAccess", body=Access)
    def add_project(self, req: ServiceRequest, id: str, body: Access) -> None:
        project = _project(body, "addProjectAccess")
        self.conductor.volume_type_project_add(req.context, self.find(req, id).id, project)

    @action("removeProjectAccess", body=Access)
    def remove_project(self, req: ServiceRequest, id: str, body: Access) -> None:
        project = _project(body, "removeProjectAccess")
        self.conductor.volume_type_project_remove(req.context, self.find(req, id).id, project)


def _project(body: Access, action: str) -> str:
    if not body.project:
        raise exceptions.ValidationError(detail=f"{action} needs the id of a project.")
    return body.project


class ExtraSpecs(VolumeResource):
    """Extra specs of volume types."""

    def _specs(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self.app.part(Types).find(req, id).extra_specs

    def _change(self, req: ServiceRequest, id: str, specs: dict[str, Any]) -> None:
        self.app.part(Types).change(req, id, {"extra_specs": specs})

    @route("GET", _SPECS, policies.TYPES, response="extra_specs")
    def index(self, req: ServiceRequest, id: str) -> dict[str, str]:
        return self._specs(req, id)

    @route("POST", _SPECS, policies.CHANGE_TYPES, key="extra_specs", response="extra_specs")
    def add(self, req: ServiceRequest, id: str) -> dict[str, str]:
        specs = requests.items(req)
        self._change(req, id, specs)
        return specs

    @route("GET", _SPEC, policies.TYPES)
    def show(self, req: ServiceRequest, id: str, key: str) -> dict[str, str]:
        specs = self._specs(req, id)
        if key not in specs:
            raise exceptions.NotFound(f"There is no extra spec with key {key[:64]}.")
        return {key: specs[key]}

    @route("PUT", _SPEC, policies.CHANGE_TYPES)
    def update(self, req: ServiceRequest, id: str, key: str) -> dict[str, str]:
        spec = requests.one_item(requests.metadata(req.json_object(), "extra_specs"), key)
        self._change(req, id, spec)
        return spec

    @route("DELETE", _SPEC, policies.CHANGE_TYPES, status=202)
    def delete(self, req: ServiceRequest, id: str, key: str) -> None:
        self.show(req, id, key)
        self._change(req, id, {key: None})
