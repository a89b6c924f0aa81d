"""The actions of servers that only have an operation accepted: the rows of `nova_lite.operations` that say how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nova_lite.api.compute import live_migrations
from nova_lite.api.compute.schemas import live_migration, resize
from nova_lite.api.compute.schemas import servers as schemas
from nova_lite.api.http.microversions import Versioned
from nova_lite.api.http.validation import Schema
from nova_lite.api.http.wsgi import Declaration, Extension, Request, Response, action
from nova_lite.operations import OPERATIONS

#: By kind, of those whose body says something: its schema, and the operation's payload made of what it says.
BODIES: dict[str, tuple[Schema | Versioned[Schema], Callable[[Request, Any], dict[str, Any]]]] = {
    "changePassword": (schemas.CHANGE_PASSWORD, lambda req, body: {"admin_password": body["adminPass"]}),
    "reboot": (schemas.REBOOT, lambda req, body: {"reboot_type": body["type"].upper()}),
    "resize": (resize.RESIZE, lambda req, body: resize_payload(body)),
    "live-migration": (live_migration.MIGRATE_LIVE, live_migrations.payload),
    "migrate": (resize.MIGRATE, lambda req, body: {"host": (body or {}).get("host")}),
}

#: Answered with another status than 202.
STATUS = {"confirmResize": 204}


def resize_payload(body: dict[str, Any]) -> dict[str, Any]:
    config = body.get("OS-DCF:diskConfig")
    return {"flavor_id": str(body["flavorRef"]), "auto_disk_config": None if config is None else config == "AUTO"}


#: Kinds of operations whose rows name an action that has a handler of its own, because it answers something.
ELSEWHERE = ("rescue",)

ROWS = [row for row in OPERATIONS.values() if row.action and row.rule and row.kind not in ELSEWHERE]


class ServerActions(Extension):
    alias = "os-server-start-stop"
    title = "Server actions"
    routes = tuple(
        action(
            "servers",
            str(row.action),
            "accept",
            since=row.microversion,
            declared=Declaration(
                str(row.rule),
                body=BODIES[row.kind][0] if row.kind in BODIES else None,
                status=STATUS.get(row.kind, 202),
            ),
        )
        for row in ROWS
    )

    def accept(self, req: Request, id: str) -> Response:
        name = str(req.route.action)
        row = next(row for row in ROWS if row.action == name)
        payload = BODIES[row.kind][1](req, req.data[name]) if row.kind in BODIES else {}
        self.compute.accept(req.context, id, row.kind, payload)
        return Response(status=STATUS.get(row.kind, 202))
