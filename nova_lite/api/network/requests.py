"""Requests of the network API: their bodies, and the objects that they describe."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Set
from typing import Any, Protocol, TypeVar

import msgspec

from nova_lite.api.http import bodies
from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.network import fields
from nova_lite.base import exceptions

B = TypeVar("B", bound=Body)
T = TypeVar("T", bound=msgspec.Struct)

#: Number of resources that one request may create.
MAX_BULK = 200
_REVISION = re.compile(r"revision_number=([0-9]{1,15})")
#: Attributes that no request changes.
_FIXED = {"project_id", "tenant_id", "network_id", "cidr", "ip_version", "ipv6_ra_mode", "ipv6_address_mode"}


def read(req: ServiceRequest, kind: type[B]) -> B:
    """Return the object of a request. Raises a 400."""
    return bodies.read(kind, _object(req, kind))


def changes(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    """Return the attributes that a request has, by the names of the struct's fields. Raises a 400."""
    return bodies.changes(kind, _object(req, kind))


def bulk(req: ServiceRequest, kind: type[B]) -> tuple[list[B], bool]:
    """Return the objects of a request to create resources, and whether it is about several at once. Raises a 400.

    It has one object under the route's key, or a list of objects under the plural. Each object of the list may itself
    be under the key.
    """
    sent, key = req.json_object(), req.service_route.key or ""
    plural = f"{key}s"
    if plural not in sent or key in sent:
        return [read(req, kind)], False
    items = sent[plural]
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise fields.invalid(plural, "It must be a list of objects.")
    if not 0 < len(items) <= MAX_BULK:
        raise fields.invalid(plural, f"One request creates at least one of them, and at most {MAX_BULK}.")
    objects = [item[key] if item.keys() == {key} else item for item in items]
    return [bodies.read(kind, _known(item, key, kind)) for item in objects], True


def _object(req: ServiceRequest, kind: type[Body]) -> dict[str, Any]:
    key, sent = req.service_route.key, req.json_object()
    return sent if key is None else _known(sent.get(key), key, kind)


def _known(sent: Any, key: str, kind: type[Body]) -> dict[str, Any]:
    if not isinstance(sent, dict):
        raise exceptions.ValidationError(detail=f"Unable to find '{key}' in request body")
    require_known(sent, kind)
    return sent


def require_known(sent: dict[str, Any], kind: type[Body]) -> None:
    """Check that a body has this kind's attributes only. Raises a 400."""
    for name in sent:
        if name not in bodies.names(kind):
            raise fields.unknown(name)


def take_same(changes: dict[str, Any], now: Mapping[str, Any], why: str, names: Set[str] = _FIXED) -> None:
    """Take attributes that no request changes out of ``changes``. Raises a 400 with ``why`` if one would change."""
    for name in names & changes.keys():
        if changes.pop(name) != now[name]:
            raise exceptions.ValidationError(detail=why.format(name=name))


def expected_revision(req: ServiceRequest) -> int | None:
    """Return the revision that a change is for by the header ``If-Match``, None for any. Raises a 400."""
    header = req.headers.get("If-Match")
    if header is None:
        return None
    found = _REVISION.fullmatch(header.strip())
    if found is None:
        raise exceptions.ValidationError(
            detail="Invalid header If-Match. It must be revision_number=NUMBER, with the revision_number that was read."
        )
    return int(found[1])


class HasProject(Protocol):
    @property
    def project_id(self) -> str: ...
    @property
    def tenant_id(self) -> str: ...


def new(req: ServiceRequest, kind: type[T], body: HasProject, **more: Any) -> T:
    """Return a new object with an id, its project, and the attributes that it has in common with the body."""
    return kind(**{**common(kind, body), "id": str(uuid.uuid4()), "project_id": project_of(req, body), **more})


def common(kind: type[msgspec.Struct], body: Any) -> dict[str, Any]:
    """Return the attributes of a body that objects of this kind have as well."""
    found = {name: getattr(body, name, SAME) for name in kind.__struct_fields__}
    return {name: value for name, value in found.items() if value is not SAME}


def project_of(req: ServiceRequest, body: HasProject) -> str:
    """Return the project of a new resource: the caller's, or another one if an admin names it. Raises a 403."""
    requested, own = body.project_id or body.tenant_id, req.context.project_id or ""
    if requested and requested != own and not req.context.is_admin:
        raise exceptions.Forbidden("Only an admin may create resources of another project.")
    return requested or own
