"""Attachments of volumes: of the compute API, to read, and of other users of volumes.

A client that connects a volume itself records that here, so that no other server gets the volume. This service connects
nothing. Attachments of servers that have the volume are ended by the compute API.
"""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from nova_lite.api.http import rest, wsgi
from nova_lite.api.http.rest import ServiceRequest, ServiceRoute
from nova_lite.api.http.wsgi import Response
from nova_lite.api.volume import listing, requests, versions, views
from nova_lite.base import exceptions
from nova_lite.objects import Volume, VolumeAttachment, VolumeFilters
from nova_lite.policies import volume_service as policies

_ONE = "/attachments/{id}"
_MODES = ("rw", "ro")


class Attachments(rest.ServiceApplication):
    """Handlers of `VolumeApp`."""

    attachment_routes = (
        ServiceRoute("GET", "/attachments", "attachments", policies.ATTACHMENTS),
        ServiceRoute("GET", "/attachments/detail", "attachments_detail", policies.ATTACHMENTS),
        ServiceRoute("POST", "/attachments", "create_attachment", policies.CREATE_ATTACHMENT),
        ServiceRoute("GET", _ONE, "attachment", policies.ATTACHMENTS),
        ServiceRoute("PUT", _ONE, "update_attachment", policies.UPDATE_ATTACHMENT),
        ServiceRoute("DELETE", _ONE, "delete_attachment", policies.DELETE_ATTACHMENT),
        ServiceRoute("POST", f"{_ONE}/action", "attachment_action", policies.UPDATE_ATTACHMENT),
    )

    def attachments(self, req: ServiceRequest) -> Response:
        return Response({"attachments": [views.attachment(volume, whole=False) for volume in self._attached(req)]})

    def attachments_detail(self, req: ServiceRequest) -> Response:
        return Response({"attachments": [views.attachment(volume, whole=True) for volume in self._attached(req)]})

    def attachment(self, req: ServiceRequest, id: str) -> Response:
        return Response({"attachment": views.attachment(self._with_attachment(req, id), whole=True)})

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
        if versions.minor_of(req.headers) < versions.ATTACHMENTS:
            raise wsgi.UnknownUrl()
        whole = {**query, "limit": None, "marker": None, "offset": 0}
        return [volume for volume in self.conductor.volume_list(req.context, **whole) if views.attachment_id(volume)]

    def _with_attachment(self, req: ServiceRequest, id: str) -> Volume:
        query: dict[str, Any] = {"filters": VolumeFilters(), "sort_keys": [], "sort_dirs": []}
        for volume in self._all_attached(req, query):
            if views.attachment_id(volume) == id:
                return volume
        raise _not_found(id)

    def create_attachment(self, req: ServiceRequest) -> Response:
        """Reserve a volume, or attach it if the connector of a host is known."""
        if versions.minor_of(req.headers) < versions.ATTACHMENTS:
            raise wsgi.UnknownUrl()
        fields = requests.body(req, "attachment", ("instance_uuid", "connector", "volume_uuid", "mode"))
        volume_id, instance = requests.an_id(fields, "volume_uuid"), requests.an_id(fields, "instance_uuid")
        if volume_id is None:
            raise exceptions.ValidationError(detail="'volume_uuid' must be specified")
        wanted = VolumeAttachment(id=str(uuid.uuid4()), instance_uuid=instance, mode=_mode(fields.get("mode")))
        if fields.get("connector"):
            wanted = _connected(wanted, fields["connector"])
        made = self.conductor.volume_attachment_set(req.context, volume_id, wanted, None)
        return Response({"attachment": views.attachment(made, whole=True)})

    def update_attachment(self, req: ServiceRequest, id: str) -> Response:
        volume, known = self._own(req, id)
        changed = _connected(known, requests.body(req, "attachment", ("connector",)).get("connector"))
        made = self.conductor.volume_attachment_set(req.context, volume.id, changed, known.id)
        return Response({"attachment": views.attachment(made, whole=True)})

    def attachment_action(self, req: ServiceRequest, id: str) -> Response:
        """Complete an attachment: the client has connected the volume."""
        name, _ = requests.action(req, {})
        if name != "os-complete" or versions.minor_of(req.headers) < versions.COMPLETE:
            raise exceptions.ValidationError(detail=f"There is no such action: {name[:64]}")
        volume, known = self._own(req, id)
        changed = msgspec.structs.replace(known, status="attached")
        self.conductor.volume_attachment_set(req.context, volume.id, changed, known.id)
        return Response(status=204)

    def delete_attachment(self, req: ServiceRequest, id: str) -> Response:
        volume, known = self._own(req, id)
        self.conductor.volume_attachment_set(req.context, volume.id, None, known.id)
        return Response({"attachments": []})

    def _own(self, req: ServiceRequest, id: str) -> tuple[Volume, VolumeAttachment]:
        """Return an attachment that this API has made. Raises a 409 for one of the compute API."""
        volume = self._with_attachment(req, id)
        if volume.attachment is None:
            raise exceptions.Conflict(f"Detach volume from instance {volume.instance_uuid} using the Compute API.")
        return volume, volume.attachment

    # --- actions of volumes

    def _reserve(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        self.conductor.volume_reserve(req.context, id, True)
        return Response(status=202)

    def _unreserve(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        self.conductor.volume_reserve(req.context, id, False)
        return Response(status=202)

    def _attach(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        """Record that a server has the volume, as a client of Cinder does that connects it."""
        if requests.text(fields, "host_name"):
            raise exceptions.ValidationError(
                detail="This cloud connects no volume to a host_name. Give os-attach the instance_uuid of a server, or "
                "attach the volume with the compute API."
            )
        wanted = VolumeAttachment(
            id=str(uuid.uuid4()),
            instance_uuid=requests.an_id(fields, "instance_uuid"),
            device=requests.text(fields, "mountpoint"),
            mode=_mode(fields.get("mode")),
            status="attached",
        )
        if wanted.instance_uuid is None or not wanted.device:
            raise exceptions.ValidationError(detail="os-attach needs the instance_uuid of a server, and a mountpoint.")
        self.conductor.volume_attachment_set(req.context, id, wanted, None)
        return Response(status=202)

    def _detach(self, req: ServiceRequest, id: str, fields: dict[str, Any]) -> Response:
        """End an attachment of this API. Refuse others, as Cinder does: only the host knows when the guest let go."""
        volume = self.conductor.volume_get(req.context, id)
        wanted = fields.get("attachment_id")
        if volume.attachment is not None and wanted in (None, volume.attachment.id):
            self.conductor.volume_attachment_set(req.context, id, None, volume.attachment.id)
            return Response(status=202)
        if volume.instance_uuid is None:
            raise exceptions.InvalidVolume(reason=f"volume {id} is not attached.")
        raise exceptions.Conflict(f"Detach volume from instance {volume.instance_uuid} using the Compute API.")


def _not_found(id: str) -> exceptions.NotFound:
    return exceptions.NotFound(f"Volume attachment could not be found with filter: attachment_id = {id[:64]}.")


def _mode(value: Any) -> str:
    if value not in (None, *_MODES):
        raise exceptions.ValidationError(detail=f"The mode of an attachment is {' or '.join(_MODES)}.")
    return str(value or _MODES[0])


def _connected(known: VolumeAttachment, connector: Any) -> VolumeAttachment:
    """Return the attachment with the host of a connector."""
    if not isinstance(connector, dict) or not connector:
        raise exceptions.ValidationError(detail="The connector of a host is needed.")
    host = requests.text(connector, "host")
    device = requests.text(connector, "mountpoint")
    return msgspec.structs.replace(known, host=host, device=device, status="attaching")
