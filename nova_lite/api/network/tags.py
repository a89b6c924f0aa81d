"""Tags of resources: ``/tags`` below each of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import requests
from nova_lite.api.network.resource import Resource
from nova_lite.base import exceptions

#: Paths of the kinds of resources with tags.
PATHS = {
    "networks": "/networks",
    "subnets": "/subnets",
    "subnetpools": "/subnetpools",
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
    "subnetpools": "subnet_pool",
    "ports": "port",
    "routers": "router",
    "floatingips": "floating_ip",
    "security_groups": "security_group",
    "security_group_rules": "security_group_rule",
}
#: Handlers that refuse a resource that no user can tag, by kind.
_CHECK: Mapping[str, str] = {"networks": "require_changeable_network", "subnets": "require_changeable_subnet"}


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
        return Response({"tags": self._change(kind, req, id, requests.tags(req.json_object(), required=True), None)})

    def _add_tags(self, kind: str, req: ServiceRequest, id: str) -> Response:
        added = requests.tags(req.json_object(), required=True)
        return Response({"tags": self._change(kind, req, id, added, [])}, 201)

    def _add_tag(self, kind: str, req: ServiceRequest, id: str, tag: str) -> Response:
        self._change(kind, req, id, [requests.a_tag(tag)], [])
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


for _kind in PATHS:
    for _name in ("tags", "tag", "set_tags", "add_tags", "add_tag", "delete_tags", "delete_tag"):
        setattr(TagResource, f"{_kind}_{_name}", functools.partialmethod(getattr(TagResource, f"_{_name}"), _kind))
