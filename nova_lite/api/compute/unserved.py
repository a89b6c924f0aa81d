"""What the compute API has and this cloud has not: answered with 501 and a clear sentence, not as unknown.

A server that the asker does not have is a 404 here as everywhere.
"""

from __future__ import annotations

from nova_lite import exception
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import NOT_SERVED, Action, Answer, Extension, Request, Route, declares

#: Server actions, and the last version that has them.
ACTIONS: dict[str, int | None] = {
    **dict.fromkeys(
        (
            *("addSecurityGroup", "removeSecurityGroup", "changePassword", "confirmResize", "createBackup"),
            *("createImage", "migrate", "os-migrateLive"),
            *("pause", "rebuild", "rescue", "resize", "restore", "resume", "revertResize", "shelve"),
            *("shelveOffload", "suspend", "trigger_crash_dump", "unpause", "unrescue", "unshelve"),
        )
    ),
    **dict.fromkeys(
        ("addFixedIp", "removeFixedIp", "addFloatingIp", "removeFloatingIp"), Change.NO_ADDRESS_ACTIONS - 1
    ),
    **dict.fromkeys(
        ("os-getVNCConsole", "os-getSPICEConsole", "os-getRDPConsole", "os-getSerialConsole", "os-getMKSConsole"),
        Change.NO_CONSOLE_ACTIONS - 1,
    ),
}

_SERVER = "/servers/{server_id}"

#: Verbs and URLs, what they are about, and the first version that has them.
ROUTES: tuple[tuple[str, str, str, int], ...] = (
    ("POST", _SERVER + "/remote-consoles", "A console URL", Change.NO_CONSOLE_ACTIONS),
    ("POST", _SERVER + "/os-interface", "Changing a server's interfaces", 1),
    ("POST", _SERVER + "/os-volume_attachments", "Volumes", 1),
)


class Unserved(Extension):
    alias = "os-unserved"
    title = "What is answered with 501"
    actions = tuple(Action("servers", name, "refuse_action", until=until) for name, until in ACTIONS.items())
    routes = tuple(Route(verb, path, "refuse", since) for verbs, path, _, since in ROUTES for verb in verbs.split())

    @declares(NOT_SERVED, status=501)
    def refuse_action(self, req: Request, id: str) -> Answer:
        self.conductor.instance_get(req.context, id)
        raise exception.NotServed(what=f"The server action {next(iter(req.json_value))}")

    @declares(NOT_SERVED, status=501)
    def refuse(self, req: Request, server_id: str) -> Answer:
        self.conductor.instance_get(req.context, server_id)
        what = {path: what for _, path, what, _ in ROUTES}[req.template]
        raise exception.NotServed(what=what)
