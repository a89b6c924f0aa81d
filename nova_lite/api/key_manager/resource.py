"""Base class of the resources, and lists in Barbican's form."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import msgspec

from nova_lite.api.http.rest import ServiceRequest, ServiceResource
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields
from nova_lite.base import exceptions
from nova_lite.load_balancer.objects import WING, Secret

#: Query parameters of lists.
QUERY = ("limit", "offset", "name", "secret_type", "type")
_DEFAULT_LIMIT = 10
_REFERENCE = re.compile(
    r"https?://[^\s/?#]+(?:/[^\s?#]*)?/v1/(?P<kind>secret|container)s/"
    r"(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})/?"
)


def parsed(reference: Any) -> tuple[str, str]:
    """Return kind and id of what a reference names. Raises ValueError."""
    found = _REFERENCE.fullmatch(reference) if isinstance(reference, str) and len(reference) <= 255 else None
    if found is None:
        raise ValueError(f"{str(reference)[:64]!r} is not the reference of a secret or a container.")
    return found["kind"], found["id"]


class SecretResource(ServiceResource):
    """Resource whose conductor's half is the wing of load balancers. ``kind``: secret or container."""

    kind: str

    def read(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_read(req.context, WING, method, msgspec.to_builtins(arguments))

    def change(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_change(req.context, WING, method, msgspec.to_builtins(arguments))

    def found(self, req: ServiceRequest, id: str) -> Secret:
        return msgspec.convert(self.read(req, "secret_get", kind=self.kind, id=id), Secret)

    def created(self, req: ServiceRequest, secret: Secret, **arguments: Any) -> Response:
        """Create a secret or container, and return the response."""
        self.change(req, "secret_create", kind=self.kind, secret=secret, **arguments)
        url = self.url(req, secret.id)
        return Response({f"{self.kind}_ref": url}, 201, {"Location": url})

    def url(self, req: ServiceRequest, id: str, kind: str = "") -> str:
        return f"{req.base_url.rstrip('/')}/{kind or self.kind}s/{id}"

    def view(self, req: ServiceRequest, secret: Secret) -> dict[str, Any]:
        """Return the attributes of all kinds."""
        shown: dict[str, Any] = {
            f"{self.kind}_ref": self.url(req, secret.id),
            "name": secret.name or None,
            "status": "ACTIVE",
            "creator_id": secret.creator_id,
        }
        for name, time in (("created", secret.created_at), ("updated", secret.updated_at)):
            shown[name] = None if time is None else time.isoformat(timespec="seconds")
        return shown

    def listed(self, req: ServiceRequest) -> dict[str, Any]:
        """Return a page of the project's secrets or containers."""
        limit = fields.number(req.GET.get("limit", _DEFAULT_LIMIT), "limit", 1, self.conf.api.max_limit)
        offset = fields.number(req.GET.get("offset", 0), "offset", 0, 2**31 - 1)
        every = msgspec.convert(self.read(req, "secret_list", kind=self.kind), list[Secret])
        kind = req.GET.get("secret_type", req.GET.get("type"))
        every = [one for one in every if kind in (None, one.type) and req.GET.get("name", one.name) == one.name]
        plural = f"{self.kind}s"
        page: dict[str, Any] = {plural: [self.view(req, one) for one in every[offset : offset + limit]]}
        page["total"] = len(every)
        here = f"{req.base_url.rstrip('/')}/{plural}?"
        if offset + limit < len(every):
            page["next"] = here + urlencode({**req.GET, "limit": limit, "offset": offset + limit})
        if offset:
            page["previous"] = here + urlencode({**req.GET, "limit": limit, "offset": max(0, offset - limit)})
        return page

    def remove(self, req: ServiceRequest, id: str) -> None:
        self.change(req, "secret_delete", kind=self.kind, id=id)

    def project_of(self, req: ServiceRequest) -> str:
        """Return the project of the token. Raises a 400."""
        if not req.context.project_id:
            raise exceptions.ValidationError(detail="Secrets belong to a project, and the token is for none.")
        return req.context.project_id
