"""Putting servers away as images, and getting them back."""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.api.compute.schemas import shelve as schemas
from nova_lite.api.compute.server_images import make
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.image import snapshots
from nova_lite.policies import servers as policies


class Shelve(Extension):
    alias = "os-shelve"
    title = "Shelve"
    routes = (
        action("servers", "shelve", "shelve"),
        action("servers", "shelveOffload", "shelve_offload"),
        action("servers", "unshelve", "unshelve"),
    )

    @declares(policies.SHELVE, body=schemas.SHELVE, status=202)
    def shelve(self, req: Request, id: str) -> Response:
        make(self.compute, req, id, operations.SHELVE.kind, None, snapshots.SNAPSHOT, {})
        return Response(status=202)

    @declares(policies.SHELVE_OFFLOAD, body=schemas.SHELVE_OFFLOAD, status=202)
    def shelve_offload(self, req: Request, id: str) -> Response:
        self.compute.accept(req.context, id, operations.SHELVE_OFFLOAD.kind, {})
        return Response(status=202)

    @declares(policies.UNSHELVE, body=schemas.UNSHELVE, status=202)
    def unshelve(self, req: Request, id: str) -> Response:
        wanted: dict[str, Any] = {}
        if req.has(Change.UNSHELVE_TO_ZONE):
            wanted = dict(req.data["unshelve"] or {})
        if "host" in wanted:
            req.authorize(policies.UNSHELVE_TO_HOST)
        self.compute.accept(req.context, id, operations.UNSHELVE.kind, wanted)
        return Response(status=202)
