"""Subnet pools and address scopes."""

from __future__ import annotations

import uuid
from typing import Any

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.objects import ObjectResource
from nova_lite.base import exceptions, ip
from nova_lite.objects import AddressScope, SubnetPool
from nova_lite.policies import network_service as policies

_POOL = (
    "name",
    "description",
    "prefixes",
    "default_prefixlen",
    "min_prefixlen",
    "max_prefixlen",
    "default_quota",
    "is_default",
    "address_scope_id",
)
_NEW_POOL = (*_POOL, "shared", "tags", "project_id", "tenant_id")
_SCOPE = ("name", "shared")
_NEW_SCOPE = (*_SCOPE, "ip_version", "project_id", "tenant_id")
#: Shortest length of a subnet's prefix unless the pool says something else, and the longest one, by IP version.
_SHORTEST, _LONGEST = {4: 8, 6: 64}, {4: 32, 6: 128}


class SubnetPoolResource(ObjectResource):
    """Handlers of ``/subnetpools`` and ``/address-scopes``."""

    def subnet_pools(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req, "subnetpools", views.subnet_pool)

    def subnet_pool(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "subnetpool", views.subnet_pool(self._pool(req, id)))

    def _pool(self, req: ServiceRequest, id: str) -> SubnetPool:
        missing = exceptions.SubnetPoolNotFound(subnetpool_id=id[:64])
        return self.find_object(req, ("subnetpools", id), SubnetPool, missing)

    def create_subnet_pool(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "subnetpool", _NEW_POOL, ())
        prefixes = _prefixes(fields)
        if not prefixes:
            raise exceptions.ValidationError(
                detail="Failed to parse request. Required attribute 'prefixes' not specified"
            )
        if requests.flag(fields, "shared"):
            req.authorize(policies.POOL_CREATE_SHARED)
        if requests.flag(fields, "is_default"):
            req.authorize(policies.POOL_CREATE_DEFAULT)
        version = ip.parse_network(prefixes[0], strict=False).version
        shortest = _length(fields, "min_prefixlen")
        longest = _length(fields, "max_prefixlen")
        default = _length(fields, "default_prefixlen")
        shortest = _SHORTEST[version] if shortest is None else shortest
        pool = SubnetPool(
            id=str(uuid.uuid4()),
            project_id=requests.project(req, fields),
            name=requests.text(fields, "name") or "",
            description=requests.text(fields, "description") or "",
            prefixes=prefixes,
            ip_version=version,
            min_prefixlen=shortest,
            max_prefixlen=_LONGEST[version] if longest is None else longest,
            default_prefixlen=shortest if default is None else default,
            default_quota=requests.number(fields, "default_quota", 0, 2**31 - 1),
            is_default=requests.flag(fields, "is_default"),
            shared=requests.flag(fields, "shared"),
            address_scope_id=requests.an_id(fields, "address_scope_id"),
            tags=requests.tags(fields),
        )
        created = self.conductor.network_object_create(req.context, pool)
        return Response({"subnetpool": views.subnet_pool(created)}, 201)

    def update_subnet_pool(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "subnetpool", _POOL, ())
        pool = self._pool(req, id)
        changes: dict[str, Any] = dict(requests.texts(fields, "name", "description"))
        for name in fields.keys() & {"default_prefixlen", "min_prefixlen", "max_prefixlen"}:
            if (length := _length(fields, name)) is not None:
                changes[name] = length
        if "prefixes" in fields:
            changes["prefixes"] = _prefixes(fields)
        if "default_quota" in fields:
            changes["default_quota"] = requests.number(fields, "default_quota", 0, 2**31 - 1)
        if "address_scope_id" in fields:
            changes["address_scope_id"] = requests.an_id(fields, "address_scope_id")
        if "is_default" in fields:
            changes["is_default"] = requests.flag(fields, "is_default")
            if changes["is_default"] != pool.is_default:
                req.authorize(policies.POOL_UPDATE_DEFAULT)
        updated = self.conductor.network_object_update(req.context, "subnetpools", id, changes)
        return Response({"subnetpool": views.subnet_pool(updated)})

    def delete_subnet_pool(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.network_object_delete(req.context, "subnetpools", self._pool(req, id).id)
        return Response(status=204)

    def add_prefixes(self, req: ServiceRequest, id: str) -> Response:
        return self._change_prefixes(req, id, "add")

    def remove_prefixes(self, req: ServiceRequest, id: str) -> Response:
        return self._change_prefixes(req, id, "remove")

    def _change_prefixes(self, req: ServiceRequest, id: str, how: str) -> Response:
        changes = {how: _prefixes(req.json_object(), required=True)}
        updated = self.conductor.network_object_update(req.context, "subnetpools", self._pool(req, id).id, changes)
        return Response({"prefixes": views.subnet_pool(updated)["prefixes"]})

    def require_changeable_pool(self, req: ServiceRequest, id: str) -> None:
        """Raise an error for a pool that is not there. The conductor refuses changes of other projects' pools."""
        self._pool(req, id)

    # --- address scopes

    def address_scopes(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req, "address_scopes", views.address_scope)

    def address_scope(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "address_scope", views.address_scope(self._scope(req, id)))

    def _scope(self, req: ServiceRequest, id: str) -> AddressScope:
        missing = exceptions.AddressScopeNotFound(address_scope_id=id[:64])
        return self.find_object(req, ("address_scopes", id), AddressScope, missing)

    def create_address_scope(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "address_scope", _NEW_SCOPE, ())
        if requests.flag(fields, "shared"):
            req.authorize(policies.SCOPE_CREATE_SHARED)
        version = requests.number(fields, "ip_version", 4, 6)
        if version not in (4, 6):
            raise exceptions.ValidationError(detail="Invalid input for ip_version. It must be 4 or 6.")
        scope = AddressScope(
            id=str(uuid.uuid4()),
            project_id=requests.project(req, fields),
            name=requests.text(fields, "name") or "",
            ip_version=version,
            shared=requests.flag(fields, "shared"),
        )
        created = self.conductor.network_object_create(req.context, scope)
        return Response({"address_scope": views.address_scope(created)}, 201)

    def update_address_scope(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "address_scope", _SCOPE, ())
        scope = self._scope(req, id)
        changes: dict[str, Any] = dict(requests.texts(fields, "name"))
        if "shared" in fields:
            req.authorize(policies.SCOPE_UPDATE_SHARED)
            changes["shared"] = requests.flag(fields, "shared")
            if scope.shared and not changes["shared"]:
                raise exceptions.ValidationError(
                    detail=f"Unable to update address scope {id} : Shared address scope can't be unshared."
                )
        updated = self.conductor.network_object_update(req.context, "address_scopes", id, changes)
        return Response({"address_scope": views.address_scope(updated)})

    def delete_address_scope(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.network_object_delete(req.context, "address_scopes", self._scope(req, id).id)
        return Response(status=204)


def _prefixes(fields: dict[str, Any], required: bool = False) -> list[str]:
    return requests.prefixes(fields, "prefixes", required)


def _length(fields: dict[str, Any], name: str) -> int | None:
    return requests.number(fields, name, 0, 128)
