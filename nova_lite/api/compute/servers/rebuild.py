"""The server action ``rebuild``: a new disk, from the server's image or another one."""

from __future__ import annotations

from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import server_password
from nova_lite.api.compute.servers import schemas, update, view
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies


class Rebuild(Extension):
    alias = "os-preserve-ephemeral-rebuild"
    title = "Rebuild"
    routes = (action("servers", "rebuild", "rebuild"),)

    @declares(policies.REBUILD, body=schemas.REBUILD, status=202, response="server")
    def rebuild(self, req: Request, id: str) -> Response:
        """Request a rebuild.

        The server keeps its id, its addresses, its host, and all properties that the body does not name.
        """
        body = req.data["rebuild"]
        password = server_password.admin_password(body)
        instance = self.compute.rebuild(req.context, id, {**_payload(req, body), "admin_password": password})
        shown = password if self.conf.api.enable_instance_password else None
        return Response({"server": view.rebuilt(req, instance, shown)}, 202, {"Location": req.link("servers", id)})


def _payload(req: Request, body: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of `nova_lite.conductor.operations.rebuild`, without images and password."""
    if strutils.bool_from_string(body.get("preserve_ephemeral", False)):
        raise exceptions.PreserveEphemeralNotSupported()
    if body.get("trusted_image_certificates"):
        raise exceptions.ValidationError(detail="Image signature verification is not supported here.")
    changes = update.changes_of_body(req, body)
    if "metadata" in body:
        changes["metadata_"] = body["metadata"]
    if "user_data" in body:
        changes["user_data"] = body["user_data"]
    files = {item["path"]: item.get("contents", "") for item in body.get("personality", [])}
    key = {"key_name": body["key_name"]} if "key_name" in body else {}
    return {
        "image_ref": body["imageRef"],
        "changes": changes,
        "injected_files": files,
        "reimage_boot_volume": req.has(Change.VOLUME_REIMAGED),
        **key,
    }
