"""Types of volumes, their extra specs, and the projects that may use private ones."""

from __future__ import annotations

import uuid
from typing import Any

from nova_lite.api.http import rest
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import requests, views
from nova_lite.base import exceptions
from nova_lite.objects import VolumeType
from nova_lite.policies import volume_service as policies

_ONE = "/types/{id}"
_SPECS = f"{_ONE}/extra_specs"
_SPEC = f"{_SPECS}/{{key}}"
_PUBLIC = "os-volume-type-access:is_public"


class Types(rest.ServiceApplication):
    """Handlers of `VolumeApp`."""

    type_routes = (
        ServiceRoute("GET", "/types", "types", policies.TYPES),
        ServiceRoute("POST", "/types", "create_type", policies.CHANGE_TYPES),
        ServiceRoute("GET", _ONE, "type", policies.TYPES),
        ServiceRoute("PUT", _ONE, "update_type", policies.CHANGE_TYPES),
        ServiceRoute("DELETE", _ONE, "delete_type", policies.CHANGE_TYPES),
        ServiceRoute("POST", f"{_ONE}/action", "type_action", policies.CHANGE_TYPES),
        ServiceRoute("GET", f"{_ONE}/os-volume-type-access", "type_access", policies.TYPE_ACCESS),
        ServiceRoute("GET", _SPECS, "extra_specs", policies.TYPES),
        ServiceRoute("POST", _SPECS, "add_extra_specs", policies.CHANGE_TYPES),
        ServiceRoute("GET", _SPEC, "extra_spec", policies.TYPES),
        ServiceRoute("PUT", _SPEC, "set_extra_spec", policies.CHANGE_TYPES),
        ServiceRoute("DELETE", _SPEC, "remove_extra_spec", policies.CHANGE_TYPES),
    )

    def types(self, req: ServiceRequest) -> Response:
        found = self.conductor.volume_type_list(req.context)
        wanted = req.GET.get("is_public", "none").lower()
        if wanted not in ("none", ""):
            is_public = requests.flag(wanted, "is_public")
            found = [kind for kind in found if kind.is_public is is_public]
        return Response({"volume_types": [views.volume_type(kind) for kind in found]})

    def type(self, req: ServiceRequest, id: str) -> Response:
        return Response({"volume_type": views.volume_type(self._type(req, id))})

    def _type(self, req: ServiceRequest, reference: str) -> VolumeType:
        return self.conductor.volume_type_get(req.context, self._reference(req, reference))

    def _reference(self, req: ServiceRequest, reference: str) -> str:
        """Return the name or id of a type. ``default``: that of the caller's project."""
        if reference != "default":
            return reference
        own = self.conductor.volume_default_type_list(req.context, str(req.context.project_id))
        return own.get(str(req.context.project_id), str(self.conf.volume.default_type))

    def create_type(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "volume_type", ("name", "description", "extra_specs", _PUBLIC))
        name = requests.text(fields, "name")
        if not name:
            raise exceptions.ValidationError(detail="A volume type needs a name.")
        wanted = VolumeType(
            id=str(uuid.uuid4()),
            name=name,
            description=requests.text(fields, "description"),
            is_public=requests.flag(fields.get(_PUBLIC, True), _PUBLIC),
            extra_specs=requests.metadata(fields.get("extra_specs"), "extra_specs"),
        )
        return Response({"volume_type": views.created_type(self.conductor.volume_type_create(req.context, wanted))})

    def update_type(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "volume_type", ("name", "description", "is_public", _PUBLIC))
        changes: dict[str, Any] = {}
        if fields.get("name") is not None:
            changes["name"] = requests.text(fields, "name")
            if not changes["name"]:
                raise exceptions.ValidationError(detail="A volume type needs a name.")
        if "description" in fields:
            changes["description"] = requests.text(fields, "description")
        if fields.get("is_public", fields.get(_PUBLIC)) is not None:
            changes["is_public"] = requests.flag(fields.get("is_public", fields.get(_PUBLIC)), "is_public")
        if not changes:
            raise exceptions.ValidationError(
                detail="Specify volume type name, description, is_public or a combination."
            )
        return Response({"volume_type": views.changed_type(self._change(req, id, changes))})

    def _change(self, req: ServiceRequest, reference: str, changes: dict[str, Any]) -> VolumeType:
        return self.conductor.volume_type_update(req.context, self._type(req, reference).id, changes)

    def delete_type(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_type_delete(req.context, self._type(req, id).id)
        return Response(status=202)

    def type_action(self, req: ServiceRequest, id: str) -> Response:
        name, fields = requests.action(req, dict.fromkeys(("addProjectAccess", "removeProjectAccess"), ("project",)))
        changes = {
            "addProjectAccess": self.conductor.volume_type_project_add,
            "removeProjectAccess": self.conductor.volume_type_project_remove,
        }
        if name not in changes:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        project = requests.text(fields, "project")
        if not project:
            raise exceptions.ValidationError(detail=f"{name} needs the id of a project.")
        changes[name](req.context, self._type(req, id).id, project)
        return Response(status=202)

    def type_access(self, req: ServiceRequest, id: str) -> Response:
        found = self._type(req, id)
        if found.is_public:
            raise exceptions.NotFound("Access list not available for public volume types.")
        shown = [{"volume_type_id": found.id, "project_id": project} for project in found.projects]
        return Response({"volume_type_access": shown})

    # --- extra specs

    def extra_specs(self, req: ServiceRequest, id: str) -> Response:
        return Response({"extra_specs": self._type(req, id).extra_specs})

    def extra_spec(self, req: ServiceRequest, id: str, key: str) -> Response:
        specs = self._type(req, id).extra_specs
        return Response({key: _spec(specs, key)})

    def add_extra_specs(self, req: ServiceRequest, id: str) -> Response:
        specs = requests.metadata(requests.body(req, "extra_specs"), "extra_specs")
        self._change(req, id, {"extra_specs": specs})
        return Response({"extra_specs": specs})

    def set_extra_spec(self, req: ServiceRequest, id: str, key: str) -> Response:
        spec = requests.metadata(req.json_object(), "extra_specs")
        if spec.keys() != {key}:
            raise exceptions.ValidationError(detail="Request body and URI mismatch")
        self._change(req, id, {"extra_specs": spec})
        return Response(spec)

    def remove_extra_spec(self, req: ServiceRequest, id: str, key: str) -> Response:
        _spec(self._type(req, id).extra_specs, key)
        self._change(req, id, {"extra_specs": {key: None}})
        return Response(status=202)


def _spec(specs: dict[str, str], key: str) -> str:
    if key not in specs:
        raise exceptions.NotFound(f"There is no extra spec with key {key[:64]}.")
    return specs[key]
