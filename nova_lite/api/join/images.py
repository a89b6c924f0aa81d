"""Images for hosts that joined: they read the store, and send the images that they make of servers.

A host signs its requests (`nova_lite.base.host_requests`). It may read each image whose id it knows, and write the
images that an open action or a volume's task makes on it.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time

import webob
import webob.exc
from webob.static import FileIter

from nova_lite.api.http import transfers, wsgi
from nova_lite.api.image import uploads
from nova_lite.base import exceptions, host_requests
from nova_lite.base.context import get_admin_context
from nova_lite.image import formats, store
from nova_lite.objects import Image
from nova_lite.rpc import keys
from nova_lite.rpc.keys import TrustedKeys

LOG = logging.getLogger(__name__)

DATA_TYPE = "application/octet-stream"
_MIB = 1024**2
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")


class HostUpload(uploads.Upload):
    """Data of an image that a host makes. It stays ``saving`` until the conductor has heard that the host is done."""

    final_status = "saving"

    def respond(self, error: Exception | None) -> webob.Response:
        response = super().respond(error)
        return no_room() if self._disk_error is not None else response


class HostImages:
    """Handlers of ``GET`` and ``PUT`` for ``/v1/images/ID``."""

    def __init__(self, services: wsgi.ApiServices) -> None:
        self._services = services
        self._conf = services.conf
        self._lock = threading.Lock()
        self._trusted: TrustedKeys | None = None

    def respond(self, req: webob.Request, image_id: str) -> webob.Response:
        """Serve a request that a trusted compute host has signed. Raises `Unauthorized` for any other."""
        host = self._host(req)
        if self._conf.image.backend != "local" or not _ID.fullmatch(image_id):
            raise exceptions.NotFound("This store has no such image.")
        try:
            return self._download(image_id) if req.method == "GET" else self._upload(req, host, image_id)
        except webob.exc.HTTPException as error:
            return fault_of(error)

    # --- who it is

    def _host(self, req: webob.Request) -> str:
        signature = host_requests.parse(req.headers.get("Authorization", ""))
        found = self._keys().find(signature.key_id) if signature is not None else None
        if signature is None or found is None:
            raise exceptions.Unauthorized("A host signs this request with the key of its messages.")
        trusted, key = found
        now = time.time()
        text = host_requests.signed_text(req.method, req.path_info, req.content_length or 0, signature.sent)
        if trusted.role != keys.COMPUTE or not trusted.is_valid(now, host_requests.SKEW):
            raise exceptions.Unauthorized("The key of this request is not that of a compute host, or has ended.")
        if not key.verifies(signature.value, text):
            raise exceptions.Unauthorized("The signature of this request is wrong.")
        if abs(now - signature.sent) > host_requests.SKEW:
            raise exceptions.Unauthorized(f"The clock of {trusted.host} differs from the controller's: run NTP.")
        return trusted.host

    def _keys(self) -> TrustedKeys:
        with self._lock:
            if self._trusted is None:
                directory = self._conf.rpc.keys_directory
                if not directory:
                    raise exceptions.Unauthorized("This cloud has no keys of hosts ([rpc] keys_directory).")
                self._trusted = TrustedKeys(directory, LOG.error)
            return self._trusted

    # --- data

    def _download(self, image_id: str) -> webob.Response:
        try:
            descriptor = formats.open_regular(store.file_path(self._conf.image.store_path, image_id))
        except OSError as error:
            LOG.warning("The file of image %s cannot be read: %s", image_id, error)
            raise exceptions.NotFound(f"The store has no data of image {image_id}.") from error
        file = os.fdopen(descriptor, "rb")
        response = webob.Response(status=200, content_type=DATA_TYPE, charset=None)
        response.app_iter = FileIter(file)
        response.content_length = os.fstat(file.fileno()).st_size
        return response

    def _upload(self, req: webob.Request, host: str, image_id: str) -> webob.Response:
        """Receive the data. A large body arrives after this method has returned (`nova_lite.api.http.transfers`)."""
        context, options = get_admin_context(), self._conf.image
        if req.content_length is None:
            raise webob.exc.HTTPLengthRequired(explanation="The length of an image has to be announced.")
        image = self._services.conductor.host_image_get(context, host, image_id)
        if image.status != "saving":
            raise exceptions.Conflict(f"Image {image_id} is {image.status}, not saving.")
        uploads.check_length(req.content_length, options.max_upload_mb * _MIB)
        try:
            store.require_room(options.store_path, req.content_length, options.min_free_mb * _MIB)
        except OSError as error:
            LOG.error("Image %s of host %s is refused: %s", image_id, host, error)
            return no_room()
        upload = self._receiver(image)
        receive = req.environ.get(transfers.RECEIVE)
        if receive is not None:
            receive(upload, f"host {host}")
        reserved = {"size": max(1, req.content_length)}
        upload.image = self._services.conductor.image_update(context, image_id, reserved, "saving")
        if receive is not None:
            return webob.Response(status=202)
        return uploads.receive_now(upload, req.environ["wsgi.input"], req.content_length)

    def _receiver(self, image: Image) -> HostUpload:
        options = self._conf.image
        limit, floor = options.max_upload_mb * _MIB, options.min_free_mb * _MIB
        conductor, context = self._services.conductor, get_admin_context()
        return HostUpload(conductor, context, options.store_path, image, limit, floor, fault_of)


def no_room() -> webob.Response:
    """Return a refusal after which a host gives up, unlike that of a service which is away."""
    return refusal(507, "The store cannot keep this image: its disk is full, or fails.")


def fault_of(error: Exception) -> webob.Response:
    """Return the response to an error."""
    if isinstance(error, webob.exc.HTTPException):
        return refusal(error.code, str(error.explanation))
    if isinstance(error, exceptions.NovaLiteException) and error.code != 500:
        return refusal(error.code, error.message)
    LOG.error("Unexpected error with an image of a host", exc_info=error)
    return refusal(500, "An unexpected error kept the store from receiving the image.")


def refusal(code: int, message: str) -> webob.Response:
    return webob.Response(
        status=code, json_body={"error": {"code": code, "message": message}}, content_type="application/json"
    )
