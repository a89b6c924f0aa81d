"""Tags of resources: ``/tags`` below each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute, route
from nova_lite.api.network import fields, requests
from nova_lite.api.network.floating_ips import FloatingIps
from nova_lite.api.network.networks import Networks
from nova_lite.api.network.ports import Ports
from nova_lite.api.network.qos import QosPolicies
from nova_lite.api.network.resource import NetworkResource
from nova_lite.api.network.routers import Routers
from nova_lite.api.network.security_groups import SecurityGroupRules, SecurityGroups
from nova_lite.api.network.subnet_pools import SubnetPools
from nova_lite.api.network.subnets import Subnets
from nova_lite.api.network.trunks import Trunks
from nova_lite.base import exceptions
from nova_lite.policies import network_service as policies

#: Kinds of resources with tags, by the first part of their paths. Clients use both paths of QoS policies.
KINDS: dict[str, type[NetworkResource]] = {
    "networks": Networks,
    "subnets": Subnets,
    "subnetpools": SubnetPools,
    "policies": QosPolicies,
    "qos/policies": QosPolicies,
    "ports": Ports,
    "routers": Routers,
    "floatingips": FloatingIps,
    "trunks": Trunks,
    "security-groups": SecurityGroups,
    "security-group-rules": SecurityGroupRules,
}
_GET, _UPDATE, _DELETE = _RULES = ("get", "update", "delete")


class ResourceTags(Body):
    tags: fields.RequiredTags


class Tags(NetworkResource):
    """Tags of resources. The routes exist for each of `KINDS`."""

    @classmethod
    def declared_routes(cls) -> Iterator[ServiceRoute]:
        for name in KINDS:
            rules = dict(zip(_RULES, policies.TAGS[_kind(name)], strict=True))
            for made in super().declared_routes():
                yield made._replace(path=f"/{name}/{{id}}/tags{made.path}", policy=rules[made.policy])

    @route("GET", "", _GET, response="tags")
    def index(self, req: ServiceRequest, id: str) -> list[str]:
        if "fields" in req.GET:
            raise exceptions.ValidationError(detail="Tags have no fields.")
        resource: Any = self._resource(req)
        tags: list[str] = resource.show(req, id)["tags"]
        return tags

    @route("GET", "/{tag}", _GET, status=204)
    def show(self, req: ServiceRequest, id: str, tag: str) -> None:
        if tag not in self.index(req, id):
            raise exceptions.NetworkTagNotFound(tag=tag[:64])

    @route("PUT", "", _UPDATE, body=ResourceTags, response="tags")
    def replace(self, req: ServiceRequest, id: str) -> list[str]:
        return self._change(req, id, requests.read(req, ResourceTags).tags, None)

    @route("POST", "", _UPDATE, body=ResourceTags, response="tags", status=201)
    def add_several(self, req: ServiceRequest, id: str) -> list[str]:
        return self._change(req, id, requests.read(req, ResourceTags).tags, [])

    @route("PUT", "/{tag}", _UPDATE, status=201)
    def add(self, req: ServiceRequest, id: str, tag: str) -> None:
        self._change(req, id, [fields.tag(tag)], [])

    @route("DELETE", "", _DELETE, status=204)
    def delete_all(self, req: ServiceRequest, id: str) -> None:
        self._change(req, id, [], None)

    @route("DELETE", "/{tag}", _DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str, tag: str) -> None:
        self._change(req, id, [], [tag])

    def _change(self, req: ServiceRequest, id: str, add: list[str], remove: list[str] | None) -> list[str]:
        self.index(req, id)
        resource = self._resource(req)
        resource.require_changeable(req, id)
        return resource.change_tags(req, _kind(_name(req)), id, add, remove)

    def _resource(self, req: ServiceRequest) -> NetworkResource:
        return self.app.part(KINDS[_name(req)])


def _name(req: ServiceRequest) -> str:
    return req.service_route.path.partition("/{id}")[0].removeprefix("/")


def _kind(name: str) -> str:
    """Return the conductor's name of a kind."""
    return name.removeprefix("qos/").replace("-", "_")
