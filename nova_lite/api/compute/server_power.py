"""Actions that switch a server on and off, and those that are known but not done here (yet)."""

from __future__ import annotations

from nova_lite import exception
from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.wsgi import Action, Answer, Extension, Request
from nova_lite.policies import servers as policies


class ServerPower(Extension):
    alias = "os-server-start-stop"
    title = "Start, stop and reboot"
    actions = (
        Action("servers", "os-start", "start"),
        Action("servers", "os-stop", "stop"),
        Action("servers", "reboot", "reboot"),
    )

    def start(self, req: Request, id: str) -> Answer:
        req.authorize(policies.START)
        self.compute.start(req.context, id)
        return Answer(status=202)

    def stop(self, req: Request, id: str) -> Answer:
        req.authorize(policies.STOP)
        self.compute.stop(req.context, id)
        return Answer(status=202)

    def reboot(self, req: Request, id: str) -> Answer:
        req.authorize(policies.REBOOT)
        body = req.validated(schemas.REBOOT)
        self.compute.reboot(req.context, id, body["reboot"]["type"].upper())
        return Answer(status=202)


#: Actions of the compute API that this cloud does not carry out, and the last version that has them.
NOT_SERVED: dict[str, int | None] = {
    **dict.fromkeys(
        (
            *("addFixedIp", "removeFixedIp", "addFloatingIp", "removeFloatingIp"),
            *("addSecurityGroup", "removeSecurityGroup", "changePassword", "confirmResize", "createBackup"),
            *("createImage", "evacuate", "injectNetworkInfo", "lock", "migrate", "os-migrateLive", "os-resetState"),
            *("pause", "rebuild", "rescue", "resetNetwork", "resize", "restore", "resume", "revertResize", "shelve"),
            *("shelveOffload", "suspend", "trigger_crash_dump", "unlock", "unpause", "unrescue", "unshelve"),
        )
    ),
    **dict.fromkeys(
        ("os-getVNCConsole", "os-getSPICEConsole", "os-getRDPConsole", "os-getSerialConsole", "os-getMKSConsole"), 5
    ),
}


class UnservedActions(Extension):
    alias = "os-unserved-actions"
    title = "Actions that are answered with 501"
    actions = tuple(Action("servers", name, "refuse", until=until) for name, until in NOT_SERVED.items())

    def refuse(self, req: Request, id: str) -> Answer:
        name = next(iter(req.json_value))
        raise exception.NotServed(what=f"The server action {name}")
