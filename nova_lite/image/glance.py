"""Backend ``glance``: images of a real Glance.

The API uses the token of the user who sends the request. It never stores or forwards the token: it passes the image's
metadata to the conductor instead. Compute hosts and conductors use the service user of ``[glance]``. It must be able to
read every image, and to upload and delete snapshots of every project, so it must be an admin.
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
from nova_lite.base.timing import TIMING, ClientTiming
from nova_lite.image import verified
from nova_lite.image.driver import ImageBackend, ImageCall
from nova_lite.image.glance_client import GlanceClient, json_of
from nova_lite.objects import Image

if TYPE_CHECKING:
    from nova_lite.rpcapi.conductor import ConductorRPC

LOG = logging.getLogger(__name__)

PAGE = 1000

#: Fields of an image in Glance's responses. All other keys are properties.
FIELDS = frozenset(
    {
        "id", "name", "status", "visibility", "protected", "owner", "tags", "locations", "direct_url", "stores",
        "checksum", "os_hash_algo", "os_hash_value", "os_hidden", "size", "virtual_size", "min_disk", "min_ram",
        "disk_format", "container_format", "created_at", "updated_at", "self", "file", "schema",
    }
)  # fmt: skip

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class GlanceImages(ImageBackend):
    """Images of a real Glance."""

    def __init__(self, conf: cfg.ConfigOpts, conductor: ConductorRPC, timing: ClientTiming = TIMING.clients) -> None:
        super().__init__(conf, conductor)
        self._timing = timing
        self._client = GlanceClient(conf)

    # --- for the API

    def list_images(self, context: RequestContext, name: str | None, marker: str | None = None) -> Iterator[Image]:
        query: dict[str, Any] = {"limit": PAGE} | ({} if name is None else {"name": name})
        if marker is not None:
            query["marker"] = marker
        for body in self._client.pages(_token(context), query):
            image = image_of(body)
            if name in (None, image.name):
                yield image

    def get(self, context: RequestContext, image_id: str) -> Image:
        response = self._client.request(_token(context), "GET", _path(image_id))
        return image_of(_body(response, image_id))

    def change_properties(self, context: RequestContext, image_id: str, changes: Mapping[str, str | None]) -> Image:
        for name in changes:
            if name in FIELDS:
                raise exceptions.ValidationError(detail=f"{name} is not a property and cannot be changed here.")
        operations = [_operation(name, value) for name, value in changes.items()]
        if not operations:
            return self.get(context, image_id)
        response = self._client.patch(_token(context), _path(image_id), operations)
        return image_of(_body(response, image_id))

    def delete(self, context: RequestContext, image_id: str) -> None:
        response = self._client.request(_token(context), "DELETE", _path(image_id))
        if response.status_code != 204:
            raise _refusal(response, image_id)

    def describe(self, context: RequestContext, image_ids: Sequence[str]) -> dict[str, Image]:
        images = {}
        for image_id in image_ids:
            try:
                image = images[image_id] = self.get(context, image_id)
            except exceptions.ImageNotFound as error:
                raise exceptions.ImageUnavailable() from error
            for part, part_id in image.boot_parts():
                images[part_id] = self._part(context, image, part, part_id)
        return images

    def _part(self, context: RequestContext, image: Image, part: str, part_id: str) -> Image:
        try:
            return self.get(context, part_id)
        except exceptions.ImageNotFound as error:
            raise exceptions.InvalidInput(
                reason=f"image {image.id} names a {part} {part_id} that does not exist"
            ) from error

    def register(self, context: RequestContext, image: Image) -> Image | None:
        response = self._client.request(_token(context), "POST", "/v2/images", json=_new(image))
        if response.status_code != 201:
            raise _refusal(response, image.id)
        return image_of(json_of(response))

    def withdraw(self, context: RequestContext, image_id: str) -> None:
        try:
            self._client.request(_token(context), "DELETE", _path(image_id))
        except exceptions.ServiceUnavailable as error:
            LOG.warning("Image %s, which its user was refused, is left at Glance: %s", image_id, error.message)

    # --- for compute hosts

    def fetch(self, image: Image, target: str) -> None:
        wait = self._timing.glance_retry_pause
        for left in range(self.conf.glance.num_retries, -1, -1):
            try:
                with verified.whole(target):
                    self._download(image, target)
                return
            except (exceptions.ImageDownloadFailed, exceptions.ImageCorrupt) as error:
                failure = error.message
            if left:
                LOG.warning("%s Retrying, %d attempt(s) left", failure, left)
                time.sleep(wait)
                wait *= 2
        raise exceptions.ImageDownloadFailed(image_id=image.id, reason=failure)

    def _download(self, image: Image, target: str) -> None:
        """Download once. Raises `ImageDownloadFailed` or `ImageCorrupt` if a repetition may succeed."""
        try:
            with self._client.download(f"{_path(image.id)}/file") as response:
                _check_download(image, response)
                chunks = _limited(image, response.iter_content(verified.CHUNK))
                verified.check(image, *verified.write(chunks, target, image.hash_algorithm))
        except exceptions.ImageServiceUnavailable as error:
            raise exceptions.ImageDownloadFailed(image_id=image.id, reason="Glance does not respond") from error
        except requests.RequestException as error:
            raise exceptions.ImageDownloadFailed(image_id=image.id, reason=f"the connection broke: {error}") from error
        except OSError as error:
            raise exceptions.VirtDriverError(
                reason=f"image {image.id} cannot be written: {error.strerror or error}"
            ) from error

    def upload(self, image: Image, source: str, host: str, progress: Callable[[int], None]) -> None:
        """Upload the data. Fails if an interrupted upload left the image ``saving``: Glance then accepts no data."""
        try:
            with open(source, "rb") as reader:
                response = self._client.send_file(f"{_path(image.id)}/file", _ProgressReader(reader, progress))
        except OSError as error:
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=error.strerror or str(error)) from error
        if response.status_code == 404 or response.status_code == 410:
            raise exceptions.ImageNotFound(image_id=image.id)
        if response.status_code not in (200, 201, 204):
            raise exceptions.ImageUploadFailed(image_id=image.id, reason=f"Glance returned {response.status_code}")

    def sweep_uploads(self, host: str) -> None:
        """Do nothing, since Glance removes leftovers."""

    # --- for conductors

    def register_for_owner(self, image: Image) -> Image | None:
        body = {**_new(image), "id": image.id, "owner": image.owner}
        response = self._client.own("POST", "/v2/images", json=body)
        if response.status_code == 409:  # An earlier call has created it.
            return image_of(_body(self._client.own("GET", _path(image.id)), image.id))
        if response.status_code != 201:
            raise _refusal(response, image.id)
        return image_of(json_of(response))

    def publish(self, call: ImageCall) -> Image | None:
        image = image_of(_body(self._client.own("GET", _path(call.image_id)), call.image_id))
        if image.status != "active":
            raise exceptions.ImageFileMissing(image_id=call.image_id, reason=f"its status in Glance is {image.status}")
        return image

    def activate(self, call: ImageCall) -> Image | None:
        """Upload zero bytes, which activates the image. Glance refuses them if the image is already active."""
        response = self._client.send_file(f"{_path(call.image_id)}/file", b"")
        if response.status_code not in (200, 201, 204, 404, 409, 410):
            raise exceptions.ImageUploadFailed(image_id=call.image_id, reason=f"Glance returned {response.status_code}")
        return self.publish(call)

    def discard(self, call: ImageCall) -> None:
        response = self._client.own("DELETE", _path(call.image_id))
        if response.status_code not in (204, 404):
            raise _refusal(response, call.image_id)

    def rotate(self, call: ImageCall) -> None:
        query = {"limit": PAGE, "sort": "created_at:desc", "owner": call.project_id or ""}
        query |= {"instance_uuid": call.instance_uuid, "backup_type": call.backup_type, "image_type": "backup"}
        backups = [image_of(body) for body in self._client.pages(None, query)]
        for image in backups[call.rotation :]:
            response = self._client.own("DELETE", _path(image.id))
            if response.status_code not in (204, 404):
                LOG.warning("Backup %s could not be deleted: Glance returned %d", image.id, response.status_code)


class _ProgressReader:
    """File that reports how far it was read. It has a length, so `requests` does not use chunked encoding."""

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
    """Convert Glance's description of an image. Raises `ImageServiceUnavailable` if it is invalid."""
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
            md5=str(body.get("checksum") or ""),
            virtual_size=body.get("virtual_size"),
            min_disk=body.get("min_disk") or 0,
            min_ram=body.get("min_ram") or 0,
            visibility=body.get("visibility") or "private",
            owner=body.get("owner"),
            properties={k: str(v) for k, v in body.items() if k not in FIELDS and v is not None},
            created_at=timeutils.normalize_time(timeutils.parse_isotime(body["created_at"])),
            updated_at=timeutils.normalize_time(timeutils.parse_isotime(body["updated_at"])),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        LOG.error("Glance's description of an image is invalid: %r", error)
        raise exceptions.ImageServiceUnavailable() from error


def _checksum(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return algorithm and checksum. Uses MD5, which every Glance has, if this machine lacks the better algorithm."""
    algorithm, checksum = str(body.get("os_hash_algo")), body.get("os_hash_value")
    if checksum and algorithm in hashlib.algorithms_guaranteed and not algorithm.startswith("shake"):
        return algorithm, str(checksum)
    return "md5", body.get("checksum") or ""


def _new(image: Image) -> dict[str, Any]:
    """Return Glance's description of a queued image."""
    return {
        **image.properties,
        "name": image.name,
        "visibility": image.visibility,
        "disk_format": image.disk_format,
        "container_format": image.container_format,
        "min_disk": image.min_disk,
        "min_ram": image.min_ram,
    }


def _token(context: RequestContext) -> str:
    if not context.auth_token:
        raise exceptions.Forbidden("Glance needs a token, and this request has none.")
    token: str = context.auth_token
    return token


def _path(image_id: str) -> str:
    """Return the path of an image. Raises `ImageNotFound` for an id that is not a UUID, which could change the URL."""
    if not _UUID.fullmatch(image_id):
        raise exceptions.ImageNotFound(image_id=image_id)
    return f"/v2/images/{image_id}"


def _body(response: requests.Response, image_id: str) -> Any:
    """Return Glance's description of one image. Raises the error that the status stands for."""
    if response.status_code != 200:
        raise _refusal(response, image_id)
    return json_of(response)


def _refusal(response: requests.Response, image_id: str) -> exceptions.NovaLiteException:
    if response.status_code == 404:
        return exceptions.ImageNotFound(image_id=image_id)
    if response.status_code in (401, 403):
        return exceptions.Forbidden(f"Not authorized for image {image_id}.")
    if response.status_code == 409:
        return exceptions.Conflict(f"Image {image_id} cannot be changed now.")
    if response.status_code == 413:
        return exceptions.Forbidden("Image metadata limit exceeded")
    return exceptions.ValidationError(detail=f"The image service refused the request ({response.status_code}).")


def _operation(name: str, value: str | None) -> dict[str, str]:
    """Return a change as a JSON patch operation. ``add`` also replaces an existing property."""
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    return {"op": "remove", "path": path} if value is None else {"op": "add", "path": path, "value": value}


def _check_download(image: Image, response: requests.Response) -> None:
    if response.status_code in (204, 404):
        raise exceptions.ImageGone(image_id=image.id, reason="Glance does not have its data")
    if response.status_code == 403:
        raise exceptions.ImageGone(image_id=image.id, reason="the user of [glance] may not read it")
    if response.status_code != 200:
        raise exceptions.ImageDownloadFailed(image_id=image.id, reason=f"Glance returned {response.status_code}")


def _limited(image: Image, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks. Raises `ImageCorrupt` beyond the registered size, so that no image fills this host's disk."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if image.size and size > image.size:
            raise exceptions.ImageCorrupt(image_id=image.id, reason=f"more than the {image.size} bytes registered")
        yield chunk
