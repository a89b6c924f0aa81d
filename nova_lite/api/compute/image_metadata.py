"""``/images/{id}/metadata`` until 2.38: an image's properties, for clients that use the compute API."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import images as policies

_LAST = Change.NO_IMAGE_METADATA - 1
_PATH = "/images/{image_id}/metadata"
_MAXIMUM = 128


class ImageMetadata(Extension):
    alias = "image-metadata"
    title = "Image metadata"
    routes = (
        Route("GET", _PATH, "index", until=_LAST),
        Route("POST", _PATH, "create", until=_LAST),
        Route("PUT", _PATH, "update_all", until=_LAST),
        Route("GET", _PATH + "/{key}", "show", until=_LAST),
        Route("PUT", _PATH + "/{key}", "update", until=_LAST),
        Route("DELETE", _PATH + "/{key}", "delete", until=_LAST),
    )

    @declares(policies.METADATA_SHOW, response="metadata")
    def index(self, req: Request, image_id: str) -> Response:
        return Response({"metadata": self._get(req, image_id)})

    @declares(policies.METADATA_SHOW, response="meta")
    def show(self, req: Request, image_id: str, key: str) -> Response:
        return Response({"meta": {key: self._existing(req, image_id, key)}})

    @declares(policies.METADATA_CHANGE, body=t.METADATA_BODY, response="metadata")
    def create(self, req: Request, image_id: str) -> Response:
        new = req.data["metadata"]
        return Response({"metadata": self._change(req, image_id, self._get(req, image_id), new)})

    @declares(policies.METADATA_CHANGE, body=t.METADATA_BODY, response="metadata")
    def update_all(self, req: Request, image_id: str) -> Response:
        new = req.data["metadata"]
        removed = dict.fromkeys(self._get(req, image_id).keys() - new.keys())
        return Response({"metadata": self._change(req, image_id, {}, new, removed)})

    @declares(policies.METADATA_CHANGE, body=t.METADATA_ITEM_BODY, response="meta")
    def update(self, req: Request, image_id: str, key: str) -> Response:
        meta = req.data["meta"]
        if key not in meta:
            raise exceptions.ValidationError(detail="Request body and URI mismatch")
        self._change(req, image_id, self._get(req, image_id), meta)
        return Response({"meta": meta})

    @declares(policies.METADATA_CHANGE, status=204)
    def delete(self, req: Request, image_id: str, key: str) -> Response:
        self._existing(req, image_id, key)
        self.images.change_properties(req.context, image_id, {key: None})
        return Response(status=204)

    def _get(self, req: Request, image_id: str) -> dict[str, str]:
        return self.images.get(req.context, image_id).properties

    def _existing(self, req: Request, image_id: str, key: str) -> str:
        metadata = self._get(req, image_id)
        if key not in metadata:
            raise exceptions.MetadataItemNotFound()
        return metadata[key]

    def _change(
        self,
        req: Request,
        image_id: str,
        old: dict[str, str],
        new: dict[str, str],
        removed: dict[str, None] | None = None,
    ) -> dict[str, str]:
        """Set the properties ``new``, keep ``old``, and remove ``removed``. Return all properties of the image."""
        if len({**old, **new}) > _MAXIMUM:
            raise exceptions.Forbidden("Image metadata limit exceeded")
        return self.images.change_properties(req.context, image_id, {**(removed or {}), **new}).properties
