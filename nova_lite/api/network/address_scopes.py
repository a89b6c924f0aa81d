"""Address scopes: sets of subnet pools whose prefixes do not overlap."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import requests, views
from nova_lite.api.network.objects import Kind, NetworkObjects
from nova_lite.api.network.requests import Flag, Owned, Text
from nova_lite.api.network.resource import lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import AddressScope
from nova_lite.policies import network_service as policies

_GET, _CREATE, _UPDATE, _DELETE = policies.SCOPE
_PATH, _KEY = "/address-scopes", "address_scope"


def _version(fields: dict[str, Any], name: str) -> int:
    version = requests.number(fields, name, 4, 6)
    if version not in (4, 6):
        raise exceptions.ValidationError(detail=f"Invalid input for {name}. It must be 4 or 6.")
    return version


Version: TypeAlias = Annotated[int, requests.checked(_version, enum=(4, 6))]


class NewAddressScope(Owned, kw_only=True):
    name: Text = ""
    shared: Flag = False
    ip_version: Version


class ChangedAddressScope(Body):
    name: Text = ""
    shared: Flag = False


class AddressScopes(NetworkObjects[AddressScope]):
    """Address scopes."""

    kind = Kind(
        "address_scopes",
        AddressScope,
        views.address_scope,
        lambda id: exceptions.AddressScopeNotFound(address_scope_id=id),
    )

    @lists(_PATH, _GET, "address_scopes")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req)

    @shows(f"{_PATH}/{{id}}", _GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return self.shown(req, id)

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

    @route("DELETE", f"{_PATH}/{{id}}", _DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.deleted(req, id)
