"""The action by which an admin sets a server's state by hand."""

from __future__ import annotations

from nova_lite.api.compute.schemas import server_parts as schemas
from nova_lite.api.wsgi import Action, Answer, Extension, Request, declares
from nova_lite.policies import servers as policies


class ResetState(Extension):
    alias = "os-admin-actions"
    title = "Reset the state of a server"
    actions = (Action("servers", "os-resetState", "reset_state"),)

    @declares(policies.RESET_STATE, body=schemas.RESET_STATE, status=202)
    def reset_state(self, req: Request, id: str) -> Answer:
        """The states of the body have the names that they have inside."""
        req.authorize(policies.RESET_STATE)
        state = req.validated(schemas.RESET_STATE)["os-resetState"]["state"]
        self.conductor.instance_reset_state(req.context, id, state)
        return Answer(status=202)
