"""The server action ``rescue``: boots a server from a rescue image."""

from __future__ import annotations

from nova_lite.api.compute import schema_types as t
from nova_lite.api.compute import server_password
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.operations import RESCUE

# --- schemas

RESCUE_BODY = t.wrapped(
    "rescue",
    {**t.strict({"adminPass": {"type": "string"}, "rescue_image_ref": t.UUID}), "type": ["object", "null"]},
)


# --- routes


class Rescue(Extension):
    alias = "os-rescue"
    title = "Rescue"
    routes = (action("servers", str(RESCUE.action), "rescue"),)

    @declares(str(RESCUE.rule), body=RESCUE_BODY, response="adminPass")
    def rescue(self, req: Request, id: str) -> Response:
        """Request a rescue, from the given image or from the server's own."""
        body = req.data["rescue"] or {}
        password = server_password.admin_password(body)
        allow_bfv_rescue = req.has(Change.RESCUE_OF_VOLUMES)
        self.compute.rescue(req.context, id, body.get("rescue_image_ref"), password, allow_bfv_rescue=allow_bfv_rescue)
        return Response({"adminPass": password} if self.conf.api.enable_instance_password else {})
