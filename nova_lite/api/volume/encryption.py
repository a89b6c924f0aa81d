"""Encryption of volume types. Volumes of a type with encryption are encrypted (`nova_lite.db.volume.volume_keys`)."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, TypeAlias

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import SAME, Body, checked
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.volume import requests, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.api.volume.types import Types
from nova_lite.api.volume.views import View
from nova_lite.base import exceptions
from nova_lite.objects import VolumeType
from nova_lite.policies import volume_service as policies

_ALL, _KEY = "/types/{id}/encryption", "encryption"
_ONE = f"{_ALL}/{{key}}"
_LOCATIONS = ("front-end", "back-end")


def _text(fields: dict[str, Any], name: str) -> Any:
    return requests.text(fields, name) or SAME


def _key_size(fields: dict[str, Any], name: str) -> Any:
    size = fields[name] or SAME
    if size is not SAME and (
        isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= requests.MAX_LIMIT
    ):
        raise exceptions.ValidationError(detail="key_size must be a number of bits.")
    return size


def _location(fields: dict[str, Any], name: str) -> Any:
    location = fields[name] or SAME
    if location not in (SAME, *_LOCATIONS):
        raise exceptions.ValidationError(detail=f"control_location must be {' or '.join(_LOCATIONS)}.")
    return location


_Text: TypeAlias = Annotated[str, checked(_text, maxLength=255)]


class Encryption(Body):
    """Fields of a type's encryption. Clients send empty values for the others."""

    provider: _Text = SAME
    cipher: _Text = SAME
    key_size: Annotated[int, checked(_key_size, minimum=1)] = SAME
    control_location: Annotated[str, checked(_location, enum=list(_LOCATIONS))] = SAME


class TypeEncryption(VolumeResource):
    """Encryption of volume types."""

    @route("GET", _ALL, policies.ENCRYPTION)
    def index(self, req: ServiceRequest, id: str) -> View:
        """Show the encryption of a type. Empty for none."""
        return views.encryption(self.app.part(Types).find(req, id))

    @route("GET", _ONE, policies.ENCRYPTION)
    def show(self, req: ServiceRequest, id: str, key: str) -> View:
        known = self.index(req, id)
        if key not in known:
            raise exceptions.NotFound(f"Volume type {id[:64]} has no encryption spec {key[:64]}.")
        return {key: known[key]}

    @route("POST", _ALL, policies.CHANGE_ENCRYPTION, body=Encryption, key=_KEY, response=_KEY)
    def create(self, req: ServiceRequest, id: str) -> View:
        kind = self.app.part(Types).find(req, id)
        fields = {"key_size": None, "cipher": None, **_changes(req)}
        missing = [name for name in ("provider", "control_location") if name not in fields]
        if missing:
            raise exceptions.ValidationError(detail=f"The encryption of a volume type needs {' and '.join(missing)}.")
        wanted = {"volume_type_id": kind.id, "encryption_id": str(uuid.uuid4()), **fields}
        self.conductor.volume_type_encryption_set(req.context, kind.id, wanted, True)
        return wanted

    @route("PUT", _ONE, policies.CHANGE_ENCRYPTION, body=Encryption, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str, key: str) -> View:
        kind, changes = self._with_encryption(req, id, key), _changes(req)
        changed = {**(kind.encryption or {}), **changes}
        self.conductor.volume_type_encryption_set(req.context, kind.id, changed, False)
        return changes

    @route("DELETE", _ONE, policies.CHANGE_ENCRYPTION, status=202)
    def delete(self, req: ServiceRequest, id: str, key: str) -> None:
        kind = self._with_encryption(req, id, key)
        self.conductor.volume_type_encryption_set(req.context, kind.id, None, False)

    def _with_encryption(self, req: ServiceRequest, id: str, encryption_id: str) -> VolumeType:
        kind = self.app.part(Types).find(req, id)
        known = kind.encryption or {}
        if encryption_id not in (known.get("encryption_id"), "provider"):
            raise exceptions.NotFound(f"Volume type {id[:64]} has no encryption {encryption_id[:64]}.")
        return kind


def _changes(req: ServiceRequest) -> View:
    return bodies.changes(Encryption, requests.body(req, bodies.names(Encryption)))
