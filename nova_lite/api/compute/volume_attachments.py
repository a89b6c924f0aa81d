"""``/servers/{server_id}/os-volume_attachments``: the volumes of a server."""

from __future__ import annotations

import uuid
from typing import Any

from oslo_utils import strutils

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.objects import BlockDevice, Instance
from nova_lite.policies import servers as policies

# --- schemas

_DEVICE: t.Schema = {"type": ["string", "null"], "maxLength": 255, "pattern": "^/dev/[a-z]+[0-9]*$"}
_CREATE_20: t.Schema = {"volumeId": t.UUID, "device": _DEVICE}
_CREATE_249 = {**_CREATE_20, "tag": t.TAG}
_CREATE_279 = {**_CREATE_249, "delete_on_termination": t.BOOLEAN}


def _create(properties: t.Schema) -> t.Schema:
    return t.wrapped("volumeAttachment", t.strict(properties, ("volumeId",)))


CREATE_BODY = Versioned(
    {
        1: _create(_CREATE_20),
        Change.ATTACHMENT_TAGS: _create(_CREATE_249),
        Change.DELETE_ON_TERMINATION: _create(_CREATE_279),
    }
)

_UPDATE_20: t.Schema = {"volumeId": t.UUID}
_UPDATE_285: t.Schema = {
    **_UPDATE_20,
    "device": _DEVICE,
    "tag": t.TAG,
    "delete_on_termination": t.BOOLEAN,
    "serverId": t.UUID,
    "id": t.UUID,
}

UPDATE_BODY = Versioned(
    {
        1: t.wrapped("volumeAttachment", t.strict(_UPDATE_20, ("volumeId",))),
        Change.ATTACHMENT_UPDATE: t.wrapped("volumeAttachment", t.strict(_UPDATE_285, ("volumeId",))),
    }
)


# --- routes

_PATH = "/servers/{server_id}/os-volume_attachments"


class VolumeAttachments(Extension):
    alias = "os-volume-attachments"
    title = "Volumes of a server"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create", until=Change.ATTACH_ACCEPTED - 1),
        Route("POST", _PATH, "accept", since=Change.ATTACH_ACCEPTED),
        Route("GET", _PATH + "/{id}", "show"),
        Route("PUT", _PATH + "/{id}", "update"),
        Route("DELETE", _PATH + "/{id}", "delete"),
    )

    @declares(policies.VOLUMES_INDEX, query=t.OFFSET_PAGING, response="volumeAttachments")
    def index(self, req: Request, server_id: str) -> Response:
        instance = self.conductor.instance_get(req.context, server_id)
        attached = [_view(req, instance, device) for device in instance.block_devices if device.volume_id is not None]
        offset = int(req.query.one("offset") or 0)
        return Response({"volumeAttachments": attached[offset:][: req.query.limit]})

    @declares(policies.VOLUMES_SHOW, query=t.NO_PARAMETERS, response="volumeAttachment")
    def show(self, req: Request, server_id: str, id: str) -> Response:
        instance = self.conductor.instance_get(req.context, server_id)
        return Response({"volumeAttachment": _view(req, instance, _find(instance, id))})

    @declares(policies.VOLUMES_CREATE, body=CREATE_BODY, response="volumeAttachment")
    def create(self, req: Request, server_id: str) -> Response:
        """Return the attachment with ``id``, which lists lack since 2.89. Nova has left this response as it was."""
        instance = self._attach(req, server_id)
        device = _find(instance, req.data["volumeAttachment"]["volumeId"])
        view = {"id": device.volume_id, **_base_view(req, instance, device)}
        return Response({"volumeAttachment": view})

    @declares(policies.VOLUMES_CREATE, body=CREATE_BODY, status=202)
    def accept(self, req: Request, server_id: str) -> Response:
        self._attach(req, server_id)
        return Response(status=202)

    def _attach(self, req: Request, server_id: str) -> Instance:
        """Request the attachment. The requested ``device`` is ignored: guests find the volume by its id."""
        body = req.data["volumeAttachment"]
        payload = {
            "volume_id": body["volumeId"],
            "attachment_id": str(uuid.uuid4()),
            "tag": body.get("tag"),
            "multiattach": req.has(Change.MULTIATTACH),
            "delete_on_termination": strutils.bool_from_string(body.get("delete_on_termination", False)),
        }
        return self.compute.attach_volume(req.context, server_id, payload)

    @declares(policies.VOLUMES_UPDATE, body=UPDATE_BODY, status=202)
    def update(self, req: Request, server_id: str, id: str) -> Response:
        body = req.data["volumeAttachment"]
        instance = self.conductor.instance_get(req.context, server_id)
        device = _find(instance, id)
        if body["volumeId"] != id or not req.has(Change.ATTACHMENT_UPDATE):
            req.authorize(policies.VOLUMES_SWAP)
            payload = {"volume_id": id, "new_volume_id": body["volumeId"]}
            self.compute.accept(req.context, server_id, operations.SWAP_VOLUME.kind, payload)
            return Response(status=202)
        for name, value in (
            ("device", device.device_name),
            ("tag", device.tag),
            ("serverId", instance.uuid),
            ("id", device.volume_id),
        ):
            if name in body and body[name] != value:
                raise exceptions.ValidationError(detail=f"The {name} cannot be changed; it is {value}.")
        if "delete_on_termination" in body:
            flag = strutils.bool_from_string(body["delete_on_termination"])
            self.conductor.attachment_update(req.context, server_id, id, flag)
        return Response(status=202)

    @declares(policies.VOLUMES_DELETE, status=202)
    def delete(self, req: Request, server_id: str, id: str) -> Response:
        self.compute.detach_volume(req.context, server_id, id)
        return Response(status=202)


def _find(instance: Instance, volume_id: str) -> BlockDevice:
    for device in instance.block_devices:
        if device.volume_id == volume_id:
            return device
    raise exceptions.VolumeBDMNotFound(instance_uuid=instance.uuid, volume_id=volume_id[:64])


def _view(req: Request, instance: Instance, device: BlockDevice) -> dict[str, Any]:
    view = _base_view(req, instance, device)
    if req.has(Change.ATTACHMENT_IDS):
        return view | {"attachment_id": device.attachment_id or device.uuid, "bdm_uuid": device.uuid}
    return view | {"id": device.volume_id}


def _base_view(req: Request, instance: Instance, device: BlockDevice) -> dict[str, Any]:
    view: dict[str, Any] = {
        "serverId": instance.uuid,
        "volumeId": device.volume_id,
        "device": device.device_name,
    }
    if req.has(Change.INTERFACE_TAGS):
        view["tag"] = device.tag
    if req.has(Change.DELETE_ON_TERMINATION):
        view["delete_on_termination"] = device.delete_on_termination
    return view
