"""Data of images: uploads, staged data, and downloads."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable

import webob
import webob.exc
from webob.static import FileIter

from nova_lite.api.http import transfers, wsgi
from nova_lite.api.http.rest import ServiceRequest, route
from nova_lite.api.http.wsgi import Response
from nova_lite.api.image import imports, pieces, uploads, views
from nova_lite.api.image.resource import ImageResource
from nova_lite.base import exceptions
from nova_lite.image import store
from nova_lite.objects import Image
from nova_lite.policies import image_service as policies

LOG = logging.getLogger(__name__)

DATA_TYPE = "application/octet-stream"
_MIB = 1024 * 1024
_ONE = "/images/{id}"


class ImageData(ImageResource):
    """Data of images."""

    @route("PUT", f"{_ONE}/file", policies.UPLOAD, authorizes=True, streams=True, status=204)
    def upload(self, req: ServiceRequest, id: str) -> webob.Response:
        """Receive the data of a queued image.

        The image is ``saving`` during the upload, so a second upload at the same time is refused. After a failure it is
        ``queued`` again. Its size is reserved in the quota meanwhile: the announced length, or growing steps. A large
        body arrives after this method has returned (`nova_lite.api.http.transfers`).
        """
        return self._receive(req, self.changeable(req, id), uploads.Upload, self.store_path)

    @route("PUT", f"{_ONE}/stage", policies.UPLOAD, authorizes=True, streams=True, status=204)
    def stage(self, req: ServiceRequest, id: str) -> webob.Response:
        """Receive data that wait for their import. It continues like an upload, but the image is ``uploading`` then.

        With ``Content-Range`` it receives one piece of them (`nova_lite.api.image.pieces`).
        """
        image = self.changeable(req, id)
        try:
            directory = store.prepare_below(self.store_path, imports.STAGING)
        except OSError as error:
            LOG.error("Data cannot be staged: %s", error)
            raise exceptions.ServiceUnavailable("The image's data cannot be stored now.") from error
        header = req.headers.get("Content-Range")
        if header is None:
            return self._receive(req, image, imports.StagedUpload, directory)
        piece = pieces.parse(header, req.content_length)
        return self._receive(req, image, functools.partial(pieces.StagedPiece, piece), directory, piece)

    def _receive(
        self,
        req: ServiceRequest,
        image: Image,
        make: Callable[..., uploads.Upload],
        directory: str,
        piece: pieces.Piece | None = None,
    ) -> webob.Response:
        if req.content_type != DATA_TYPE:
            raise webob.exc.HTTPUnsupportedMediaType(explanation=f"Content-Type must be {DATA_TYPE}.")
        if not image.disk_format or not image.container_format:
            raise exceptions.Conflict("Properties disk_format, container_format must be set prior to saving data.")
        limit, floor = self.conf.image.max_upload_mb * _MIB, self.conf.image.min_free_mb * _MIB
        receive = req.environ.get(transfers.RECEIVE)
        is_chunked = req.content_length is None and (receive is not None or req.headers.get("Transfer-Encoding"))
        length = None if is_chunked else req.content_length or 0
        total = piece.total if piece else length
        uploads.check_length(total, limit)
        self.app.part(imports.Imports).sweep_if_due()
        expected = pieces.status_before(image, piece, directory) if piece else "queued"
        self._require_room((total or 0) - (piece.first if piece else 0), floor)
        upload = make(
            self.conductor, req.context, directory, image, limit, floor, functools.partial(self.app.fault_of, req)
        )
        if receive is not None:
            receive(upload, req.context.project_id)
        # Its formats cannot change while it is saving.
        reserved = {"status": "saving", "size": uploads.first_reservation(total, limit)}
        upload.image = self.conductor.image_update(req.context, image.id, reserved, expected)
        if receive is not None:
            return webob.Response(status=202)
        return uploads.receive_now(upload, req.environ["wsgi.input"], length)

    def _require_room(self, length: int, floor: int) -> None:
        try:
            store.require_room(self.store_path, length, floor)
        except OSError as error:
            LOG.error("An upload is refused: %s", error)
            raise exceptions.ServiceUnavailable("The image's data cannot be stored now.") from error

    @route("GET", f"{_ONE}/file", policies.DOWNLOAD)
    def download(self, req: ServiceRequest, id: str) -> webob.Response:
        image = self.conductor.image_get(req.context, id)
        if image.status == "deactivated" and not req.context.is_admin:
            raise exceptions.Forbidden(f"Image {image.id} is deactivated: only admins may download its data.")
        if image.status not in views.WITH_DATA:
            return wsgi.to_response(Response(status=204))
        try:
            file = open(store.file_path(self.store_path, image.id), "rb")  # noqa: SIM115 - the response closes it
        except OSError as error:
            LOG.error("The file of image %s cannot be read: %s", image.id, error)
            raise exceptions.NotFound(f"Image {image.id} has no data.") from error
        # The base class of responses serves ranges of the data.
        response = webob.Response(status=200, content_type=DATA_TYPE, charset=None, conditional_response=True)
        response.accept_ranges = "bytes"
        if image.md5 and req.range is None:
            response.headers["Content-MD5"] = image.md5
        response.app_iter = FileIter(file)
        response.content_length = os.fstat(file.fileno()).st_size
        return response
