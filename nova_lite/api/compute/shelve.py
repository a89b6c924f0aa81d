"""Server actions ``shelve``, ``shelveOffload`` and ``unshelve``: store a server as an image, and restore it."""

from __future__ import annotations

from typing import Any

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import server_images
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.image import snapshots
from nova_lite.policies import servers as policies

# --- schemas

SHELVE_BODY = t.wrapped("shelve", {})
SHELVE_OFFLOAD_BODY = t.wrapped("shelveOffload", {})

_ZONE: t.Schema = {"availability_zone": t.NAME}
_ZONE_OR_ANY: t.Schema = {"availability_zone": {"oneOf": [{"type": "null"}, t.NAME]}}

UNSHELVE_BODY = Versioned(
    {
        1: t.wrapped("unshelve", {}),
        Change.UNSHELVE_TO_ZONE: t.wrapped(
            "unshelve", {**t.strict(_ZONE, ("availability_zone",)), "type": ["object", "null"]}
        ),
        Change.UNSHELVE_TO_HOST: t.wrapped(
            "unshelve", {**t.strict({**_ZONE_OR_ANY, "host": t.HOST}, minProperties=1), "type": ["object", "null"]}
        ),
    }
)


# --- routes


class Shelve(Extension):
    alias = "os-shelve"
    title = "Shelve"
    routes = (
        action("servers", "shelve", "shelve"),
        action("servers", "shelveOffload", "shelve_offload"),
        action("servers", "unshelve", "unshelve"),
    )

    @declares(policies.SHELVE, body=SHELVE_BODY, status=202)
    def shelve(self, req: Request, id: str) -> Response:
        server_images.create_image(
            self.compute,
            req,
            id,
            kind=operations.SHELVE.kind,
            name=None,
            image_type=snapshots.SNAPSHOT,
            properties={},
        )
        return Response(status=202)

    @declares(policies.SHELVE_OFFLOAD, body=SHELVE_OFFLOAD_BODY, status=202)
    def shelve_offload(self, req: Request, id: str) -> Response:
        self.compute.accept(req.context, id, operations.SHELVE_OFFLOAD.kind, {})
        return Response(status=202)

    @declares(policies.UNSHELVE, body=UNSHELVE_BODY, status=202)
    def unshelve(self, req: Request, id: str) -> Response:
        destination: dict[str, Any] = {}
        if req.has(Change.UNSHELVE_TO_ZONE):
            destination = dict(req.data["unshelve"] or {})
        if "host" in destination:
            req.authorize(policies.UNSHELVE_TO_HOST)
        self.compute.accept(req.context, id, operations.UNSHELVE.kind, destination)
        return Response(status=202)
