"""``/servers/{server_id}/diagnostics``: what its hypervisor tells of a running server."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import diagnostics as views
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import servers as policies


class Diagnostics(Extension):
    alias = "os-server-diagnostics"
    title = "Diagnostics of a server"
    routes = (Route("GET", "/servers/{server_id}/diagnostics", "show"),)

    @declares(policies.DIAGNOSTICS, query=queries.NOTHING, answer=("memory", "memory_details"), faults=(409,))
    def show(self, req: Request, server_id: str) -> Answer:
        instance, found = self.compute.get_diagnostics(req.context, server_id)
        if req.has(Change.STANDARD_DIAGNOSTICS):
            return Answer(views.standard(instance, found))
        return Answer(views.free_form(found))
