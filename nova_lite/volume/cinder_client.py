"""Requests to Cinder's v3 API, by keystoneauth.

What a user names is read, and what a user asks for is made, with the user's token: Cinder itself says what is whose.
Attachments are the control plane's own, and driven as the user in ``[cinder]``, whose token is also the service token
by which Cinder knows them from a user's.
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
from oslo_utils import uuidutils

from nova_lite.base import exceptions, failpoints
from nova_lite.base.context import RequestContext
from nova_lite.conf import service_client
from nova_lite.conf.cinder import GROUP, register_opts
from nova_lite.objects import Image, Volume

LOG = logging.getLogger(__name__)

#: The first version in which an attachment can be completed.
MICROVERSION = "volume 3.44"

#: In the metadata of a volume that was made for a server: the uuid of the block device that it is for.
MADE_FOR = "nova_lite_block_device"

#: Of what Cinder remembers of an image, all that is no property of it.
_IMAGE_FIELDS = frozenset(
    {"image_id", "image_name", "checksum", "size", "min_disk", "min_ram", "disk_format", "container_format"}
)


class Attachment(msgspec.Struct, kw_only=True):
    """One of Cinder's. ``status``: reserved, attaching, attached, and others. ``info``: how a host gets at the volume;
    it has secrets in it."""

    id: str
    status: str
    info: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Attachment(id={self.id!r}, status={self.status!r})"


class CinderClient:
    """Several threads may use it. Cinder away, or in trouble of its own, is `VolumeServiceUnavailable`: then what was
    asked for may have been done or not."""

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
        """One that the user may see; else `VolumeNotFound`."""
        return volume_of(self._user(context, "GET", f"/volumes/{volume_id}", volume_id)["volume"])

    def snapshot_source(self, context: RequestContext, snapshot_id: str) -> Volume:
        """What a volume made of this snapshot begins as: its size and image. `SnapshotNotFound`."""
        try:
            snapshot = self._user(context, "GET", f"/snapshots/{snapshot_id}", snapshot_id)["snapshot"]
        except exceptions.VolumeNotFound as error:
            raise exceptions.SnapshotNotFound(snapshot_id=snapshot_id) from error
        image = None
        try:
            image = self.volume(context, str(snapshot["volume_id"])).image
        except exceptions.VolumeNotFound:
            LOG.info("The volume of snapshot %s cannot be seen by who uses the snapshot", snapshot_id)
        size = int(snapshot["size"])
        return Volume(id=snapshot_id, project_id="", size=size, image=image, status=str(snapshot["status"]))

    def create_volume(self, context: RequestContext, wanted: Mapping[str, Any], made_for: str) -> str:
        """The id of a volume of the user's that Cinder begins to make. ``wanted``: in Cinder's words."""
        body = {"volume": {**wanted, "metadata": {MADE_FOR: made_for}}}
        return str(self._user(context, "POST", "/volumes", "", json=body)["volume"]["id"])

    def _user(self, context: RequestContext, method: str, path: str, volume_id: str, **options: Any) -> dict[str, Any]:
        if not context.auth_token or not context.project_id:
            raise exceptions.Forbidden("Volumes are Cinder's, which takes tokens only: this request brought none.")
        headers = {"X-Auth-Token": context.auth_token}
        path = f"/{context.project_id}{path}"
        return _body(self._send(method, path, headers=headers, authenticated=False, **options), volume_id)

    # --- as the control plane

    def own_volume(self, volume_id: str) -> Volume:
        """Of any project."""
        return volume_of(self._own("GET", f"/volumes/{volume_id}", volume_id)["volume"])

    def find_made(self, made_for: str) -> str | None:
        """The volume that was made for this block device, if there is one."""
        query = {"all_tenants": "1", "metadata": str({MADE_FOR: made_for})}
        found = self._own("GET", f"/volumes/detail?{urlencode(query)}")["volumes"]
        mine = [each for each in found if (each.get("metadata") or {}).get(MADE_FOR) == made_for]
        return str(mine[0]["id"]) if mine else None

    def delete_volume(self, volume_id: str) -> None:
        """Quiet when it is gone, or going."""
        try:
            self._own("DELETE", f"/volumes/{volume_id}", volume_id)
        except exceptions.VolumeNotFound:
            return
        except exceptions.InvalidVolume:
            try:
                going = self.own_volume(volume_id).status == "deleting"
            except exceptions.VolumeNotFound:
                going = True
            if not going:
                raise

    def attachments(self, volume_id: str, instance_uuid: str) -> list[Attachment]:
        """Those of this volume to this server, without their ``info``."""
        query = {"all_tenants": "1", "volume_id": volume_id, "instance_id": instance_uuid}
        found = self._own("GET", f"/attachments?{urlencode(query)}")["attachments"]
        mine = [each for each in found if (each["volume_id"], each["instance"]) == (volume_id, instance_uuid)]
        return [Attachment(id=str(each["id"]), status=str(each["status"])) for each in mine]

    def attachment(self, attachment_id: str) -> Attachment:
        return _attachment(self._own("GET", f"/attachments/{attachment_id}"))

    def reserve(self, volume_id: str, instance_uuid: str) -> Attachment:
        """`InvalidVolume` when it is not to be had."""
        body = {"attachment": {"volume_uuid": volume_id, "instance_uuid": instance_uuid}}
        return _attachment(self._own("POST", "/attachments", volume_id, json=body))

    def connect(self, attachment_id: str, connector: Mapping[str, Any]) -> Attachment:
        body = {"attachment": {"connector": dict(connector)}}
        return _attachment(self._own("PUT", f"/attachments/{attachment_id}", json=body))

    def complete(self, attachment_id: str) -> None:
        self._own("POST", f"/attachments/{attachment_id}/action", json={"os-complete": attachment_id})

    def delete_attachment(self, attachment_id: str) -> None:
        """Quiet when it is gone."""
        try:
            self._own("DELETE", f"/attachments/{attachment_id}")
        except exceptions.VolumeNotFound:
            LOG.debug("Attachment %s is gone already", attachment_id)

    def _own(self, method: str, path: str, volume_id: str = "", **options: Any) -> dict[str, Any]:
        try:
            project = self._adapter.get_project_id()
        except keystone_errors.ClientException as error:
            raise _away(error) from error
        return _body(self._send(method, f"/{project}{path}", **options), volume_id)

    def _send(self, method: str, path: str, **options: Any) -> requests.Response:
        """Nothing of it is logged: connections have secrets in them."""
        headers = {"OpenStack-API-Version": MICROVERSION, "Accept": "application/json", **options.pop("headers", {})}
        point = ("cinder", method.lower(), _subject(path))
        if failpoints.reach(*point, "before") == failpoints.ERROR:
            raise exceptions.VolumeServiceUnavailable()
        try:
            answer: requests.Response = self._adapter.request(
                self._root() + path, method, raise_exc=False, log=False, headers=headers, **options
            )
        except keystone_errors.ClientException as error:
            raise _away(error) from error
        if answer.status_code >= 500:
            LOG.error("Cinder answers %d to %s %s", answer.status_code, method, path.partition("?")[0])
            raise exceptions.VolumeServiceUnavailable()
        if failpoints.reach(*point, "after") == failpoints.ERROR:
            raise exceptions.VolumeServiceUnavailable()
        return answer

    def _root(self) -> str:
        """Cinder's URL with the version, and without the project that some catalogs have in it."""
        root = self._adapter.get_endpoint(skip_discovery=True)
        if not root:
            raise keystone_errors.EndpointNotFound("the catalog has no endpoint of the block storage service")
        before, _, _ = str(root).rstrip("/").partition("/v3")
        return before + "/v3"


def _subject(path: str) -> str:
    """The last word of ``/<project>/<words and ids>?<query>`` that is no id."""
    _, _, *words = path.partition("?")[0].split("/")
    return next(word for word in reversed(words) if not uuidutils.is_uuid_like(word))


def _away(error: Exception) -> exceptions.VolumeServiceUnavailable:
    LOG.error("Cinder cannot be asked: %s", " ".join(str(error).split()))
    return exceptions.VolumeServiceUnavailable()


def _body(answer: requests.Response, volume_id: str) -> dict[str, Any]:
    """The object in the answer's body ({}: none); raises what its status means."""
    status = answer.status_code
    if status < 300:
        body = _json(answer) if answer.content else {}
        if not isinstance(body, dict):
            LOG.error("Cinder's answer is no JSON object")
            raise exceptions.VolumeServiceUnavailable()
        return body
    if status == 404:
        raise exceptions.VolumeNotFound(volume_id=volume_id)
    if status == 401:
        raise exceptions.Forbidden("The volume service does not know this token.")
    if status == 403:
        raise exceptions.Forbidden(_told(answer))
    raise exceptions.InvalidVolume(reason=_told(answer))


def _json(answer: requests.Response) -> Any:
    try:
        return answer.json()
    except (requests.JSONDecodeError, json.JSONDecodeError):
        return None


def _told(answer: requests.Response) -> str:
    """Cinder's own sentence."""
    body = _json(answer)
    inner = next((each for each in body.values() if isinstance(each, dict)), {}) if isinstance(body, dict) else {}
    return str(inner.get("message") or f"the volume service refuses this ({answer.status_code})")[:500]


def _attachment(body: dict[str, Any]) -> Attachment:
    found = body["attachment"]
    return Attachment(id=str(found["id"]), status=str(found["status"]), info=found.get("connection_info") or {})


def volume_of(body: Mapping[str, Any]) -> Volume:
    """From Cinder's words. Raises `VolumeServiceUnavailable` for what is not a volume."""
    try:
        remembered = {str(name): str(value) for name, value in (body.get("volume_image_metadata") or {}).items()}
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
            image=_image_of(remembered) if remembered.get("image_id") else None,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        LOG.error("Cinder's description of a volume makes no sense: %r", error)
        raise exceptions.VolumeServiceUnavailable() from error


def _image_of(remembered: dict[str, str]) -> Image:
    def number(name: str) -> int:
        value = remembered.get(name, "0")
        return int(value) if value.isdigit() else 0

    return Image(
        id=remembered["image_id"],
        name=remembered.get("image_name", ""),
        size=number("size"),
        min_disk=number("min_disk"),
        min_ram=number("min_ram"),
        disk_format=remembered.get("disk_format", ""),
        container_format=remembered.get("container_format", ""),
        properties={name: value for name, value in remembered.items() if name not in _IMAGE_FIELDS},
    )
