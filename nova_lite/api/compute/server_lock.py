"""Actions that lock a server against its own project, and unlock it."""

from __future__ import annotations

from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.policies import servers as policies


class ServerLock(Extension):
    alias = "os-lock-server"
    title = "Lock and unlock"
    routes = (
        action("servers", "lock", "lock"),
        action("servers", "unlock", "unlock"),
    )

    @declares(policies.LOCK, body=schemas.LOCK, status=202)
    def lock(self, req: Request, id: str) -> Response:
        options = req.data["lock"]
        reason = (options or {}).get("locked_reason") if req.has(Change.LOCKED_REASON) else None
        self.conductor.instance_lock(req.context, id, reason)
        return Response(status=202)

    @declares(policies.UNLOCK, body=schemas.UNLOCK, status=202)
    def unlock(self, req: Request, id: str) -> Response:
        self.conductor.instance_unlock(req.context, id, req.allows(policies.UNLOCK_OVERRIDE))
        return Response(status=202)
