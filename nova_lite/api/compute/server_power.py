"""Actions that switch a server on and off."""

from __future__ import annotations

from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.wsgi import Action, Answer, Extension, Request, declares
from nova_lite.policies import servers as policies


class ServerPower(Extension):
    alias = "os-server-start-stop"
    title = "Start, stop and reboot"
    actions = (
        Action("servers", "os-start", "start"),
        Action("servers", "os-stop", "stop"),
        Action("servers", "reboot", "reboot"),
    )

    @declares(policies.START, status=202)
    def start(self, req: Request, id: str) -> Answer:
        req.authorize(policies.START)
        self.compute.start(req.context, id)
        return Answer(status=202)

    @declares(policies.STOP, status=202)
    def stop(self, req: Request, id: str) -> Answer:
        req.authorize(policies.STOP)
        self.compute.stop(req.context, id)
        return Answer(status=202)

    @declares(policies.REBOOT, body=schemas.REBOOT, status=202)
    def reboot(self, req: Request, id: str) -> Answer:
        req.authorize(policies.REBOOT)
        body = req.validated(schemas.REBOOT)
        self.compute.reboot(req.context, id, body["reboot"]["type"].upper())
        return Answer(status=202)
