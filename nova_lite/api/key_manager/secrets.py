"""Secrets with their payloads and metadata.

Payloads travel sealed between API and conductor, and never change once they are set.
"""

from __future__ import annotations

import base64
import binascii
import datetime
from typing import Annotated, Any

import webob

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.key_manager import resource
from nova_lite.api.key_manager.resource import SecretResource
from nova_lite.api.network import fields, requests
from nova_lite.base import exceptions, sealing
from nova_lite.base.ids import new_id
from nova_lite.load_balancer.objects import Secret
from nova_lite.policies import key_manager as policies

#: Bytes of a payload, as in Barbican.
MAX_PAYLOAD = 20000
_TYPES = ("symmetric", "public", "private", "passphrase", "certificate", "opaque")
_CONTENT_TYPES = ("text/plain", "application/octet-stream", "application/pkcs8", "application/pkix-cert")
_MAX_METADATA = 50
_ONE, _METADATA = "/secrets/{id}", "/secrets/{id}/metadata"


def _type(value: Any, name: str) -> str:
    if value not in _TYPES:
        raise fields.invalid(name, f"It must be one of {', '.join(_TYPES)}.")
    return str(value)


def _content_type(value: Any, name: str) -> str:
    """Return a content type without its parameters: texts are UTF-8."""
    kind, _, parameters = str(value).partition(";")
    if kind.strip().lower() not in _CONTENT_TYPES or parameters.strip().lower() not in ("", "charset=utf-8"):
        raise fields.invalid(name, f"It must be one of {', '.join(_CONTENT_TYPES)}.")
    return kind.strip().lower()


def _expiration(value: Any, name: str) -> datetime.datetime:
    """Return a time of UTC."""
    try:
        time = datetime.datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise fields.invalid(name, "It must be a time as 2030-01-31T12:00:00.") from error
    return time if time.tzinfo is None else time.astimezone(datetime.UTC).replace(tzinfo=None)


def _metadata(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _MAX_METADATA:
        raise fields.invalid(name, f"It must be an object with up to {_MAX_METADATA} texts.")
    return {fields.text(key, name).lower(): fields.text(text, name) for key, text in value.items()}


def _payload(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise fields.invalid(name, "It must be a text that is not empty.")
    return value


class NewSecret(Body):
    name: fields.Text = ""
    secret_type: Annotated[str, fields.checked(_type, enum=[*_TYPES])] = "opaque"  # noqa: S105 a type
    algorithm: fields.OptionalText = None
    bit_length: Annotated[int | None, fields.within(1, 2**31 - 1)] = None
    mode: fields.OptionalText = None
    expiration: Annotated[datetime.datetime | None, fields.checked(_expiration)] = None
    payload: Annotated[str | None, fields.checked(_payload)] = None
    payload_content_type: Annotated[str | None, fields.checked(_content_type)] = None
    payload_content_encoding: fields.OptionalText = None


class NewMetadata(Body, kw_only=True):
    metadata: Annotated[dict[str, str], fields.checked(_metadata, required=True)]


class NewMetadatum(Body, kw_only=True):
    key: Annotated[str, fields.checked(fields.text, required=True)]
    value: Annotated[str, fields.checked(fields.text, required=True)]


class Secrets(SecretResource):
    """Secrets."""

    kind = "secret"

    @route("GET", "/secrets", policies.SECRETS, query=resource.QUERY)
    def index(self, req: ServiceRequest) -> Response:
        return Response(self.listed(req))

    @route("POST", "/secrets", policies.SECRET_CREATE, body=NewSecret, status=201)
    def create(self, req: ServiceRequest) -> Response:
        requests.require_known(req.json_object(), NewSecret)
        body = requests.read(req, NewSecret)
        made = Secret(
            id=new_id(),
            project_id=self.project_of(req),
            creator_id=req.context.user_id or "",
            type=body.secret_type,
            **{name: getattr(body, name) for name in ("name", "algorithm", "bit_length", "mode", "expiration")},
        )
        box = None
        if body.payload is not None:
            if body.payload_content_type is None:
                raise fields.missing("payload_content_type")
            made.content_type = body.payload_content_type
            encoding = body.payload_content_encoding or ""
            if made.content_type != "text/plain" and encoding != "base64":
                raise fields.invalid("payload_content_encoding", "A payload that is no text must be in base64.")
            box = self._box(req, _decoded(body.payload.encode(), encoding))
        return self.created(req, made, box=box)

    def _box(self, req: ServiceRequest, data: bytes) -> str:
        """Return a payload, sealed to the conductors. Raises a 400."""
        if not 0 < len(data) <= MAX_PAYLOAD:
            raise fields.invalid("payload", f"It must have 1 to {MAX_PAYLOAD} bytes.")
        return sealing.seal(self.change(req, "secret_public_key"), data)

    @route("PUT", _ONE, policies.SECRET_UPDATE, status=204)
    def set_payload(self, req: ServiceRequest, id: str) -> None:
        """Give a secret its payload, which is the body of the request."""
        kind = _content_type(req.headers.get("Content-Type", ""), "Content-Type")
        box = self._box(req, _decoded(req.body, req.headers.get("Content-Encoding", "")))
        self.change(req, "secret_set_payload", id=id, content_type=kind, box=box)

    @route("GET", _ONE, policies.SECRET_GET)
    def show(self, req: ServiceRequest, id: str) -> Response:
        return Response(self.view(req, self.found(req, id)))

    def view(self, req: ServiceRequest, secret: Secret) -> dict[str, Any]:
        time = secret.expiration
        shown = super().view(req, secret) | {
            "secret_type": secret.type,
            "algorithm": secret.algorithm,
            "bit_length": secret.bit_length,
            "mode": secret.mode,
            "expiration": None if time is None else time.isoformat(timespec="seconds"),
        }
        return shown | ({"content_types": {"default": secret.content_type}} if secret.content_type else {})

    @route("GET", f"{_ONE}/payload", policies.SECRET_DECRYPT)
    def payload(self, req: ServiceRequest, id: str) -> webob.Response:
        secret = self.found(req, id)
        data = self.payload_of(req, id)
        kind = secret.content_type or "application/octet-stream"
        charset = "UTF-8" if kind == "text/plain" else None
        return webob.Response(body=data, content_type=kind, charset=charset, cache_control="no-store")

    def payload_of(self, req: ServiceRequest, id: str) -> bytes:
        private_key = sealing.new_private_key()
        box = self.read(req, "secret_payload", id=id, receiver=sealing.public_key(private_key))
        return sealing.unseal(private_key, box)

    @route("DELETE", _ONE, policies.SECRET_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.remove(req, id)

    @route("GET", f"{_ONE}/acl", policies.SECRET_GET)
    def acl(self, req: ServiceRequest, id: str) -> Response:
        """Show that the whole project may read it."""
        self.found(req, id)
        return Response({"read": {"project-access": True}})

    @route("GET", _METADATA, policies.SECRET_GET)
    def metadata(self, req: ServiceRequest, id: str) -> Response:
        return Response({"metadata": self.found(req, id).metadata})

    @route("PUT", _METADATA, policies.METADATA, body=NewMetadata, status=201)
    def set_metadata(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.read(req, NewMetadata).metadata
        self.change(req, "secret_set_metadata", id=id, changes=wanted, replace=True)
        return Response({"metadata_ref": f"{self.url(req, id)}/metadata"}, 201)

    @route("POST", _METADATA, policies.METADATA, body=NewMetadatum, status=201)
    @route("PUT", f"{_METADATA}/{{key}}", policies.METADATA, body=NewMetadatum)
    def set_metadatum(self, req: ServiceRequest, id: str, key: str = "") -> Response:
        body = requests.read(req, NewMetadatum)
        if key and key != body.key:
            raise fields.invalid("key", "It must be the key of the URL.")
        self.change(req, "secret_set_metadata", id=id, changes={body.key.lower(): body.value})
        return Response({"key": body.key.lower(), "value": body.value}, 200 if key else 201)

    @route("GET", f"{_METADATA}/{{key}}", policies.SECRET_GET)
    def metadatum(self, req: ServiceRequest, id: str, key: str) -> Response:
        found = self.found(req, id).metadata
        if key not in found:
            raise exceptions.NotFound("Not Found. Sorry but your secret has no such metadata.")
        return Response({"key": key, "value": found[key]})

    @route("DELETE", f"{_METADATA}/{{key}}", policies.METADATA, status=204)
    def delete_metadatum(self, req: ServiceRequest, id: str, key: str) -> None:
        self.metadatum(req, id, key)
        self.change(req, "secret_set_metadata", id=id, changes={key: None})


def _decoded(data: bytes, encoding: str) -> bytes:
    """Return a payload. Raises a 400."""
    if encoding not in ("", "base64", "binary"):
        raise fields.invalid("payload_content_encoding", "It must be base64.")
    try:
        return base64.b64decode(b"".join(data.split()), validate=True) if encoding == "base64" else data
    except binascii.Error as error:
        raise fields.invalid("payload", "It is not base64.") from error
