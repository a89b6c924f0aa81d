"""``/servers/{server_id}/diagnostics`` and ``topology``: what is known of a server on its host."""

from __future__ import annotations

from nova_lite.api.compute.schemas import queries
from nova_lite.api.compute.views import diagnostics as views
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import Answer, Extension, Request, Route, declares
from nova_lite.policies import servers as policies


class Diagnostics(Extension):
    alias = "os-server-diagnostics"
    title = "Diagnostics and topology of a server"
    routes = (
        Route("GET", "/servers/{server_id}/diagnostics", "show"),
        Route("GET", "/servers/{server_id}/topology", "topology", since=Change.TOPOLOGY),
    )

    @declares(policies.DIAGNOSTICS, query=queries.NOTHING, answer=("memory", "memory_details"), faults=(409,))
    def show(self, req: Request, server_id: str) -> Answer:
        instance, found = self.compute.get_diagnostics(req.context, server_id)
        if req.has(Change.STANDARD_DIAGNOSTICS):
            return Answer(views.standard(instance, found))
        return Answer(views.free_form(found))

    @declares(policies.TOPOLOGY, query=queries.NOTHING, answer=("nodes", "pagesize_kb"))
    def topology(self, req: Request, server_id: str) -> Answer:
        """No guest is bound to NUMA nodes of its host, which is told by an empty list."""
        self.conductor.instance_get(req.context, server_id)
        return Answer({"nodes": [], "pagesize_kb": None})
