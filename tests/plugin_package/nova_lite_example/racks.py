"""An API extension as any developer may write it: it adds to the servers' responses, and an action of its own."""

from __future__ import annotations

from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares, extends
from nova_lite.policies import servers as policies

#: Key of a server's metadata, which the action sets.
_KEY = "example:rack"


class Racks(Extension):
    """Each server has a rack, as a label that its users set."""

    alias = "example-racks"
    title = "Racks"
    routes = (action("servers", "exampleSetRack", "set_rack"),)

    @declares(policies.UPDATE, body={"type": "object", "properties": {"exampleSetRack": {"type": "string"}}})
    def set_rack(self, req: Request, id: str) -> Response:
        rack: str = req.data["exampleSetRack"]
        self.conductor.instance_metadata_change(req.context, id, {_KEY: rack}, False)
        return Response({"rack": rack})

    @extends("GET", "/servers/{id}")
    def add_rack(self, req: Request, response: Response, id: str) -> None:
        server = response.body["server"]
        server[_KEY] = server["metadata"].get(_KEY)
