"""Attachments of volumes: of the compute API, to read, and of other users of volumes.

A client that connects a volume itself records that here, so that no other server gets the volume. This service connects
nothing. Attachments of servers that have the volume are ended by the compute API.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from nova_lite.api.http.bodies import Body
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.api.volume.resource import VolumeResource
from nova_lite.base import exceptions
from nova_lite.objects import Volume, VolumeAttachment, VolumeFilters
from nova_lite.policies import volume_service as policies

_ALL, _ONE, _KEY = "/attachments", "/attachments/{id}", "attachment"
_QUERY = (*listing.PARAMETERS, "instance_id")

#: A volume, and one of its attachments.
Attached: TypeAlias = tuple[Volume, VolumeAttachment]

Mode: TypeAlias = Annotated[str, requests.choice("The mode of an attachment is rw or ro.", None, "rw", "ro")]


class NewAttachment(Body):
    volume_uuid: Annotated[str, requests.needed(requests.an_id, "'volume_uuid' must be specified")]
    instance_uuid: requests.Id = None
    mode: Mode = "rw"
    connector: requests.Anything = None


class Connection(Body):
    connector: requests.Anything


class Attachments(VolumeResource):
    """Attachments of volumes."""

    @route("GET", _ALL, policies.ATTACHMENTS, query=_QUERY, response="attachments")
    def index(self, req: ServiceRequest) -> list[views.View]:
        return [views.attachment(volume.id, item, whole=False) for volume, item in self._attached(req)]

    @route("GET", f"{_ALL}/detail", policies.ATTACHMENTS, query=_QUERY, response="attachments")
    def detail(self, req: ServiceRequest) -> list[views.View]:
        return [views.attachment(volume.id, item, whole=True) for volume, item in self._attached(req)]

    @route("GET", _ONE, policies.ATTACHMENTS, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        volume, found = self._with_attachment(req, id)
        return views.attachment(volume.id, found, whole=True)

    def _attached(self, req: ServiceRequest) -> list[Attached]:
        """Return a page of attachments. ``marker`` is the id of an attachment, as in Cinder."""
        query = listing.query_of(req, self.conf.api.max_limit)
        found = self._all_attached(req, query)
        if "volume_id" in req.GET:
            found = [(volume, item) for volume, item in found if volume.id == req.GET["volume_id"]]
        if "instance_id" in req.GET:
            found = [(volume, item) for volume, item in found if item.instance_uuid == req.GET["instance_id"]]
        start = query["offset"]
        if query["marker"] is not None:
            ids = [item.id for _, item in found]
            if query["marker"] not in ids:
                raise _not_found(query["marker"])
            start += ids.index(query["marker"]) + 1
        return found[start:][: query["limit"]]

    def _all_attached(self, req: ServiceRequest, query: dict[str, Any]) -> list[Attached]:
        """Return all attachments. No page of volumes has all of them, so all volumes are read."""
        versions.require(req, versions.ATTACHMENTS)
        whole = {**query, "limit": None, "marker": None, "offset": 0}
        listed = self.conductor.volume_list(req.context, **whole)
        return [(volume, item) for volume in listed for item in volume.all_attachments()]

    def _with_attachment(self, req: ServiceRequest, id: str) -> Attached:
        query: dict[str, Any] = {"filters": VolumeFilters(), "sort_keys": [], "sort_dirs": []}
        for volume, item in self._all_attached(req, query):
            if item.id == id:
                return volume, item
        raise _not_found(id)

    @route("POST", _ALL, policies.CREATE_ATTACHMENT, body=NewAttachment, key=_KEY, response=_KEY)
    def create(self, req: ServiceRequest) -> views.View:
        """Reserve a volume, or attach it if the connector of a host is known."""
        versions.require(req, versions.ATTACHMENTS)
        body = requests.read(req, NewAttachment)
        wanted = requests.new(VolumeAttachment, body)
        if body.connector:
            wanted = _connected(wanted, body.connector)
        made = self.conductor.volume_attachment_set(req.context, body.volume_uuid, wanted, None)
        return _changed(made, wanted.id)

    @route("PUT", _ONE, policies.UPDATE_ATTACHMENT, body=Connection, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        volume, known = self._own(req, id)
        changed = _connected(known, requests.read(req, Connection).connector)
        return _changed(self.conductor.volume_attachment_set(req.context, volume.id, changed, known.id), known.id)

    @route("DELETE", _ONE, policies.DELETE_ATTACHMENT, response="attachments")
    def delete(self, req: ServiceRequest, id: str) -> list[views.View]:
        """End an attachment. Return the others of the volume."""
        volume, known = self._own(req, id)
        left = self.conductor.volume_attachment_set(req.context, volume.id, None, known.id)
        return [views.attachment(volume.id, item, whole=False) for item in left.all_attachments()]

    @route("POST", f"{_ONE}/action", policies.UPDATE_ATTACHMENT, status=204)
    def act(self, req: ServiceRequest, id: str) -> Response:
        """Complete an attachment: the client has connected the volume."""
        name, _ = requests.action(req)
        if name != "os-complete" or versions.minor_of(req) < versions.COMPLETE:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        volume, known = self._own(req, id)
        changed = msgspec.structs.replace(known, status="attached")
        self.conductor.volume_attachment_set(req.context, volume.id, changed, known.id)
        return Response(status=204)

    def _own(self, req: ServiceRequest, id: str) -> Attached:
        """Return an attachment that this API has made. Raises a 409 for one of the compute API."""
        volume, found = self._with_attachment(req, id)
        if not found.recorded:
            raise of_compute_api(found)
        return volume, found


def of_compute_api(found: VolumeAttachment) -> exceptions.Conflict:
    return exceptions.Conflict(f"Detach volume from instance {found.instance_uuid} using the Compute API.")


def _changed(volume: Volume, attachment_id: str) -> views.View:
    """Return the view of an attachment that was made or changed."""
    found = next(item for item in volume.all_attachments() if item.id == attachment_id)
    return views.attachment(volume.id, found, whole=True)


def _not_found(id: str) -> exceptions.NotFound:
    return exceptions.NotFound(f"Volume attachment could not be found with filter: attachment_id = {id[:64]}.")


def _connected(known: VolumeAttachment, connector: Any) -> VolumeAttachment:
    """Return the attachment with the host of a connector."""
    if not isinstance(connector, dict) or not connector:
        raise exceptions.ValidationError(detail="The connector of a host is needed.")
    host = requests.text(connector, "host")
    device = requests.text(connector, "mountpoint")
    return msgspec.structs.replace(known, host=host, device=device, status="attaching")
