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
        return [views.attachment(volume, whole=False) for volume in self._attached(req)]

    @route("GET", f"{_ALL}/detail", policies.ATTACHMENTS, query=_QUERY, response="attachments")
    def detail(self, req: ServiceRequest) -> list[views.View]:
        return [views.attachment(volume, whole=True) for volume in self._attached(req)]

    @route("GET", _ONE, policies.ATTACHMENTS, response=_KEY)
    def show(self, req: ServiceRequest, id: str) -> views.View:
        return views.attachment(self._with_attachment(req, id), whole=True)

    def _attached(self, req: ServiceRequest) -> list[Volume]:
        """Return the volumes of a page of attachments. ``marker`` is the id of an attachment, as in Cinder."""
        query = listing.query_of(req, self.conf.api.max_limit)
        found = self._all_attached(req, query)
        for name, key in (("volume_id", "volume_id"), ("instance_id", "instance")):
            if name in req.GET:
                found = [item for item in found if views.attachment(item, whole=False)[key] == req.GET[name]]
        start = query["offset"]
        if query["marker"] is not None:
            ids = [views.attachment_id(volume) for volume in found]
            if query["marker"] not in ids:
                raise _not_found(query["marker"])
            start += ids.index(query["marker"]) + 1
        return found[start:][: query["limit"]]

    def _all_attached(self, req: ServiceRequest, query: dict[str, Any]) -> list[Volume]:
        """Return all volumes with an attachment. No page of volumes has all of them, so all volumes are read."""
        versions.require(req, versions.ATTACHMENTS)
        whole = {**query, "limit": None, "marker": None, "offset": 0}
        return [volume for volume in self.conductor.volume_list(req.context, **whole) if views.attachment_id(volume)]

    def _with_attachment(self, req: ServiceRequest, id: str) -> Volume:
        query: dict[str, Any] = {"filters": VolumeFilters(), "sort_keys": [], "sort_dirs": []}
        for volume in self._all_attached(req, query):
            if views.attachment_id(volume) == id:
                return volume
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
        return views.attachment(made, whole=True)

    @route("PUT", _ONE, policies.UPDATE_ATTACHMENT, body=Connection, key=_KEY, response=_KEY)
    def update(self, req: ServiceRequest, id: str) -> views.View:
        volume, known = self._own(req, id)
        changed = _connected(known, requests.read(req, Connection).connector)
        made = self.conductor.volume_attachment_set(req.context, volume.id, changed, known.id)
        return views.attachment(made, whole=True)

    @route("DELETE", _ONE, policies.DELETE_ATTACHMENT, response="attachments")
    def delete(self, req: ServiceRequest, id: str) -> list[views.View]:
        volume, known = self._own(req, id)
        self.conductor.volume_attachment_set(req.context, volume.id, None, known.id)
        return []

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

    def _own(self, req: ServiceRequest, id: str) -> tuple[Volume, VolumeAttachment]:
        """Return an attachment that this API has made. Raises a 409 for one of the compute API."""
        volume = self._with_attachment(req, id)
        if volume.attachment is None:
            raise of_compute_api(volume)
        return volume, volume.attachment


def of_compute_api(volume: Volume) -> exceptions.Conflict:
    return exceptions.Conflict(f"Detach volume from instance {volume.instance_uuid} using the Compute API.")


def _not_found(id: str) -> exceptions.NotFound:
    return exceptions.NotFound(f"Volume attachment could not be found with filter: attachment_id = {id[:64]}.")


def _connected(known: VolumeAttachment, connector: Any) -> VolumeAttachment:
    """Return the attachment with the host of a connector."""
    if not isinstance(connector, dict) or not connector:
        raise exceptions.ValidationError(detail="The connector of a host is needed.")
    host = requests.text(connector, "host")
    device = requests.text(connector, "mountpoint")
    return msgspec.structs.replace(known, host=host, device=device, status="attaching")
