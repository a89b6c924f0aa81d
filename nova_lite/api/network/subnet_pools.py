"""Subnet pools: prefixes from which subnets get theirs."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import SAME, Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.network import fields, requests, views
from nova_lite.api.network.objects import NetworkObjects
from nova_lite.base import exceptions, ip
from nova_lite.objects import NetworkObject, SubnetPool
from nova_lite.policies import network_service as policies

#: Shortest length of a subnet's prefix unless the pool says something else, and the longest one, by IP version.
_SHORTEST, _LONGEST = {4: 8, 6: 64}, {4: 32, 6: 128}

_, _CREATE, _UPDATE, _ = policies.POOL
_PATH, _KEY = "/subnetpools", "subnetpool"


def _pool_prefixes(value: Any, name: str) -> list[str]:
    if value == []:
        raise fields.missing(name)
    return fields.prefixes(value, name)


PoolPrefixes: TypeAlias = Annotated[list[str], fields.checked(_pool_prefixes, required=True)]
Addresses: TypeAlias = Annotated[int | None, fields.within(0, 2**31 - 1)]


class NewSubnetPool(fields.NamedAndOwned, kw_only=True):
    prefixes: PoolPrefixes
    min_prefixlen: fields.Length = None
    max_prefixlen: fields.Length = None
    default_prefixlen: fields.Length = None
    default_quota: Addresses = None
    is_default: fields.Flag = False
    shared: fields.Flag = False
    address_scope_id: fields.Id = None
    tags: fields.Tags = []


class ChangedSubnetPool(fields.Named):
    prefixes: fields.Prefixes = []
    min_prefixlen: fields.Length = SAME
    max_prefixlen: fields.Length = SAME
    default_prefixlen: fields.Length = SAME
    default_quota: Addresses = None
    is_default: fields.Flag = False
    address_scope_id: fields.Id = None


class PrefixesOfPool(Body):
    prefixes: fields.RequiredPrefixes


class SubnetPools(NetworkObjects[SubnetPool]):
    """Subnet pools."""

    path, kind, key = _PATH, "subnetpools", _KEY
    record, rules = SubnetPool, policies.POOL

    def view(self, found: NetworkObject) -> views.View:
        return views.subnet_pool(found)

    def missing(self, id: str) -> exceptions.NotFound:
        return exceptions.SubnetPoolNotFound(subnetpool_id=id)

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

    @route("PUT", f"{_PATH}/{{id}}/add_prefixes", policies.POOL_ADD, body=PrefixesOfPool, response="prefixes")
    def add(self, req: ServiceRequest, id: str) -> Any:
        return self._change_prefixes(req, id, "add")

    @route("PUT", f"{_PATH}/{{id}}/remove_prefixes", policies.POOL_REMOVE, body=PrefixesOfPool, response="prefixes")
    def remove(self, req: ServiceRequest, id: str) -> Any:
        return self._change_prefixes(req, id, "remove")

    def _change_prefixes(self, req: ServiceRequest, id: str, how: str) -> Any:
        changes = {how: requests.read(req, PrefixesOfPool).prefixes}
        return self.changed(req, self.find(req, id), changes)["prefixes"]
