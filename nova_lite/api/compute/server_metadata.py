"""``/servers/{server_id}/metadata``: key-value pairs that users attach to a server."""

from __future__ import annotations

from typing import Any

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies

_PATH = "/servers/{server_id}/metadata"


class ServerMetadata(Extension):
    alias = "server-metadata"
    title = "Metadata of a server"
    routes = (
        Route("GET", _PATH, "index"),
        Route("POST", _PATH, "create"),
        Route("PUT", _PATH, "update_all"),
        Route("GET", _PATH + "/{key}", "show"),
        Route("PUT", _PATH + "/{key}", "update"),
        Route("DELETE", _PATH + "/{key}", "delete"),
    )

    @declares(policies.METADATA_INDEX, query=t.NO_PARAMETERS, response="metadata")
    def index(self, req: Request, server_id: str) -> Response:
        return Response({"metadata": self.conductor.instance_get(req.context, server_id).metadata})

    @declares(policies.METADATA_CREATE, body=t.METADATA_BODY, response="metadata")
    def create(self, req: Request, server_id: str) -> Response:
        return Response({"metadata": self._change(req, server_id, req.data["metadata"], replace=False)})

    @declares(policies.METADATA_UPDATE_ALL, body=t.METADATA_BODY, response="metadata")
    def update_all(self, req: Request, server_id: str) -> Response:
        return Response({"metadata": self._change(req, server_id, req.data["metadata"], replace=True)})

    @declares(policies.METADATA_SHOW, query=t.NO_PARAMETERS, response="meta")
    def show(self, req: Request, server_id: str, key: str) -> Response:
        metadata = self.conductor.instance_get(req.context, server_id).metadata
        if key not in metadata:
            raise exceptions.MetadataItemNotFound()
        return Response({"meta": {key: metadata[key]}})

    @declares(policies.METADATA_UPDATE, body=t.METADATA_ITEM_BODY, response="meta")
    def update(self, req: Request, server_id: str, key: str) -> Response:
        meta = req.data["meta"]
        if key not in meta:
            raise exceptions.ValidationError(detail="Request body and URI mismatch")
        self._change(req, server_id, meta, replace=False)
        return Response({"meta": meta})

    @declares(policies.METADATA_DELETE, status=204)
    def delete(self, req: Request, server_id: str, key: str) -> Response:
        self.conductor.instance_metadata_delete(req.context, server_id, key)
        return Response(status=204)

    def _change(self, req: Request, server_id: str, metadata: dict[str, str], replace: bool) -> Any:
        return self.conductor.instance_metadata_change(req.context, server_id, metadata, replace)
