"""Address groups: prefixes that rules of security groups name together."""

from __future__ import annotations

import uuid

from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import listing, requests, views
from nova_lite.api.network.objects import ObjectResource
from nova_lite.base import exceptions
from nova_lite.objects import AddressGroup

_GROUP = ("name", "description")
_NEW_GROUP = (*_GROUP, "addresses", "project_id", "tenant_id")
#: Number of addresses of a group: each is a rule of the hosts.
_MOST = 1000


class AddressGroupResource(ObjectResource):
    """Handlers of ``/address-groups``."""

    def address_groups(self, req: ServiceRequest) -> Response:
        return self.listed_objects(req, "address_groups", views.address_group)

    def address_group(self, req: ServiceRequest, id: str) -> Response:
        return listing.shown(req, "address_group", views.address_group(self._address_group(req, id)))

    def _address_group(self, req: ServiceRequest, id: str) -> AddressGroup:
        missing = exceptions.AddressGroupNotFound(address_group_id=id[:64])
        return self.find_object(req, ("address_groups", id), AddressGroup, missing)

    def create_address_group(self, req: ServiceRequest) -> Response:
        fields = requests.body(req, "address_group", _NEW_GROUP, ())
        group = AddressGroup(
            id=str(uuid.uuid4()),
            project_id=requests.project(req, fields),
            name=requests.text(fields, "name") or "",
            description=requests.text(fields, "description") or "",
            addresses=requests.prefixes(fields, "addresses", _MOST),
        )
        created = self.conductor.network_object_create(req.context, group)
        return Response({"address_group": views.address_group(created)}, 201)

    def update_address_group(self, req: ServiceRequest, id: str) -> Response:
        fields = requests.body(req, "address_group", _GROUP, ())
        changes = requests.texts(fields, "name", "description")
        return self._changed(req, id, dict(changes))

    def delete_address_group(self, req: ServiceRequest, id: str) -> Response:
        self.conductor.network_object_delete(req.context, "address_groups", self._address_group(req, id).id)
        return Response(status=204)

    def add_addresses(self, req: ServiceRequest, id: str) -> Response:
        wanted = requests.prefixes(req.json_object(), "addresses", _MOST, required=True)
        group = self._address_group(req, id)
        if len({*group.addresses, *wanted}) > _MOST:
            raise exceptions.ValidationError(detail=f"An address group has at most {_MOST} addresses.")
        return self._changed(req, id, {"add": wanted})

    def remove_addresses(self, req: ServiceRequest, id: str) -> Response:
        return self._changed(
            req, id, {"remove": requests.prefixes(req.json_object(), "addresses", _MOST, required=True)}
        )

    def _changed(self, req: ServiceRequest, id: str, changes: dict[str, object]) -> Response:
        found = self._address_group(req, id)
        updated = self.conductor.network_object_update(req.context, "address_groups", found.id, changes)
        return Response({"address_group": views.address_group(updated)})
