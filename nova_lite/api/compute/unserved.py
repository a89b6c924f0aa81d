"""What the compute API has and this cloud has not: answered with 501 and a clear sentence, not as unknown.

A server that the asker does not have is a 404 here as everywhere.
"""

from __future__ import annotations

from nova_lite import exception
from nova_lite.api.compute import unserved_words as words
from nova_lite.api.microversions import Change
from nova_lite.api.wsgi import NOT_SERVED, Answer, Extension, Request, Route, action, declares
from nova_lite.operations import OPERATIONS

#: Nova's server actions, and the last version that has them; those of `nova_lite.operations` are served all the same.
ACTIONS: dict[str, int | None] = {
    **dict.fromkeys(
        (
            *("addSecurityGroup", "removeSecurityGroup", "confirmResize"),
            *("migrate", "os-migrateLive"),
            *("pause", "resize", "resume", "revertResize"),
            *("suspend", "unpause"),
        )
    ),
    **dict.fromkeys(
        ("addFixedIp", "removeFixedIp", "addFloatingIp", "removeFloatingIp"), Change.NO_ADDRESS_ACTIONS - 1
    ),
}

_ACCEPTED = {row.action for row in OPERATIONS.values()}

_SERVER = "/servers/{server_id}"

_ATTACHMENT = _SERVER + "/os-volume_attachments/{id}"

_LAST_PROXY = Change.NO_PROXIES - 1
_LAST_BOOT = Change.NO_VOLUMES_BOOT - 1

#: Verbs and URLs, what they are about, and the first and the last version that have them.
ROUTES: tuple[tuple[str, str, str, int, int | None], ...] = (
    ("POST", _SERVER + "/os-interface", "Changing a server's interfaces", 1, None),
    ("DELETE", _SERVER + "/os-interface/{port_id}", "Changing a server's interfaces", 1, None),
    ("POST", _SERVER + "/os-volume_attachments", "Volumes", 1, None),
    ("GET PUT DELETE", _ATTACHMENT, "Volumes", 1, None),
    ("POST", "/os-assisted-volume-snapshots", "Volumes", 1, None),
    ("DELETE", "/os-assisted-volume-snapshots/{id}", "Volumes", 1, None),
    ("GET POST", "/os-volumes_boot", "Booting from volumes", 1, _LAST_BOOT),
    ("GET", "/os-volumes_boot/detail", "Booting from volumes", 1, _LAST_BOOT),
    ("GET PUT DELETE", "/os-volumes_boot/{id}", "Booting from volumes", 1, _LAST_BOOT),
    ("POST", "/os-volumes_boot/{id}/action", "Booting from volumes", 1, _LAST_BOOT),
    ("GET POST", "/os-baremetal-nodes", "Bare metal", 1, _LAST_PROXY),
    ("GET DELETE", "/os-baremetal-nodes/{id}", "Bare metal", 1, _LAST_PROXY),
    ("POST", "/os-baremetal-nodes/{id}/action", "Bare metal", 1, _LAST_PROXY),
    ("POST", "/os-floating-ips", "A floating address", 1, _LAST_PROXY),
    ("DELETE", "/os-floating-ips/{id}", "A floating address", 1, _LAST_PROXY),
    ("POST", "/os-security-groups", "Changing security groups", 1, _LAST_PROXY),
    ("PUT DELETE", "/os-security-groups/{id}", "Changing security groups", 1, _LAST_PROXY),
    ("POST", "/os-security-group-rules", "Changing security groups", 1, _LAST_PROXY),
    ("DELETE", "/os-security-group-rules/{id}", "Changing security groups", 1, _LAST_PROXY),
    ("POST", "/os-volumes", "A volume", 1, _LAST_PROXY),
    ("DELETE", "/os-volumes/{id}", "A volume", 1, _LAST_PROXY),
    ("POST", "/os-snapshots", "A snapshot of a volume", 1, _LAST_PROXY),
    ("DELETE", "/os-snapshots/{id}", "A snapshot of a volume", 1, _LAST_PROXY),
)


class Unserved(Extension):
    alias = "os-unserved"
    title = "What is answered with 501"
    routes = (
        *(
            Route(verb, path, "refuse", since, until)
            for verbs, path, _, since, until in ROUTES
            for verb in verbs.split()
        ),
        *(
            action("servers", name, "refuse_action", until=until)
            for name, until in ACTIONS.items()
            if name not in _ACCEPTED
        ),
    )

    @declares(NOT_SERVED, status=501)
    def refuse_action(self, req: Request, id: str) -> Answer:
        self.conductor.instance_get(req.context, id)
        name = str(req.route.action)
        asked = words.ACTIONS.get(name, words.Words("This"))
        raise _refusal(f"{asked.what} (the server action {name})", asked.instead)

    @declares(NOT_SERVED, status=501)
    def refuse(self, req: Request, **variables: str) -> Answer:
        if "server_id" in variables:
            self.conductor.instance_get(req.context, variables["server_id"])
        what = next(what for _, path, what, _, _ in ROUTES if path == req.route.path)
        raise _refusal(what, words.INSTEAD[what])


def _refusal(what: str, instead: str) -> exception.NotServed:
    return exception.NotServed(what=what, instead=f" {instead}" if instead else "")
