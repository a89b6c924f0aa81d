"""Imports of image data: staged first (``glance-direct``), or loaded from an allowed host (``web-download``).

Staged data wait in a directory of the store, with their sums in the image's row, which is ``uploading``. Their import
moves the file, so it ends before its response. A download is an upload by this service: its image is ``saving``.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import threading
import time
from typing import Annotated, Any

import webob

from nova_lite.api.http import bodies
from nova_lite.api.http.rest import ServiceApplication, ServiceRequest, route
from nova_lite.api.image import uploads
from nova_lite.api.image.resource import ImageResource
from nova_lite.api.image.views import View
from nova_lite.base import exceptions, files
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING
from nova_lite.image import download, formats, store
from nova_lite.objects import Image
from nova_lite.policies import image_service as policies

LOG = logging.getLogger(__name__)

STAGED = "uploading"
#: Property of an image whose import has failed, and its value: the store.
FAILED, STORE = "os_glance_failed_import", "local"
#: Name of the directory of staged data below the store, and seconds after which they are abandoned.
STAGING = "staging"
STAGED_SECONDS = 86400.0
#: Seconds after which the next request with data removes abandoned ones.
SWEEP_SECONDS = 600.0
#: Images that one process loads by URL at the same time. Each takes a thread.
MAX_DOWNLOADS = 8

DIRECT, WEB = "glance-direct", "web-download"


class StagedUpload(uploads.Upload):
    """Data that wait for their import. ``store_path`` is the directory of staged data."""

    final_status = STAGED

    def check(self, path: str) -> None:
        """Accept all data: the import checks them."""


def staging_path(store_path: str) -> str:
    return os.path.join(store_path, STAGING)


def sweep(store_path: str) -> None:
    """Remove staged data that no request has imported."""
    directory = staging_path(store_path)
    if not os.path.isdir(directory):
        return
    store.sweep(directory)
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        with contextlib.suppress(FileNotFoundError):  # another daemon has imported or removed it meanwhile
            if not name.startswith(".") and os.path.getmtime(path) < time.time() - STAGED_SECONDS:
                files.remove(path)


def _method(fields: dict[str, Any], name: str) -> dict[str, Any]:
    method = fields.get(name)
    return method if isinstance(method, dict) else {}


def _stores(fields: dict[str, Any], name: str) -> list[str]:
    if fields[name] != [STORE]:
        raise exceptions.ValidationError(detail=f"The only store is {STORE}.")
    return [STORE]


class NewImport(bodies.Body):
    method: Annotated[dict[str, Any], bodies.checked(_method)]
    stores: Annotated[list[str], bodies.checked(_stores)] = []


class Imports(ImageResource):
    """Imports of image data."""

    def __init__(self, app: ServiceApplication) -> None:
        super().__init__(app)
        self._downloads = threading.BoundedSemaphore(MAX_DOWNLOADS)
        self._next_sweep = time.monotonic() + SWEEP_SECONDS

    def sweep_if_due(self) -> None:
        """Remove abandoned data before others arrive, which need the room."""
        if time.monotonic() < self._next_sweep:
            return
        self._next_sweep = time.monotonic() + SWEEP_SECONDS
        store_path = self.store_path
        try:
            store.sweep(store_path)
            sweep(store_path)
        except OSError as error:
            LOG.warning("Abandoned data of images below %s cannot be removed: %s", store_path, error)

    def methods(self) -> list[str]:
        return [DIRECT, WEB] if self.conf.image.import_hosts else [DIRECT]

    @route("GET", "/info/import", policies.SCHEMAS, response="import-methods")
    def index(self, req: ServiceRequest) -> View:
        """List the methods of imports."""
        return {"description": "Import methods available.", "type": "array", "value": self.methods()}

    @route("POST", "/images/{id}/import", policies.UPLOAD, authorizes=True, body=NewImport, status=202)
    def create(self, req: ServiceRequest, id: str) -> None:
        image = self.changeable(req, id)
        method = bodies.read(NewImport, req.json_object()).method
        name = method.get("name")
        if name not in self.methods():
            raise exceptions.ValidationError(detail=f"The method of an import is one of {', '.join(self.methods())}.")
        if not image.disk_format or not image.container_format:
            raise exceptions.Conflict("Properties disk_format, container_format must be set prior to saving data.")
        if name == DIRECT:
            self._import_staged(req.context, image)
        else:
            self._load(req.context, image, method.get("uri"))

    # --- staged data

    def _import_staged(self, context: RequestContext, image: Image) -> None:
        """Move staged data into the store. A repeated request continues where an earlier one has died."""
        if image.status != STAGED:
            raise exceptions.Conflict(f"Image {image.id} is {image.status}: stage its data first.")
        if not image.checksum:
            raise exceptions.Conflict(f"Image {image.id} has only {image.size} bytes of its data: stage the others.")
        store_path = self.store_path
        staged, target = store.file_path(staging_path(store_path), image.id), store.file_path(store_path, image.id)
        try:
            if os.path.exists(staged):
                self._check(context, image, staged)
                os.rename(staged, target)
                files.sync_directory(store_path)
            if not os.path.exists(target) or os.path.getsize(target) != image.size:
                self._requeue(context, image)
                raise exceptions.Conflict(f"The staged data of image {image.id} are gone: stage them again.")
            size = formats.virtual_size(target, image.disk_format, image.container_format)
        except OSError as error:
            LOG.error("The staged data of image %s cannot be imported: %s", image.id, error)
            raise exceptions.ServiceUnavailable("The image's data cannot be stored now.") from error
        changes = {"status": "active", "virtual_size": size, "properties": {FAILED: None}}
        self.conductor.image_update(context, image.id, changes, STAGED)

    def _check(self, context: RequestContext, image: Image, path: str) -> None:
        try:
            formats.check(path, image.disk_format, image.id, image.container_format)
        except exceptions.ImageUnacceptable:
            files.remove(path)
            self._requeue(context, image)
            raise

    def _requeue(self, context: RequestContext, image: Image) -> None:
        changes = {"status": "queued", "size": 0, "checksum": "", "md5": "", "properties": {FAILED: STORE}}
        self.conductor.image_update(context, image.id, changes, STAGED)

    # --- downloads

    def _load(self, context: RequestContext, image: Image, url: Any) -> None:
        """Accept a download, which continues after the response."""
        allowed = list(self.conf.image.import_hosts)
        download.target_of(url, allowed)
        limit, floor = self.conf.image.max_upload_mb * 1024**2, self.conf.image.min_free_mb * 1024**2
        upload = uploads.Upload(self.conductor, context, self.store_path, image, limit, floor, _refused)
        reserved = {
            "status": "saving",
            "size": uploads.first_reservation(None, limit),
            "properties": {FAILED: None},
        }
        deadline = time.monotonic() + TIMING.api.upload
        if not self._downloads.acquire(blocking=False):
            raise exceptions.ServiceUnavailable("As many images as possible are being imported. Try again later.")
        try:
            upload.image = self.conductor.image_update(context, image.id, reserved, "queued")
            threading.Thread(
                target=self._download, args=(context, upload, str(url), allowed, deadline), name="import", daemon=True
            ).start()
        except BaseException:
            self._downloads.release()
            raise

    def _download(
        self, context: RequestContext, upload: uploads.Upload, url: str, allowed: list[str], deadline: float
    ) -> None:
        try:
            self._receive_download(context, upload, url, allowed, deadline)
        finally:
            self._downloads.release()

    def _receive_download(
        self, context: RequestContext, upload: uploads.Upload, url: str, allowed: list[str], deadline: float
    ) -> None:
        image_id = upload.image.id
        try:
            with download.opened(url, allowed, deadline) as (body, length):
                result = uploads.receive_now(upload, body, length)
        except (OSError, http.client.HTTPException, exceptions.NovaLiteException) as error:
            result = upload.respond(OSError(str(error)))
            LOG.warning("Image %s cannot be imported: %s", image_id, error)
        if result.status_code >= 400:
            LOG.warning("The import of image %s has failed: %s", image_id, result.text)
            try:
                self.conductor.image_update(context, image_id, {"properties": {FAILED: STORE}}, "queued")
            except exceptions.NovaLiteException as error:
                LOG.warning("Image %s does not show that its import has failed: %s", image_id, error)


def _refused(error: Exception) -> webob.Response:
    code = error.code if isinstance(error, exceptions.NovaLiteException) else 500
    return webob.Response(status=code, text=str(error))
