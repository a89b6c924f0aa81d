"""``/servers/{server_id}/diagnostics`` and ``topology``: what is known of a server on its host."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import diagnostics as views
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, Route, declares
from nova_lite.policies import servers as policies


class Diagnostics(Extension):
    alias = "os-server-diagnostics"
    title = "Diagnostics and topology of a server"
    routes = (
        Route("GET", "/servers/{server_id}/diagnostics", "show"),
        Route("GET", "/servers/{server_id}/topology", "topology", since=Change.TOPOLOGY),
    )

    @declares(policies.DIAGNOSTICS, query=queries.NOTHING, answer=("memory", "memory_details"), faults=(409,))
    def show(self, req: Request, server_id: str) -> Response:
        instance, found = self.compute.get_diagnostics(req.context, server_id)
        if req.has(Change.STANDARD_DIAGNOSTICS):
            return Response(views.standard(instance, found))
        return Response(views.free_form(found))

    @declares(policies.TOPOLOGY, query=queries.NOTHING, answer=("nodes", "pagesize_kb"))
    def topology(self, req: Request, server_id: str) -> Response:
        """A guest that is bound to no NUMA nodes of its host has an empty list."""
        instance = self.conductor.instance_get(req.context, server_id)
        target = {"project_id": instance.project_id, "user_id": instance.user_id}
        return Response(views.topology(instance, with_host=req.allows(policies.TOPOLOGY_HOST, target)))
