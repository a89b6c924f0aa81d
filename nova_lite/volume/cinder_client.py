"""Requests to Cinder's v3 API with keystoneauth.

Reads and creations for a user use the user's token, so Cinder itself checks the rights. Attachments belong to the
control plane and use the user in ``[cinder]``. The token of that user is also the service token, by which Cinder
distinguishes them from attachments of users.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec
import requests
from keystoneauth1 import exceptions as keystone_errors
from keystoneauth1 import service_token
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conf import service_client
from nova_lite.conf.cinder import GROUP, register_opts
from nova_lite.objects import Image, Volume

LOG = logging.getLogger(__name__)

#: First version in which an attachment can be completed.
MICROVERSION = "volume 3.44"

#: Metadata key of a volume that was made for a server. Its value is the uuid of the server's block device.
MADE_FOR = "nova_lite_block_device"

#: Keys of a volume's image metadata that are fields of the image, not properties.
_IMAGE_FIELDS = frozenset(
    {"image_id", "image_name", "checksum", "size", "min_disk", "min_ram", "disk_format", "container_format"}
)


class Attachment(msgspec.Struct, kw_only=True):
    """Attachment of Cinder. ``status``: reserved, attaching, attached, or another one.

    ``info``: connection data for a host. They contain secrets.
    """

    id: str
    status: str
    info: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Attachment(id={self.id!r}, status={self.status!r})"


class CinderClient:
    """Client of Cinder, for use by several threads.

    Raises `VolumeServiceUnavailable` if Cinder is down or fails. The request may or may not have taken effect.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        register_opts(conf)
        self._adapter = service_client.load_adapter(
            conf,
            GROUP,
            "[volume] backend = cinder",
            lambda user: service_token.ServiceTokenAuthWrapper(user_auth=user, service_auth=user),
        )
        self.timeout: float = float(conf[GROUP].timeout or 60)

    # --- as the user

    def volume(self, context: RequestContext, volume_id: str) -> Volume:
        """Return a volume that the user may see. Raises `VolumeNotFound`."""
        return volume_of(self._user(context, "GET", f"/volumes/{volume_id}", volume_id)["volume"])

    def snapshot_source(self, context: RequestContext, snapshot_id: str) -> Volume:
        """Return size and image of a volume made from this snapshot. Raises `SnapshotNotFound`."""
        try:
            snapshot = self._user(context, "GET", f"/snapshots/{snapshot_id}", snapshot_id)["snapshot"]
        except exceptions.VolumeNotFound as error:
            raise exceptions.SnapshotNotFound(snapshot_id=snapshot_id) from error
        image = None
        try:
            image = self.volume(context, str(snapshot["volume_id"])).image
        except exceptions.VolumeNotFound:
            LOG.info("The user of snapshot %s cannot see its volume", snapshot_id)
        size = int(snapshot["size"])
        return Volume(id=snapshot_id, project_id="", size=size, image=image, status=str(snapshot["status"]))

    def create_volume(self, context: RequestContext, fields: Mapping[str, Any], made_for: str) -> str:
        """Start the creation of a volume of the user and return its id. ``fields``: as in Cinder's API."""
        body = {"volume": {**fields, "metadata": {MADE_FOR: made_for}}}
        return str(self._user(context, "POST", "/volumes", "", json=body)["volume"]["id"])

    def _user(self, context: RequestContext, method: str, path: str, volume_id: str, **options: Any) -> dict[str, Any]:
        if not context.auth_token or not context.project_id:
            raise exceptions.Forbidden("Cinder needs a token, and this request has none.")
        headers = {"X-Auth-Token": context.auth_token}
        path = f"/{context.project_id}{path}"
        return _body(self._send(method, path, headers=headers, authenticated=False, **options), volume_id)

    # --- as the control plane

    def own_volume(self, volume_id: str) -> Volume:
        """Return a volume of any project. Raises `VolumeNotFound`."""
        return volume_of(self._own("GET", f"/volumes/{volume_id}", volume_id)["volume"])

    def find_made(self, made_for: str) -> str | None:
        """Return the id of the volume that was made for this block device, or None."""
        query = {"all_tenants": "1", "metadata": str({MADE_FOR: made_for})}
        volumes = self._own("GET", f"/volumes/detail?{urlencode(query)}")["volumes"]
        matches = [volume for volume in volumes if (volume.get("metadata") or {}).get(MADE_FOR) == made_for]
        return str(matches[0]["id"]) if matches else None

    def delete_volume(self, volume_id: str) -> None:
        """Delete a volume. Does nothing if it is deleted or being deleted."""
        try:
            self._own("DELETE", f"/volumes/{volume_id}", volume_id)
        except exceptions.VolumeNotFound:
            return
        except exceptions.InvalidVolume:
            try:
                is_deleting = self.own_volume(volume_id).status == "deleting"
            except exceptions.VolumeNotFound:
                is_deleting = True
            if not is_deleting:
                raise

    def attachments(self, volume_id: str, instance_uuid: str) -> list[Attachment]:
        """Return the attachments of this volume to this server, without their ``info``."""
        query = {"all_tenants": "1", "volume_id": volume_id, "instance_id": instance_uuid}
        items = self._own("GET", f"/attachments?{urlencode(query)}")["attachments"]
        own = [item for item in items if (item["volume_id"], item["instance"]) == (volume_id, instance_uuid)]
        return [Attachment(id=str(item["id"]), status=str(item["status"])) for item in own]

    def attachment(self, attachment_id: str) -> Attachment:
        return _attachment(self._own("GET", f"/attachments/{attachment_id}"))

    def reserve(self, volume_id: str, instance_uuid: str) -> Attachment:
        """Reserve a volume for a server. Raises `InvalidVolume` if it is not available."""
        body = {"attachment": {"volume_uuid": volume_id, "instance_uuid": instance_uuid}}
        return _attachment(self._own("POST", "/attachments", volume_id, json=body))

    def connect(self, attachment_id: str, connector: Mapping[str, Any]) -> Attachment:
        body = {"attachment": {"connector": dict(connector)}}
        return _attachment(self._own("PUT", f"/attachments/{attachment_id}", json=body))

    def complete(self, attachment_id: str) -> None:
        self._own("POST", f"/attachments/{attachment_id}/action", json={"os-complete": attachment_id})

    def delete_attachment(self, attachment_id: str) -> None:
        """Delete an attachment. Does nothing if it does not exist."""
        try:
            self._own("DELETE", f"/attachments/{attachment_id}")
        except exceptions.VolumeNotFound:
            LOG.debug("Attachment %s is gone already", attachment_id)

    def update_snapshot_status(self, snapshot_id: str, status: str) -> None:
        """Report the end of the host's work for a snapshot. With 90 % Cinder knows that the rest is its own.

        Raises `SnapshotNotFound`, or `InvalidVolume` if Cinder does not wait for it.
        """
        report = {"status": status, "progress": "90%"}
        try:
            self._own("POST", f"/snapshots/{snapshot_id}/action", json={"os-update_snapshot_status": report})
        except exceptions.VolumeNotFound as error:
            raise exceptions.SnapshotNotFound(snapshot_id=snapshot_id) from error

    def _own(self, method: str, path: str, volume_id: str = "", **options: Any) -> dict[str, Any]:
        try:
            project = self._adapter.get_project_id()
        except keystone_errors.ClientException as error:
            raise _unavailable(error) from error
        return _body(self._send(method, f"/{project}{path}", **options), volume_id)

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        """Send a request, without logging it, since connection data contain secrets."""
        headers = {"OpenStack-API-Version": MICROVERSION, "Accept": "application/json", **options.pop("headers", {})}
        try:
            response: requests.Response = self._adapter.request(
                self._root() + path, method, raise_exc=False, log=False, headers=headers, **options
            )
        except keystone_errors.ClientException as error:
            raise _unavailable(error) from error
        if response.status_code >= 500:
            LOG.error("Cinder returned %d to %s %s", response.status_code, method, path.partition("?")[0])
            raise exceptions.VolumeServiceUnavailable()
        return response

    def _root(self) -> str:
        """Return Cinder's URL with the version, without the project that some catalogs include."""
        root = self._adapter.get_endpoint(skip_discovery=True)
        if not root:
            raise keystone_errors.EndpointNotFound("the catalog has no endpoint of the block storage service")
        before, _, _ = str(root).rstrip("/").partition("/v3")
        return before + "/v3"


def _unavailable(error: Exception) -> exceptions.VolumeServiceUnavailable:
    LOG.error("Request to Cinder failed: %s", " ".join(str(error).split()))
    return exceptions.VolumeServiceUnavailable()


def _body(response: requests.Response, volume_id: str) -> dict[str, Any]:
    """Return the object in the body, {} without a body. Raises the error that the status stands for."""
    status = response.status_code
    if status < 300:
        body = _json(response) if response.content else {}
        if not isinstance(body, dict):
            LOG.error("Cinder's response is not a JSON object")
            raise exceptions.VolumeServiceUnavailable()
        return body
    if status == 404:
        raise exceptions.VolumeNotFound(volume_id=volume_id)
    if status == 401:
        raise exceptions.Forbidden("The volume service does not know this token.")
    if status == 403:
        raise exceptions.Forbidden(_message(response))
    raise exceptions.InvalidVolume(reason=_message(response))


def _json(response: requests.Response) -> Any:
    try:
        return response.json()
    except (requests.JSONDecodeError, json.JSONDecodeError):
        return None


def _message(response: requests.Response) -> str:
    """Return Cinder's own message."""
    body = _json(response)
    inner = next((value for value in body.values() if isinstance(value, dict)), {}) if isinstance(body, dict) else {}
    return str(inner.get("message") or f"the volume service refused the request ({response.status_code})")[:500]


def _attachment(body: dict[str, Any]) -> Attachment:
    attachment = body["attachment"]
    return Attachment(
        id=str(attachment["id"]), status=str(attachment["status"]), info=attachment.get("connection_info") or {}
    )


def volume_of(body: Mapping[str, Any]) -> Volume:
    """Convert Cinder's description of a volume. Raises `VolumeServiceUnavailable` if it is invalid."""
    try:
        image_metadata = {str(name): str(value) for name, value in (body.get("volume_image_metadata") or {}).items()}
        return Volume(
            id=str(body["id"]),
            project_id=str(body.get("os-vol-tenant-attr:tenant_id") or ""),
            name=body.get("name") or "",
            size=int(body["size"]),
            status=str(body["status"]),
            availability_zone=body.get("availability_zone") or "",
            volume_type=body.get("volume_type") or "",
            bootable=str(body.get("bootable")).lower() == "true",
            multiattach=bool(body.get("multiattach")),
            encrypted=bool(body.get("encrypted")),
            image=_image_of(image_metadata) if image_metadata.get("image_id") else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        LOG.error("Cinder's description of a volume is invalid: %r", error)
        raise exceptions.VolumeServiceUnavailable() from error


def _image_of(image_metadata: dict[str, str]) -> Image:
    def number(name: str) -> int:
        value = image_metadata.get(name, "0")
        return int(value) if value.isdigit() else 0

    return Image(
        id=image_metadata["image_id"],
        name=image_metadata.get("image_name", ""),
        size=number("size"),
        min_disk=number("min_disk"),
        min_ram=number("min_ram"),
        disk_format=image_metadata.get("disk_format", ""),
        container_format=image_metadata.get("container_format", ""),
        properties={name: value for name, value in image_metadata.items() if name not in _IMAGE_FIELDS},
    )
