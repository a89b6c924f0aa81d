"""Subnet pools: prefixes from which subnets get theirs."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import requests, views
from nova_lite.api.network.objects import Kind, NetworkObjects
from nova_lite.api.network.requests import Flag, Id, Named, NamedAndOwned, Prefixes, RequiredPrefixes, Tags
from nova_lite.api.network.resource import lists, shows
from nova_lite.base import exceptions, ip
from nova_lite.objects import SubnetPool
from nova_lite.policies import network_service as policies

#: Shortest length of a subnet's prefix unless the pool says something else, and the longest one, by IP version.
_SHORTEST, _LONGEST = {4: 8, 6: 64}, {4: 32, 6: 128}

_GET, _CREATE, _UPDATE, _DELETE = policies.POOL
_PATH, _KEY = "/subnetpools", "subnetpool"


def _pool_prefixes(fields: dict[str, Any], name: str) -> list[str]:
    found = requests.prefixes(fields, name)
    if not found:
        raise exceptions.ValidationError(detail=f"Failed to parse request. Required attribute '{name}' not specified")
    return found


PoolPrefixes: TypeAlias = Annotated[list[str], requests.checked(_pool_prefixes)]
Length: TypeAlias = Annotated[int | None, requests.within(0, 128)]
Addresses: TypeAlias = Annotated[int | None, requests.within(0, 2**31 - 1)]


class NewSubnetPool(NamedAndOwned, kw_only=True):
    prefixes: PoolPrefixes
    min_prefixlen: Length = None
    max_prefixlen: Length = None
    default_prefixlen: Length = None
    default_quota: Addresses = None
    is_default: Flag = False
    shared: Flag = False
    address_scope_id: Id = None
    tags: Tags = []


class ChangedSubnetPool(Named):
    prefixes: Prefixes = []
    min_prefixlen: Length = SAME
    max_prefixlen: Length = SAME
    default_prefixlen: Length = SAME
    default_quota: Addresses = None
    is_default: Flag = False
    address_scope_id: Id = None


class PrefixesOfPool(Body):
    prefixes: RequiredPrefixes


class SubnetPools(NetworkObjects[SubnetPool]):
    """Subnet pools."""

    kind = Kind(
        "subnetpools", SubnetPool, views.subnet_pool, lambda id: exceptions.SubnetPoolNotFound(subnetpool_id=id)
    )

    @lists(_PATH, _GET, "subnetpools")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req)

    @shows(f"{_PATH}/{{id}}", _GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return self.shown(req, id)

    @route("POST", _PATH, _CREATE, body=NewSubnetPool, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewSubnetPool)
        if body.shared:
            req.authorize(policies.POOL_CREATE_SHARED)
        if body.is_default:
            req.authorize(policies.POOL_CREATE_DEFAULT)
        version = ip.parse_network(body.prefixes[0], strict=False).version
        shortest = _SHORTEST[version] if body.min_prefixlen is None else body.min_prefixlen
        pool = requests.new(
            req,
            SubnetPool,
            body,
            ip_version=version,
            min_prefixlen=shortest,
            max_prefixlen=_LONGEST[version] if body.max_prefixlen is None else body.max_prefixlen,
            default_prefixlen=shortest if body.default_prefixlen is None else body.default_prefixlen,
        )
        return self.make(req, pool)

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedSubnetPool, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedSubnetPool)
        pool = self.find(req, id)
        if changes.get("is_default", pool.is_default) != pool.is_default:
            req.authorize(policies.POOL_UPDATE_DEFAULT)
        return self.changed(req, pool, changes)

    @route("DELETE", f"{_PATH}/{{id}}", _DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.deleted(req, id)

    @route("PUT", f"{_PATH}/{{id}}/add_prefixes", policies.POOL_ADD, body=PrefixesOfPool, response="prefixes")
    def add(self, req: ServiceRequest, id: str) -> Any:
        return self._change_prefixes(req, id, "add")

    @route("PUT", f"{_PATH}/{{id}}/remove_prefixes", policies.POOL_REMOVE, body=PrefixesOfPool, response="prefixes")
    def remove(self, req: ServiceRequest, id: str) -> Any:
        return self._change_prefixes(req, id, "remove")

    def _change_prefixes(self, req: ServiceRequest, id: str, how: str) -> Any:
        changes = {how: requests.read(req, PrefixesOfPool).prefixes}
        return self.changed(req, self.find(req, id), changes)["prefixes"]
