"""Address groups: prefixes that rules of security groups name together."""

from __future__ import annotations

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import requests, views
from nova_lite.api.network.objects import Kind, NetworkObjects
from nova_lite.api.network.requests import MAX_PREFIXES, Named, NamedAndOwned, Prefixes, RequiredPrefixes
from nova_lite.api.network.resource import lists, shows
from nova_lite.base import exceptions
from nova_lite.objects import AddressGroup
from nova_lite.policies.network_service import ADDRESS_GROUP

_GET, _CREATE, _UPDATE, _DELETE = ADDRESS_GROUP
_PATH, _KEY = "/address-groups", "address_group"


class NewAddressGroup(NamedAndOwned):
    addresses: Prefixes = []


class ChangedAddressGroup(Named):
    pass


class GroupAddresses(Body):
    addresses: RequiredPrefixes


class AddressGroups(NetworkObjects[AddressGroup]):
    """Address groups."""

    kind = Kind(
        "address_groups",
        AddressGroup,
        views.address_group,
        lambda id: exceptions.AddressGroupNotFound(address_group_id=id),
    )

    @lists(_PATH, _GET, "address_groups")
    def index(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req)

    @shows(f"{_PATH}/{{id}}", _GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return self.shown(req, id)

    @route("POST", _PATH, _CREATE, body=NewAddressGroup, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        return self.make(req, requests.new(req, AddressGroup, requests.read(req, NewAddressGroup)))

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedAddressGroup, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        return self.changed(req, self.find(req, id), requests.changes(req, ChangedAddressGroup))

    @route("DELETE", f"{_PATH}/{{id}}", _DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self.deleted(req, id)

    @route("PUT", f"{_PATH}/{{id}}/add_addresses", _UPDATE, body=GroupAddresses, response=_KEY)
    def add(self, req: ServiceRequest, id: str) -> views.View:
        addresses = requests.read(req, GroupAddresses).addresses
        group = self.find(req, id)
        if len({*group.addresses, *addresses}) > MAX_PREFIXES:
            raise exceptions.ValidationError(detail=f"An address group has at most {MAX_PREFIXES} addresses.")
        return self.changed(req, group, {"add": addresses})

    @route("PUT", f"{_PATH}/{{id}}/remove_addresses", _UPDATE, body=GroupAddresses, response=_KEY)
    def remove(self, req: ServiceRequest, id: str) -> views.View:
        return self.changed(req, self.find(req, id), {"remove": requests.read(req, GroupAddresses).addresses})
