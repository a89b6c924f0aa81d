"""Trunks: a server reaches the networks of further ports, the subports, by VLANs on one of its interfaces."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.http import validation
from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.network import fields, listing, requests, views
from nova_lite.api.network.resource import NetworkResource, lists, shows
from nova_lite.base import exceptions
from nova_lite.network.trunks import HIGHEST, LOWEST, VLAN, WING, PortDetails, Subport, Trunk
from nova_lite.objects import ListQuery, Port
from nova_lite.policies import network_service as policies

_GET, _CREATE, _UPDATE, _DELETE = policies.TRUNK
_PATH, _ONE, _KEY = "/trunks", "/trunks/{id}", "trunk"
_SUBPORTS = "sub_ports"
#: Filters that the conductor applies.
_CONDUCTOR_FILTERS = {name: name for name in ("id", "port_id", "name", "project_id")} | {"tenant_id": "project_id"}


def _items(value: Any, name: str) -> list[dict[str, Any]]:
    """Return a list of objects with different ports."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise fields.invalid(name, "It must be a list of objects.")
    if len(value) > HIGHEST:
        raise fields.invalid(name, f"A trunk has at most {HIGHEST}.")
    ids = [item.get("port_id") for item in value]
    if not all(isinstance(port_id, str) and validation.is_uuid(port_id) for port_id in ids):
        raise fields.invalid(name, "Each object needs a port_id, which is a UUID.")
    if len(set(ids)) < len(ids):
        raise fields.invalid(name, "It has a port twice.")
    return value


def _subports(value: Any, name: str) -> list[Subport]:
    made = []
    for item in _items(value, name):
        if unknown := item.keys() - {"port_id", "segmentation_type", "segmentation_id"}:
            raise fields.unknown(min(unknown))
        if item.get("segmentation_type") != VLAN:
            raise fields.invalid("segmentation_type", f"The only type is {VLAN}.")
        number = fields.number(item.get("segmentation_id"), "segmentation_id", lowest=LOWEST, highest=HIGHEST)
        made.append(Subport(port_id=item["port_id"], segmentation_id=number))
    if len({item.segmentation_id for item in made}) < len(made):
        raise fields.invalid(name, "It has a segmentation_id twice.")
    return made


def _removed(value: Any, name: str) -> list[str]:
    return [item["port_id"] for item in _items(value, name)]


Subports: TypeAlias = Annotated[list[Subport], fields.checked(_subports, maxItems=HIGHEST)]
NewSubports: TypeAlias = Annotated[list[Subport], fields.checked(_subports, required=True, maxItems=HIGHEST)]
RemovedSubports: TypeAlias = Annotated[list[str], fields.checked(_removed, required=True, maxItems=HIGHEST)]


class _Trunk(fields.Named):
    admin_state_up: fields.StateUp = True


class NewTrunk(_Trunk, kw_only=True):
    port_id: fields.RequiredId
    sub_ports: Subports = []
    project_id: fields.Text = ""
    tenant_id: fields.Text = ""


class ChangedTrunk(_Trunk):
    pass


class AddedSubports(Body, kw_only=True):
    sub_ports: NewSubports


class GoneSubports(Body, kw_only=True):
    sub_ports: RemovedSubports


class Trunks(NetworkResource):
    """Trunks of ports."""

    def _change(self, req: ServiceRequest, method: str, **arguments: Any) -> Any:
        return self.conductor.wing_change(req.context, WING, method, msgspec.to_builtins(arguments))

    def _list(self, req: ServiceRequest, query: ListQuery) -> list[Trunk]:
        self._require_wing()
        arguments = {"filters": query.filters, "query": query}
        found = self.conductor.wing_read(req.context, WING, "list", msgspec.to_builtins(arguments))
        return msgspec.convert(found, list[Trunk])

    def _require_wing(self) -> None:
        if WING not in self.conf.wings:
            raise exceptions.NotFound(f"This cloud has no trunks: its operator has not added {WING} to its wings.")

    def _find(self, req: ServiceRequest, id: str) -> Trunk:
        for found in self._list(req, ListQuery(filters={"id": [id]})):
            return found
        raise exceptions.TrunkNotFound(trunk_id=id[:64])

    @lists(_PATH, _GET, "trunks")
    def index(self, req: ServiceRequest) -> Response:
        source = listing.Source(
            lambda query: self._list(req, query), lambda found: [views.trunk(found)], _CONDUCTOR_FILTERS
        )
        return self.listed(req, source)

    @shows(_ONE, _GET, _KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return listing.cut(req, views.trunk(self._find(req, id)))

    @route("POST", _PATH, _CREATE, body=NewTrunk, key=_KEY, response=_KEY, status=201)
    def create(self, req: ServiceRequest) -> views.View:
        body = requests.read(req, NewTrunk)
        self._require_wing()
        return self._shown(self._change(req, "create", trunk=requests.new(req, Trunk, body)))

    @route("PUT", _ONE, _UPDATE, body=ChangedTrunk, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        changes = requests.changes(req, ChangedTrunk)
        return self._shown(self._change(req, "update", trunk_id=self._find(req, id).id, changes=changes))

    @route("DELETE", _ONE, _DELETE, status=204)
    def delete(self, req: ServiceRequest, id: str) -> None:
        self._change(req, "delete", trunk_id=self._find(req, id).id)

    @route("GET", f"{_ONE}/get_subports", policies.SUBPORTS_GET, response=_SUBPORTS)
    def subports(self, req: ServiceRequest, id: str) -> list[views.View]:
        shown: list[views.View] = views.trunk(self._find(req, id))[_SUBPORTS]
        return shown

    @route("PUT", f"{_ONE}/add_subports", policies.SUBPORTS_ADD, body=AddedSubports)
    def add_subports(self, req: ServiceRequest, id: str) -> views.View:
        """Add subports. The response is the trunk."""
        added = requests.read(req, AddedSubports).sub_ports
        return self._shown(self._change(req, "add_subports", trunk_id=self._find(req, id).id, sub_ports=added))

    @route("PUT", f"{_ONE}/remove_subports", policies.SUBPORTS_REMOVE, body=GoneSubports)
    def remove_subports(self, req: ServiceRequest, id: str) -> views.View:
        """Remove subports by their ports. The response is the trunk."""
        gone = requests.read(req, GoneSubports).sub_ports
        return self._shown(self._change(req, "remove_subports", trunk_id=self._find(req, id).id, port_ids=gone))

    def change_tags(
        self, req: ServiceRequest, kind: str, id: str, add: list[str], remove: list[str] | None
    ) -> list[str]:
        tags: list[str] = self._change(req, "set_tags", trunk_id=id, add=add, remove=remove)
        return tags

    @staticmethod
    def _shown(changed: Any) -> views.View:
        return views.trunk(msgspec.convert(changed, Trunk))


def of_ports(resource: NetworkResource, req: ServiceRequest, found: list[Port]) -> dict[str, views.View]:
    """Return what trunks add to the views of ports, by port: details of parents, and the status of subports."""
    if WING not in resource.conf.wings or not found:
        return {}
    ids = [port.id for port in found]
    details = msgspec.convert(resource.conductor.wing_read(req.context, WING, "of_ports", {"ids": ids}), PortDetails)
    shown = {port_id: {"trunk_details": views.trunk_details(trunk)} for port_id, trunk in details.parents.items()}
    return shown | {port_id: {"status": "ACTIVE"} for port_id in details.active}
