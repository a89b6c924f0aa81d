"""Images of Glance: metadata by the rights of the user who asks, bytes by those of the user in ``[glance]``.

A user's token is used while the API has the request, and goes no further: what a create has to know of an image
travels with it. Compute hosts and conductors come as a user of their own, who therefore has to be allowed to read every
image, and for snapshots to fill and to delete those of every project: an admin.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

import requests
from oslo_config import cfg
from oslo_utils import timeutils

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.image import verified
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.image.glance_client import GlanceClient, json_of
from nova_lite.objects import Image

if TYPE_CHECKING:
    from nova_lite.conductor.rpcapi import ConductorRPC

LOG = logging.getLogger(__name__)

#: Seconds before a broken download is begun again; each time twice as long.
RETRY_SECONDS = 1.0
PAGE = 1000

#: What is an image's own in Glance's answers; everything else is a property.
FIELDS = frozenset(
    {
        *("id", "name", "status", "visibility", "protected", "owner", "tags", "locations", "direct_url", "stores"),
        *("checksum", "os_hash_algo", "os_hash_value", "os_hidden", "size", "virtual_size", "min_disk", "min_ram"),
        *("disk_format", "container_format", "created_at", "updated_at", "self", "file", "schema"),
    }
)

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class GlanceImages(ImageBackend):
    def __init__(self, conf: cfg.ConfigOpts, conductor: ConductorRPC) -> None:
        super().__init__(conf, conductor)
        self._client = GlanceClient(conf)

    # --- for the API

    def list_images(self, context: RequestContext, name: str | None) -> list[Image]:
        query: dict[str, Any] = {"limit": PAGE} | ({} if name is None else {"name": name})
        found = [image_of(body) for body in self._client.pages(_token(context), query)]
        return [image for image in found if name in (None, image.name)]

    def get(self, context: RequestContext, image_id: str) -> Image:
        answer = self._client.request(_token(context), "GET", _path(image_id))
        return image_of(_body(answer, image_id))

    def change_properties(self, context: RequestContext, image_id: str, changes: Mapping[str, str | None]) -> Image:
        for name in changes:
            if name in FIELDS:
                raise exceptions.ValidationError(detail=f"{name} is not metadata that can be changed here.")
        operations = [_operation(name, value) for name, value in changes.items()]
        if not operations:
            return self.get(context, image_id)
        answer = self._client.patch(_token(context), _path(image_id), operations)
        return image_of(_body(answer, image_id))

    def delete(self, context: RequestContext, image_id: str) -> None:
        answer = self._client.request(_token(context), "DELETE", _path(image_id))
        if answer.status_code != 204:
            raise _refusal(answer, image_id)

    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        found = {}
        for image_id in image_ids:
            try:
                image = found[image_id] = self.get(context, image_id)
            except exceptions.ImageNotFound as error:
                raise exceptions.ImageUnavailable() from error
            for part, part_id in image.boot_parts():
                found[part_id] = self._part(context, image, part, part_id)
        return found

    def _part(self, context: RequestContext, image: Image, part: str, part_id: str) -> Image:
        try:
            return self.get(context, part_id)
        except exceptions.ImageNotFound as error:
            raise exceptions.InvalidInput(
                reason=f"image {image.id} names a {part} {part_id} that does not exist"
            ) from error

    def register(self, context: RequestContext, image: Image) -> Image | None:
        body = {
            **image.properties,
            "name": image.name,
            "visibility": image.visibility,
            "disk_format": image.disk_format,
            "container_format": image.container_format,
            "min_disk": image.min_disk,
            "min_ram": image.min_ram,
        }
        answer = self._client.request(_token(context), "POST", "/v2/images", json=body)
        if answer.status_code != 201:
            raise _refusal(answer, image.id)
        return image_of(json_of(answer))

    def withdraw(self, context: RequestContext, image_id: str) -> None:
        self._client.request(_token(context), "DELETE", _path(image_id))

    # --- for compute hosts

    def fetch(self, image: Image, target: str) -> None:
        wait = RETRY_SECONDS
        for left in range(self.conf.glance.num_retries, -1, -1):
            try:
                with verified.whole(target):
                    self._download(image, target)
                return
            except (exceptions.ImageDownloadFailed, exceptions.ImageCorrupt) as error:
                failure = error.message
            if left:
                LOG.warning("%s Trying again, %d more time(s)", failure, left)
                time.sleep(wait)
                wait *= 2
        raise exceptions.ImageDownloadFailed(image_id=image.id, reason=failure)

    def _download(self, image: Image, target: str) -> None:
        """Raises `ImageDownloadFailed` or `ImageCorrupt` for what may go better the next time."""
        try:
            with self._client.download(f"{_path(image.id)}/file") as answer:
                _check_download(image, answer)
                chunks = _no_more_than(image, answer.iter_content(verified.CHUNK))
                verified.check(image, *verified.write(chunks, target, image.hash_algorithm))
        except exceptions.ImageServiceUnavailable as error:
            raise exceptions.ImageDownloadFailed(image_id=image.id, reason="Glance does not answer") from error
        except requests.RequestException as error:
            raise exceptions.ImageDownloadFailed(image_id=image.id, reason=f"it broke off: {error}") from error
        except OSError as error:
            raise exceptions.VirtDriverError(
                reason=f"image {image.id} cannot be written: {error.strerror or error}"
            ) from error

    def upload(self, image: Image, source: str, host: str, progress: Callable[[int], None]) -> None:
        """An upload that was killed may have left the image saving, which Glance fills no more: then it fails."""
        try:
            with open(source, "rb") as reader:
                answer = self._client.send_file(f"{_path(image.id)}/file", _Read(reader, progress))
        except OSError as error:
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=error.strerror or str(error)) from error
        if answer.status_code == 404 or answer.status_code == 410:
            raise exceptions.ImageNotFound(image_id=image.id)
        if answer.status_code not in (200, 201, 204):
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=f"Glance answers {answer.status_code}")

    def sweep_uploads(self, host: str) -> None:
        """Glance does it."""

    # --- for conductors

    def publish(self, call: ImageCall) -> Image | None:
        image = image_of(_body(self._client.own("GET", _path(call.image_id)), call.image_id))
        if image.status != "active":
            raise exceptions.ImageFileMissing(image_id=call.image_id, reason=f"Glance has it as {image.status}")
        return image

    def activate(self, call: ImageCall) -> Image | None:
        """No bytes are data to Glance; one that is active already takes none."""
        answer = self._client.send_file(f"{_path(call.image_id)}/file", b"")
        if answer.status_code not in (200, 201, 204, 404, 409, 410):
            raise exceptions.ImageUploadFailed(image_id=call.image_id, reason=f"Glance answers {answer.status_code}")
        return self.publish(call)

    def discard(self, call: ImageCall) -> None:
        answer = self._client.own("DELETE", _path(call.image_id))
        if answer.status_code not in (204, 404):
            raise _refusal(answer, call.image_id)

    def rotate(self, call: ImageCall) -> None:
        query = {"limit": PAGE, "sort": "created_at:desc", "owner": call.project_id or ""}
        query |= {"instance_uuid": call.instance_uuid, "backup_type": call.backup_type, "image_type": "backup"}
        found = [image_of(body) for body in self._client.pages(None, query)]
        for image in found[call.rotation :]:
            answer = self._client.own("DELETE", _path(image.id))
            if answer.status_code not in (204, 404):
                LOG.warning("Backup %s could not be deleted: Glance answers %d", image.id, answer.status_code)


class _Read:
    """A file that is read in pieces and tells how far it was read. Its length is known, so it is not sent in chunks."""

    def __init__(self, file: IO[bytes], progress: Callable[[int], None]) -> None:
        self._file = file
        self._progress = progress
        self.len = os.fstat(file.fileno()).st_size

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(verified.CHUNK if size < 0 else size)
        self._progress(self._file.tell())
        return data

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.read(verified.CHUNK), b"")


def image_of(body: Mapping[str, Any]) -> Image:
    """From Glance's words. Raises `ImageServiceUnavailable` for what is not an image."""
    try:
        algorithm, checksum = _checksum(body)
        return Image(
            id=body["id"],
            name=body.get("name") or "",
            status=body["status"],
            disk_format=body.get("disk_format") or "",
            container_format=body.get("container_format") or "",
            size=body.get("size") or 0,
            checksum=checksum,
            hash_algorithm=algorithm,
            min_disk=body.get("min_disk") or 0,
            min_ram=body.get("min_ram") or 0,
            visibility=body.get("visibility") or "private",
            owner=body.get("owner"),
            properties={k: str(v) for k, v in body.items() if k not in FIELDS and v is not None},
            created_at=timeutils.normalize_time(timeutils.parse_isotime(body["created_at"])),
            updated_at=timeutils.normalize_time(timeutils.parse_isotime(body["updated_at"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        LOG.error("Glance's description of an image makes no sense: %r", error)
        raise exceptions.ImageServiceUnavailable() from error


def _checksum(body: Mapping[str, Any]) -> tuple[str, str]:
    """Algorithm and checksum; MD5, which every Glance has, where this machine does not know the better one."""
    algorithm, checksum = str(body.get("os_hash_algo")), body.get("os_hash_value")
    if checksum and algorithm in hashlib.algorithms_guaranteed and not algorithm.startswith("shake"):
        return algorithm, str(checksum)
    return "md5", body.get("checksum") or ""


def _token(context: RequestContext) -> str:
    if not context.auth_token:
        raise exceptions.Forbidden("Images are Glance's, which takes tokens only: this request brought none.")
    token: str = context.auth_token
    return token


def _path(image_id: str) -> str:
    """Every id of Glance's is a UUID; nothing else may become a part of a URL."""
    if not _UUID.fullmatch(image_id):
        raise exceptions.ImageNotFound(image_id=image_id)
    return f"/v2/images/{image_id}"


def _body(answer: requests.Response, image_id: str) -> Any:
    """What Glance says of one image; raises what its status means."""
    if answer.status_code != 200:
        raise _refusal(answer, image_id)
    return json_of(answer)


def _refusal(answer: requests.Response, image_id: str) -> exceptions.NovaLiteException:
    if answer.status_code == 404:
        return exceptions.ImageNotFound(image_id=image_id)
    if answer.status_code in (401, 403):
        return exceptions.Forbidden(f"Not authorized for image {image_id}.")
    if answer.status_code == 409:
        return exceptions.Conflict(f"Image {image_id} cannot be changed at present.")
    if answer.status_code == 413:
        return exceptions.Forbidden("Image metadata limit exceeded")
    return exceptions.ValidationError(detail=f"The image service refuses this ({answer.status_code}).")


def _operation(name: str, value: str | None) -> dict[str, str]:
    """One change as JSON patch. Adding what is there replaces it."""
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}


def _check_download(image: Image, answer: requests.Response) -> None:
    if answer.status_code in (204, 404):
        raise exceptions.ImageGone(image_id=image.id, reason="Glance does not have its data")
    if answer.status_code == 403:
        raise exceptions.ImageGone(image_id=image.id, reason="the user of [glance] may not read it")
    if answer.status_code != 200:
        raise exceptions.ImageDownloadFailed(image_id=image.id, reason=f"Glance answers {answer.status_code}")


def _no_more_than(image: Image, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks, as long as the image is not longer than it was registered: nobody fills this host's disk."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if image.size and size > image.size:
            raise exceptions.ImageCorrupt(image_id=image.id, reason=f"more than the {image.size} bytes registered")
        yield chunk
