"""Types of volumes: extra specs, encryption, projects that may use private ones, and defaults of projects.

Volumes of a type with encryption are encrypted (`nova_lite.db.volume.volume_keys`).
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.http import bodies, wsgi
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import requests, versions, views
from nova_lite.api.volume.resource import VolumeResource, action
from nova_lite.base import exceptions
from nova_lite.objects import VolumeType
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/types", "/types/{id}", "volume_type"
_SPECS = f"{_ONE}/extra_specs"
_SPEC = f"{_SPECS}/{{key}}"
_ENCRYPTION = f"{_ONE}/encryption"
_ENCRYPTION_ITEM = f"{_ENCRYPTION}/{{key}}"
_LOCATIONS = ("front-end", "back-end")
_DEFAULTS, _DEFAULT = "/default-types", "/default-types/{project_id}"
_WRONG = "volume_type must be the id or name of a volume type."
_PUBLIC = "os-volume-type-access:is_public"

_NAMELESS = "A volume type needs a name."


def _is_public(fields: dict[str, Any], name: str) -> Any:
    """Return whether a type is public. The longer name is another one for the same, which the shorter one replaces."""
    value = None if name == _PUBLIC and "is_public" in fields else fields[name]
    return bodies.SAME if value is None else requests.flag(value, "is_public")


class NewVolumeType(bodies.Body):
    name: Annotated[str, requests.needed(requests.text, _NAMELESS, maxLength=255)]
    description: requests.Text = None
    is_public: requests.RequiredFlag = msgspec.field(default=True, name=_PUBLIC)
    extra_specs: requests.Metadata = {}


class ChangedVolumeType(bodies.Body):
    name: requests.Name = bodies.SAME
    description: requests.Text = None
    is_public: Annotated[bool, bodies.checked(_is_public)] = bodies.SAME
    access_is_public: Annotated[bool, bodies.checked(_is_public)] = msgspec.field(default=bodies.SAME, name=_PUBLIC)


class Access(bodies.Body):
    project: requests.Text = None


class Types(VolumeResource):
    """Types of volumes."""

    @route("GET", _ALL, policies.TYPES, query=("is_public",), response="volume_types")
    def index(self, req: ServiceRequest) -> list[views.View]:
        found = self.conductor.volume_type_list(req.context)
        wanted = req.GET.get("is_public", "none").lower()
        if wanted not in ("none", ""):
            is_public = requests.flag(wanted, "is_public")
            found = [kind for kind in found if kind.is_public is is_public]
        return [views.volume_type(kind) for kind in found]

    @route("GET", _ONE, policies.TYPES, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
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
    def create(self, req: ServiceRequest) -> views.View:
        wanted = requests.new(VolumeType, requests.read(req, NewVolumeType))
        return views.created_type(self.conductor.volume_type_create(req.context, wanted))

    @route("PUT", _ONE, policies.CHANGE_TYPES, body=ChangedVolumeType, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = bodies.changes(ChangedVolumeType, requests.body(req, bodies.names(ChangedVolumeType)))
        if changes.get("name") == "":
            raise exceptions.ValidationError(detail=_NAMELESS)
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
    def access(self, req: ServiceRequest, id: str) -> list[views.View]:
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
        return views.item(self._specs(req, id), key, f"There is no extra spec with key {key[:64]}.")

    @route("PUT", _SPEC, policies.CHANGE_TYPES)
    def update(self, req: ServiceRequest, id: str, key: str) -> dict[str, str]:
        spec = requests.one_item(requests.metadata(req.json_object(), "extra_specs"), key)
        self._change(req, id, spec)
        return spec

    @route("DELETE", _SPEC, policies.CHANGE_TYPES, status=202)
    def delete(self, req: ServiceRequest, id: str, key: str) -> None:
        self.show(req, id, key)
        self._change(req, id, {key: None})


def _filled_text(fields: dict[str, Any], name: str) -> Any:
    return requests.text(fields, name) or bodies.SAME


def _key_size(fields: dict[str, Any], name: str) -> Any:
    size = fields[name] or bodies.SAME
    if size is not bodies.SAME and (
        isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= requests.MAX_LIMIT
    ):
        raise exceptions.ValidationError(detail="key_size must be a number of bits.")
    return size


def _location(fields: dict[str, Any], name: str) -> Any:
    location = fields[name] or bodies.SAME
    if location not in (bodies.SAME, *_LOCATIONS):
        raise exceptions.ValidationError(detail=f"control_location must be {' or '.join(_LOCATIONS)}.")
    return location


_FilledText: TypeAlias = Annotated[str, bodies.checked(_filled_text, maxLength=255)]


class Encryption(bodies.Body):
    """Fields of a type's encryption. Clients send empty values for the others."""

    provider: _FilledText = bodies.SAME
    cipher: _FilledText = bodies.SAME
    key_size: Annotated[int, bodies.checked(_key_size, minimum=1)] = bodies.SAME
    control_location: Annotated[str, bodies.checked(_location, enum=list(_LOCATIONS))] = bodies.SAME


class TypeEncryption(VolumeResource):
    """Encryption of volume types."""

    @route("GET", _ENCRYPTION, policies.ENCRYPTION)
    def index(self, req: ServiceRequest, id: str) -> views.View:
        """Show the encryption of a type. Empty for none."""
        return views.encryption(self.app.part(Types).find(req, id))

    @route("GET", _ENCRYPTION_ITEM, policies.ENCRYPTION)
    def show(self, req: ServiceRequest, id: str, key: str) -> views.View:
        missing = f"Volume type {id[:64]} has no encryption spec {key[:64]}."
        return views.item(self.index(req, id), key, missing)

    @route("POST", _ENCRYPTION, policies.CHANGE_ENCRYPTION, body=Encryption, key="encryption", response="encryption")
    def create(self, req: ServiceRequest, id: str) -> views.View:
        kind = self.app.part(Types).find(req, id)
        fields = {"key_size": None, "cipher": None, **_encryption(req)}
        missing = [name for name in ("provider", "control_location") if name not in fields]
        if missing:
            raise exceptions.ValidationError(detail=f"The encryption of a volume type needs {' and '.join(missing)}.")
        wanted = {"volume_type_id": kind.id, "encryption_id": str(uuid.uuid4()), **fields}
        self.conductor.volume_type_encryption_set(req.context, kind.id, wanted, True)
        return wanted

    @route(
        "PUT", _ENCRYPTION_ITEM, policies.CHANGE_ENCRYPTION, body=Encryption, key="encryption", response="encryption"
    )
    def update(self, req: ServiceRequest, id: str, key: str) -> views.View:
        kind, changes = self._with_encryption(req, id, key), _encryption(req)
        changed = {**(kind.encryption or {}), **changes}
        self.conductor.volume_type_encryption_set(req.context, kind.id, changed, False)
        return changes

    @route("DELETE", _ENCRYPTION_ITEM, policies.CHANGE_ENCRYPTION, status=202)
    def delete(self, req: ServiceRequest, id: str, key: str) -> None:
        kind = self._with_encryption(req, id, key)
        self.conductor.volume_type_encryption_set(req.context, kind.id, None, False)

    def _with_encryption(self, req: ServiceRequest, id: str, encryption_id: str) -> VolumeType:
        kind = self.app.part(Types).find(req, id)
        known = kind.encryption or {}
        if encryption_id not in (known.get("encryption_id"), "provider"):
            raise exceptions.NotFound(f"Volume type {id[:64]} has no encryption {encryption_id[:64]}.")
        return kind


def _encryption(req: ServiceRequest) -> views.View:
    return bodies.changes(Encryption, requests.body(req, bodies.names(Encryption)))


class DefaultType(bodies.Body):
    volume_type: Annotated[str, requests.needed(requests.text, _WRONG, maxLength=255)]


class DefaultTypes(VolumeResource):
    """Types of new volumes by project."""

    @route("GET", _DEFAULTS, policies.DEFAULT_TYPES, response="default_types")
    def index(self, req: ServiceRequest) -> list[views.View]:
        """List the projects that have a default type of their own."""
        versions.require(req, versions.DEFAULT_TYPES)
        found = self.conductor.volume_default_type_list(req.context, None)
        return [{"project_id": project, "volume_type_id": type_id} for project, type_id in found.items()]

    @route("GET", _DEFAULT, policies.DEFAULT_TYPES, response="default_type")
    def show(self, req: ServiceRequest, project_id: str) -> views.View:
        versions.require(req, versions.DEFAULT_TYPES)
        found = self.conductor.volume_default_type_list(req.context, project_id)
        if project_id not in found:
            _require_project(req, project_id)
            raise exceptions.NotFound(f"Project {project_id[:64]} has no default volume type of its own.")
        return {"project_id": project_id, "volume_type_id": found[project_id]}

    @route("PUT", _DEFAULT, policies.DEFAULT_TYPES, body=DefaultType, key="default_type", response="default_type")
    def update(self, req: ServiceRequest, project_id: str) -> views.View:
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

    @route("DELETE", _DEFAULT, policies.DEFAULT_TYPES, status=204)
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
