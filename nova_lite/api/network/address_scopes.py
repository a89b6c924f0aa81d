"""Address scopes: sets of subnet pools whose prefixes do not overlap."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.network import fields, requests, views
from nova_lite.api.network.objects import NetworkObjects
from nova_lite.base import exceptions
from nova_lite.objects import AddressScope, NetworkObject
from nova_lite.policies import network_service as policies

_, _CREATE, _UPDATE, _ = policies.SCOPE
_PATH, _KEY = "/address-scopes", "address_scope"


def _version(value: Any, name: str) -> int:
    version = 5 if value is None else fields.number(value, name, 4, 6)
    if version == 5:
        raise fields.invalid(name, "It must be 4 or 6.")
    return version


Version: TypeAlias = Annotated[int, fields.checked(_version, null=True, enum=(4, 6))]


class NewAddressScope(fields.Owned, kw_only=True):
    name: fields.Text = ""
    shared: fields.Flag = False
    ip_version: Version


class ChangedAddressScope(Body):
    name: fields.Text = ""
    shared: fields.Flag = False


class AddressScopes(NetworkObjects[AddressScope]):
    """Address scopes."""

    path, kind, key = _PATH, "address_scopes", _KEY
    record, rules = AddressScope, policies.SCOPE

    def view(self, found: NetworkObject) -> views.View:
        return views.address_scope(found)

    def missing(self, id: str) -> exceptions.NotFound:
        return exceptions.AddressScopeNotFound(address_scope_id=id)

    @route("POST", _PATH, _CREATE, body=NewAddressScope, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewAddressScope)
        if body.shared:
            req.authorize(policies.SCOPE_CREATE_SHARED)
        return self.make(req, requests.new(req, AddressScope, body))

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedAddressScope, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedAddressScope)
        scope = self.find(req, id)
        if "shared" in changes:
            req.authorize(policies.SCOPE_UPDATE_SHARED)
            if scope.shared and not changes["shared"]:
                raise exceptions.ValidationError(
                    detail=f"Unable to update address scope {id} : Shared address scope can't be unshared."
                )
        return self.changed(req, scope, changes)
