"""Tags of resources: ``/tags`` below each of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions

#: Paths of the kinds of resources with tags.
PATHS = {
    "networks": "/networks",
    "subnets": "/subnets",
    "ports": "/ports",
    "routers": "/routers",
    "floatingips": "/floatingips",
    "security_groups": "/security-groups",
    "security_group_rules": "/security-group-rules",
}
#: Handlers of `TagResource` that show a resource, by kind.
_SHOW: Mapping[str, str] = {
    "networks": "network",
    "subnets": "subnet",
    "ports": "port",
    "routers": "router",
    "floatingips": "floating_ip",
    "security_groups": "security_group",
    "security_group_rules": "security_group_rule",
}
#: Handlers that refuse a resource that nobody can tag, by kind.
_CHECK: Mapping[str, str] = {"networks": "require_changeable_network", "subnets": "require_changeable_subnet"}
_MAX_LENGTH = 255


class TagResource(Resource):
    """Handlers of ``/tags``. Each exists for each kind, as ``networks_tags`` and so on."""

    def _tags(self, kind: str, req: ServiceRequest, id: str) -> Response:
        return Response({"tags": self._of(kind, req, id)})

    def _tag(self, kind: str, req: ServiceRequest, id: str, tag: str) -> Response:
        if tag not in self._of(kind, req, id):
            raise exceptions.NetworkTagNotFound(tag=tag[:64])
        return Response(status=204)

    def _of(self, kind: str, req: ServiceRequest, id: str) -> list[str]:
        if "fields" in req.GET:
            raise exceptions.ValidationError(detail="Tags have no fields.")
        shown = getattr(self, _SHOW[kind])(req, id)
        tags: list[str] = next(iter(shown.body.values()))["tags"]
        return tags

    def _set_tags(self, kind: str, req: ServiceRequest, id: str) -> Response:
        tags = req.json_object().get("tags")
        if not isinstance(tags, list):
            raise exceptions.ValidationError(detail="Invalid input for tags. It must be a list of texts.")
        return Response({"tags": self._change(kind, req, id, [_valid(tag) for tag in tags], None)})

    def _add_tag(self, kind: str, req: ServiceRequest, id: str, tag: str) -> Response:
        self._change(kind, req, id, [_valid(tag)], [])
        return Response(status=201)

    def _delete_tags(self, kind: str, req: ServiceRequest, id: str) -> Response:
        self._change(kind, req, id, [], None)
        return Response(status=204)

    def _delete_tag(self, kind: str, req: ServiceRequest, id: str, tag: str) -> Response:
        self._change(kind, req, id, [], [tag])
        return Response(status=204)

    def _change(self, kind: str, req: ServiceRequest, id: str, add: list[str], remove: list[str] | None) -> list[str]:
        self._of(kind, req, id)
        if kind in _CHECK:
            getattr(self, _CHECK[kind])(req, id)
        return self.conductor.network_tags_change(req.context, kind, id, add, remove)


def _valid(tag: Any) -> str:
    if not isinstance(tag, str) or not 0 < len(tag) <= _MAX_LENGTH or not tag.isprintable() or "," in tag:
        raise exceptions.ValidationError(
            detail=f"Invalid input for tags. A tag is a text of 1 to {_MAX_LENGTH} printable characters without commas."
        )
    return tag


for _kind in PATHS:
    for _name in ("tags", "tag", "set_tags", "add_tag", "delete_tags", "delete_tag"):
        setattr(TagResource, f"{_kind}_{_name}", functools.partialmethod(getattr(TagResource, f"_{_name}"), _kind))
