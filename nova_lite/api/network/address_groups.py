"""Address groups: prefixes that rules of security groups name together."""

from __future__ import annotations

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.network import fields, requests, views
from nova_lite.api.network.objects import NetworkObjects
from nova_lite.base import exceptions
from nova_lite.objects import AddressGroup, NetworkObject
from nova_lite.policies.network_service import ADDRESS_GROUP

_, _CREATE, _UPDATE, _ = ADDRESS_GROUP
_PATH, _KEY = "/address-groups", "address_group"


class NewAddressGroup(fields.NamedAndOwned):
    addresses: fields.Prefixes = []


class ChangedAddressGroup(fields.Named):
    pass


class GroupAddresses(Body):
    addresses: fields.RequiredPrefixes


class AddressGroups(NetworkObjects[AddressGroup]):
    """Address groups."""

    path, kind, key = _PATH, "address_groups", _KEY
    record, rules = AddressGroup, ADDRESS_GROUP

    def view(self, found: NetworkObject) -> views.View:
        return views.address_group(found)

    def missing(self, id: str) -> exceptions.NotFound:
        return exceptions.AddressGroupNotFound(address_group_id=id)

    @route("POST", _PATH, _CREATE, body=NewAddressGroup, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        return self.make(req, requests.new(req, AddressGroup, requests.read(req, NewAddressGroup)))

    @route("PUT", f"{_PATH}/{{id}}", _UPDATE, body=ChangedAddressGroup, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        return self.changed(req, self.find(req, id), requests.changes(req, ChangedAddressGroup))

    @route("PUT", f"{_PATH}/{{id}}/add_addresses", _UPDATE, body=GroupAddresses, response=_KEY)
    def add(self, req: ServiceRequest, id: str) -> views.View:
        addresses = requests.read(req, GroupAddresses).addresses
        group = self.find(req, id)
        if len({*group.addresses, *addresses}) > fields.MAX_PREFIXES:
            raise exceptions.ValidationError(detail=f"An address group has at most {fields.MAX_PREFIXES} addresses.")
        return self.changed(req, group, {"add": addresses})

    @route("PUT", f"{_PATH}/{{id}}/remove_addresses", _UPDATE, body=GroupAddresses, response=_KEY)
    def remove(self, req: ServiceRequest, id: str) -> views.View:
        return self.changed(req, self.find(req, id), {"remove": requests.read(req, GroupAddresses).addresses})
