"""Containers of secrets: a certificate with its key is one."""

from __future__ import annotations

from typing import Annotated, Any

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.key_manager import resource
from nova_lite.api.key_manager.resource import SecretResource
from nova_lite.api.network import fields, requests
from nova_lite.base.ids import new_id
from nova_lite.load_balancer.objects import Secret
from nova_lite.policies import key_manager as policies

#: Names of secrets in a container, by its type: needed names, and all names. None: any.
_TYPES: dict[str, tuple[set[str], set[str] | None]] = {
    "generic": (set(), None),
    "certificate": (
        {"certificate"}, {"certificate", "private_key", "private_key_passphrase", "intermediates"},
    ),
    "rsa": ({"public_key", "private_key"}, {"public_key", "private_key", "private_key_passphrase"}),
}  # fmt: skip
MAX_PARTS = 20


def _type(value: Any, name: str) -> str:
    if value not in _TYPES:
        raise fields.invalid(name, f"It must be one of {', '.join(_TYPES)}.")
    return str(value)


def _parts(value: Any, name: str) -> dict[str, str]:
    """Return ids of secrets by their names."""
    try:
        found = {fields.text(item.get("name") or "", name): resource.parsed(item["secret_ref"]) for item in value}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise fields.invalid(name, "It must be a list of objects with name and secret_ref.") from error
    if len(found) < len(value) or len(found) > MAX_PARTS or any(kind != "secret" for kind, _ in found.values()):
        raise fields.invalid(name, f"A container has up to {MAX_PARTS} secrets with different names.")
    return {part: id for part, (_, id) in found.items()}


class NewContainer(Body, kw_only=True):
    name: fields.Text = ""
    type: Annotated[str, fields.checked(_type, required=True, enum=[*_TYPES])]
    secret_refs: Annotated[dict[str, str], fields.checked(_parts)] = {}


class Containers(SecretResource):
    """Containers of secrets."""

    kind = "container"

    @route("GET", "/containers", policies.CONTAINERS, query=resource.QUERY)
    def index(self, req: ServiceRequest) -> Response:
        return Response(self.listed(req))

    @route("POST", "/containers", policies.CONTAINER_CREATE, body=NewContainer, status=201)
    def create(self, req: ServiceRequest) -> Response:
        requests.require_known(req.json_object(), NewContainer)
        body = requests.read(req, NewContainer)
        needed, known = _TYPES[body.type]
        names = body.secret_refs.keys()
        if needed - names or (known is not None and names - known):
            raise fields.invalid("secret_refs", f"A container of the type {body.type} has other names of secrets.")
        made = Secret(
            id=new_id(),
            project_id=self.project_of(req),
            creator_id=req.context.user_id or "",
            name=body.name,
            type=body.type,
            parts=body.secret_refs,
        )
        return self.created(req, made)

    @route("GET", "/containers/{id}", policies.CONTAINER_GET)
    def show(self, req: ServiceRequest, id: str) -> Response:
        return Response(self.view(req, self.found(req, id)))

    def view(self, req: ServiceRequest, secret: Secret) -> dict[str, Any]:
        parts = (secret.parts or {}).items()
        refs = [{"name": name, "secret_ref": self.url(req, id, "secret")} for name, id in parts]
        return super().view(req, secret) | {"type": secret.type, "secret_refs": refs, "consumers": []}

    @route("DELETE", "/containers/{id}", policies.CONTAINER_DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.remove(req, id)

    @route("GET", "/containers/{id}/acl", policies.CONTAINER_GET)
    def acl(self, req: ServiceRequest, id: str) -> Response:
        """Show that the whole project may read it."""
        self.found(req, id)
        return Response({"read": {"project-access": True}})
