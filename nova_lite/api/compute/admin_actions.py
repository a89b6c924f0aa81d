"""Actions by which admins set a server's state by hand, and have it told its addresses."""

from __future__ import annotations

from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.base import exceptions
from nova_lite.policies import servers as policies


class AdminActions(Extension):
    alias = "os-admin-actions"
    title = "Admin's actions on servers"
    routes = (
        action("servers", "os-resetState", "reset_state"),
        action("servers", "injectNetworkInfo", "inject_network_info"),
    )

    @declares(policies.RESET_STATE, body=schemas.RESET_STATE, status=202)
    def reset_state(self, req: Request, id: str) -> Response:
        """The states of the body have the names that they have inside."""
        state = req.data["os-resetState"]["state"]
        self.conductor.instance_reset_state(req.context, id, state)
        return Response(status=202)

    @declares(policies.INJECT_NETWORK_INFO, status=202)
    def inject_network_info(self, req: Request, id: str) -> Response:
        """In every state, as in Nova; nothing is left to do, since guests ask for their addresses (DHCP) or read them
        from the config drive."""
        instance = self.conductor.instance_get(req.context, id)
        if instance.locked and not req.context.is_admin:
            raise exceptions.InstanceIsLocked(instance_id=id)
        return Response(status=202)
