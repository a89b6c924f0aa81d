"""The actions of servers that only have an operation accepted: the rows of `nova_lite.operations` that say how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.microversions import Versioned
from nova_lite.api.validation import Schema
from nova_lite.api.wsgi import Answer, Declaration, Extension, Request, action
from nova_lite.operations import OPERATIONS

#: By kind, of those whose body says something: its schema, and the operation's payload made of what it says.
BODIES: dict[str, tuple[Schema | Versioned[Schema], Callable[[Request, Any], dict[str, Any]]]] = {
    "reboot": (schemas.REBOOT, lambda req, body: {"reboot_type": body["type"].upper()}),
}


class ServerActions(Extension):
    alias = "os-server-start-stop"
    title = "Server actions"
    #: Nova's extensions are named in its rules: ``os_compute_api:<alias>:<action>``.
    includes = tuple(sorted({row.rule.split(":")[1] for row in OPERATIONS.values() if row.rule} - {"servers"}))
    routes = tuple(
        action(
            "servers",
            row.action,
            "accept",
            declared=Declaration(row.rule, body=BODIES[row.kind][0] if row.kind in BODIES else None, status=202),
        )
        for row in OPERATIONS.values()
        if row.action and row.rule
    )

    def accept(self, req: Request, id: str) -> Answer:
        name = str(req.route.action)
        row = next(row for row in OPERATIONS.values() if row.action == name)
        payload = BODIES[row.kind][1](req, req.data[name]) if row.kind in BODIES else {}
        self.compute.accept(req.context, id, row.kind, payload)
        return Answer(status=202)
