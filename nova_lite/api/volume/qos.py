"""Quality of service and encryption of volume types, and the types of new volumes by project.

Quality of service is kept for clients. Volumes of a type with encryption are encrypted
(`nova_lite.db.volume.volume_keys`).
"""

from __future__ import annotations

import uuid
from typing import Any

from nova_lite.api.http import wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, types, versions, views
from nova_lite.base import exceptions
from nova_lite.objects import VolumeQosSpecs, VolumeType
from nova_lite.policies import volume_service as policies

_ALL = "/qos-specs"
_ONE = f"{_ALL}/{{id}}"
_ENCRYPTION = "/types/{id}/encryption"
_DEFAULTS = "/default-types"
_DEFAULT = f"{_DEFAULTS}/{{project_id}}"

CONSUMERS = ("front-end", "back-end", "both")
_FIELDS = ("provider", "cipher", "key_size", "control_location")
_LOCATIONS = ("front-end", "back-end")


class Qos(types.Types):
    """Handlers of `VolumeApp`."""

    qos_routes = (
        ServiceRoute("GET", _ALL, "qos_list", policies.QOS),
        ServiceRoute("POST", _ALL, "create_qos", policies.CHANGE_QOS),
        ServiceRoute("GET", _ONE, "show_qos", policies.QOS),
        ServiceRoute("PUT", _ONE, "update_qos", policies.CHANGE_QOS),
        ServiceRoute("DELETE", _ONE, "delete_qos", policies.CHANGE_QOS),
        ServiceRoute("PUT", f"{_ONE}/delete_keys", "delete_qos_keys", policies.CHANGE_QOS),
        ServiceRoute("GET", f"{_ONE}/associations", "qos_associations", policies.QOS),
        ServiceRoute("GET", f"{_ONE}/associate", "associate_qos", policies.CHANGE_QOS),
        ServiceRoute("GET", f"{_ONE}/disassociate", "disassociate_qos", policies.CHANGE_QOS),
        ServiceRoute("GET", f"{_ONE}/disassociate_all", "disassociate_all_qos", policies.CHANGE_QOS),
        ServiceRoute("GET", _ENCRYPTION, "encryption", policies.ENCRYPTION),
        ServiceRoute("POST", _ENCRYPTION, "create_encryption", policies.CHANGE_ENCRYPTION),
        ServiceRoute("GET", f"{_ENCRYPTION}/{{key}}", "encryption_item", policies.ENCRYPTION),
        ServiceRoute("PUT", f"{_ENCRYPTION}/{{key}}", "update_encryption", policies.CHANGE_ENCRYPTION),
        ServiceRoute("DELETE", f"{_ENCRYPTION}/{{key}}", "delete_encryption", policies.CHANGE_ENCRYPTION),
        ServiceRoute("GET", _DEFAULTS, "default_types", policies.DEFAULT_TYPES),
        ServiceRoute("GET", _DEFAULT, "default_type", policies.DEFAULT_TYPES),
        ServiceRoute("PUT", _DEFAULT, "set_default_type", policies.DEFAULT_TYPES),
        ServiceRoute("DELETE", _DEFAULT, "unset_default_type", policies.DEFAULT_TYPES),
    )

    # --- quality of service

    def qos_list(self, req: ServiceRequest) -> Response:
        found = listing.page_of(req, self.conductor.volume_qos_list(req.context), self.conf.api.max_limit)
        return Response({"qos_specs": [views.qos(item) for item in found]})

    def create_qos(self, req: ServiceRequest) -> Response:
        fields = dict(requests.body(req, "qos_specs"))
        name = requests.text(fields, "name")
        if not name:
            raise exceptions.ValidationError(detail="QoS specs need a name.")
        consumer = _consumer(fields.get("consumer") or "back-end")
        specs = requests.metadata(
            {key: value for key, value in fields.items() if key not in ("name", "consumer")}, "qos_specs"
        )
        wanted = VolumeQosSpecs(id=str(uuid.uuid4()), name=name, consumer=consumer, specs=specs)
        return self._shown(req, self.conductor.volume_qos_create(req.context, wanted))

    def show_qos(self, req: ServiceRequest, id: str) -> Response:
        return self._shown(req, self.conductor.volume_qos_get(req.context, id))

    def _shown(self, req: ServiceRequest, shown: VolumeQosSpecs) -> Response:
        return Response({"qos_specs": views.qos(shown), "links": views.links(req, shown.id, "qos-specs")})

    def update_qos(self, req: ServiceRequest, id: str) -> Response:
        """Set some of the specs. The response repeats the request."""
        fields = requests.metadata(requests.body(req, "qos_specs"), "qos_specs")
        changes: dict[str, Any] = {"specs": {key: value for key, value in fields.items() if key != "consumer"}}
        if "consumer" in fields:
            changes["consumer"] = _consumer(fields["consumer"])
        self.conductor.volume_qos_update(req.context, id, changes)
        return Response({"qos_specs": fields})

    def delete_qos_keys(self, req: ServiceRequest, id: str) -> Response:
        keys = req.json_object().get("keys")
        if not isinstance(keys, list) or not keys or not all(isinstance(key, str) for key in keys):
            raise exceptions.ValidationError(detail="keys must be a list of the names of specs.")
        known = self.conductor.volume_qos_get(req.context, id).specs
        for key in keys:
            if key not in known:
                raise exceptions.ValidationError(detail=f"QoS specs {id[:64]} have no spec with key {key[:64]}.")
        self.conductor.volume_qos_update(req.context, id, {"specs": dict.fromkeys(keys)})
        return Response(status=202)

    def delete_qos(self, req: ServiceRequest, id: str) -> Response:
        force = requests.flag(req.GET.get("force", False), "force")
        self.conductor.volume_qos_delete(req.context, id, force)
        return Response(status=202)

    def qos_associations(self, req: ServiceRequest, id: str) -> Response:
        types = self.conductor.volume_qos_get(req.context, id).types
        shown = [{"association_type": "volume_type", "name": name, "id": key} for key, name in types.items()]
        return Response({"qos_associations": shown})

    def associate_qos(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_qos_associate(req.context, id, self._type_in_query(req))
        return Response(status=202)

    def disassociate_qos(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_qos_disassociate(req.context, id, self._type_in_query(req))
        return Response(status=202)

    def _type_in_query(self, req: ServiceRequest) -> str:
        reference = req.GET.get("vol_type_id")
        if not reference:
            raise exceptions.ValidationError(detail="The query needs vol_type_id, the id of a volume type.")
        return self._type(req, reference).id

    def disassociate_all_qos(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.volume_qos_disassociate_all(req.context, id)
        return Response(status=202)

    # --- encryption

    def encryption(self, req: ServiceRequest, id: str) -> Response:
        """Show the encryption of a type. Empty for none."""
        return Response(views.encryption(self._type(req, id)))

    def encryption_item(self, req: ServiceRequest, id: str, key: str) -> Response:
        known = views.encryption(self._type(req, id))
        if key not in known:
            raise exceptions.NotFound(f"Volume type {id[:64]} has no encryption spec {key[:64]}.")
        return Response({key: known[key]})

    def create_encryption(self, req: ServiceRequest, id: str) -> Response:
        kind = self._type(req, id)
        fields = _encryption(requests.body(req, "encryption", _FIELDS), {"key_size": None, "cipher": None})
        missing = [name for name in ("provider", "control_location") if not fields.get(name)]
        if missing:
            raise exceptions.ValidationError(detail=f"The encryption of a volume type needs {' and '.join(missing)}.")
        wanted = {"volume_type_id": kind.id, "encryption_id": str(uuid.uuid4()), **fields}
        self.conductor.volume_type_encryption_set(req.context, kind.id, wanted, True)
        return Response({"encryption": wanted})

    def update_encryption(self, req: ServiceRequest, id: str, key: str) -> Response:
        kind = self._with_encryption(req, id, key)
        changes = _encryption(requests.body(req, "encryption", _FIELDS), {})
        changed = {**(kind.encryption or {}), **changes}
        self.conductor.volume_type_encryption_set(req.context, kind.id, changed, False)
        return Response({"encryption": changes})

    def delete_encryption(self, req: ServiceRequest, id: str, key: str) -> Response:
        kind = self._with_encryption(req, id, key)
        self.conductor.volume_type_encryption_set(req.context, kind.id, None, False)
        return Response(status=202)

    def _with_encryption(self, req: ServiceRequest, id: str, encryption_id: str) -> VolumeType:
        kind = self._type(req, id)
        known = kind.encryption or {}
        if encryption_id not in (known.get("encryption_id"), "provider"):
            raise exceptions.NotFound(f"Volume type {id[:64]} has no encryption {encryption_id[:64]}.")
        return kind

    # --- default types

    def default_types(self, req: ServiceRequest) -> Response:
        """List the projects that have a default type of their own."""
        _since(req, versions.DEFAULT_TYPES)
        found = self.conductor.volume_default_type_list(req.context, None)
        shown = [{"project_id": project, "volume_type_id": type_id} for project, type_id in found.items()]
        return Response({"default_types": shown})

    def default_type(self, req: ServiceRequest, project_id: str) -> Response:
        _since(req, versions.DEFAULT_TYPES)
        found = self.conductor.volume_default_type_list(req.context, project_id)
        if project_id not in found:
            _require_project(req, project_id)
            raise exceptions.NotFound(f"Project {project_id[:64]} has no default volume type of its own.")
        return Response({"default_type": {"project_id": project_id, "volume_type_id": found[project_id]}})

    def set_default_type(self, req: ServiceRequest, project_id: str) -> Response:
        _since(req, versions.DEFAULT_TYPES)
        reference = requests.text(requests.body(req, "default_type", ("volume_type",)), "volume_type")
        if not reference or len(project_id) > 255:
            raise exceptions.ValidationError(detail="volume_type must be the id or name of a volume type.")
        _require_project(req, project_id)
        kind = self._type(req, reference)
        if not kind.is_public and project_id not in kind.projects:
            raise exceptions.ValidationError(detail=f"Project {project_id} has no access to volume type {kind.name}.")
        self.conductor.volume_default_type_set(req.context, project_id, kind.id)
        return Response({"default_type": {"project_id": project_id, "volume_type_id": kind.id}})

    def unset_default_type(self, req: ServiceRequest, project_id: str) -> Response:
        _since(req, versions.DEFAULT_TYPES)
        if not self.conductor.volume_default_type_list(req.context, project_id):
            _require_project(req, project_id)
        self.conductor.volume_default_type_set(req.context, project_id, None)
        return Response(status=204)


def _require_project(req: ServiceRequest, project_id: str) -> None:
    """Raise `NotFound` for a project that does not exist, where this cloud's identity service knows all."""
    has_project = req.environ.get(wsgi.HAS_PROJECT)
    if has_project is not None and not has_project(project_id):
        raise exceptions.NotFound(f"There is no project {project_id[:64]}.")


def _since(req: ServiceRequest, minor: int) -> None:
    if versions.minor_of(req.headers) < minor:
        raise wsgi.UnknownUrl()


def _consumer(value: Any) -> str:
    if value not in CONSUMERS:
        raise exceptions.ValidationError(detail=f"The consumer of QoS specs is one of {', '.join(CONSUMERS)}.")
    return str(value)


def _encryption(body: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a type's encryption that a request sets. Clients send empty values for others."""
    fields = dict(defaults)
    for name in ("provider", "cipher"):
        if text := requests.text(body, name):
            fields[name] = text
    if body.get("key_size"):
        size = body["key_size"]
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= requests.MAX_LIMIT:
            raise exceptions.ValidationError(detail="key_size must be a number of bits.")
        fields["key_size"] = size
    if body.get("control_location"):
        if body["control_location"] not in _LOCATIONS:
            raise exceptions.ValidationError(detail=f"control_location must be {' or '.join(_LOCATIONS)}.")
        fields["control_location"] = body["control_location"]
    return fields
