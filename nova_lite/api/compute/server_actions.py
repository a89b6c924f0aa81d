"""Server actions without a module of their own: operations, lock and unlock, and the actions of admins.

`ServerActions` serves every operation of `nova_lite.operations` that has an action and a rule. Only operations with a
body have an entry in `BODIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oslo_utils import strutils

from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change, Versioned
from nova_lite.api.http.validation import Schema
from nova_lite.api.http.wsgi import Declaration, Extension, Request, Response, action, declares
from nova_lite.base import exceptions
from nova_lite.operations import OPERATIONS
from nova_lite.policies import servers as policies

# --- schemas

_REASON: t.Schema = {"locked_reason": t.TEXT}
LOCK_BODY = Versioned(
    {
        1: t.wrapped("lock", {}),
        Change.LOCKED_REASON: t.wrapped("lock", {**t.strict(_REASON), "type": ["object", "null"]}),
    }
)
RESET_STATE_BODY = t.wrapped("os-resetState", t.strict({"state": t.one_of("active", "error")}, ("state",)))
UNLOCK_BODY = t.wrapped("unlock", {})
REBOOT_BODY = t.wrapped(
    "reboot",
    t.strict({"type": t.one_of("HARD", "Hard", "hard", "SOFT", "Soft", "soft")}, ("type",)),
)

CHANGE_PASSWORD_BODY = t.wrapped("changePassword", t.strict({"adminPass": {"type": "string"}}, ("adminPass",)))


RESIZE_BODY = t.wrapped(
    "resize", t.strict({"flavorRef": t.FLAVOR_REF, "OS-DCF:diskConfig": t.DISK_CONFIG}, ("flavorRef",))
)

_TO_HOST: t.Schema = {
    "oneOf": [t.strict({"host": {"oneOf": [t.HOST, {"type": "null"}]}}), {"type": "null"}],
}

MIGRATE_BODY = Versioned({1: t.wrapped("migrate", {}), Change.MIGRATE_HOST: t.wrapped("migrate", _TO_HOST)})


_HOST: t.Schema = {"oneOf": [t.HOST, {"type": "null"}]}
_AUTO: t.Schema = {"anyOf": [t.BOOLEAN, {"enum": ["auto"]}]}


def _live(required: tuple[str, ...], **properties: t.Schema) -> t.Schema:
    return t.wrapped("os-migrateLive", t.strict({**properties, "host": _HOST}, (*required, "host")))


MIGRATE_LIVE_BODY = Versioned(
    {
        1: _live(("block_migration", "disk_over_commit"), block_migration=t.BOOLEAN, disk_over_commit=t.BOOLEAN),
        Change.BLOCK_MIGRATION_AUTO: _live(("block_migration",), block_migration=_AUTO),
        Change.LIVE_MIGRATE_FORCE: _live(("block_migration",), block_migration=_AUTO, force=t.BOOLEAN),
        Change.NO_FORCE: _live(("block_migration",), block_migration=_AUTO),
    }
)


# --- routes


def live_migration_payload(req: Request, body: dict[str, Any]) -> dict[str, Any]:
    """Return the operation's payload of ``os-migrateLive``.

    Before 2.30, or with ``force``, a ``host`` bypasses the scheduler's filters; only its free resources count.
    ``block``: whether disks are copied. None: the hosts find out.
    """
    forced = not req.has(Change.LIVE_MIGRATE_FORCE) or strutils.bool_from_string(body.get("force", False))
    block = body["block_migration"]
    return {
        "host": body["host"],
        "forced": forced,
        "block": None if block == "auto" else strutils.bool_from_string(block),
    }


#: Schema, and function from body to payload, of each kind of operation whose action has parameters.
BODIES: dict[str, tuple[Schema | Versioned[Schema], Callable[[Request, Any], dict[str, Any]]]] = {
    "changePassword": (CHANGE_PASSWORD_BODY, lambda req, body: {"admin_password": body["adminPass"]}),
    "reboot": (REBOOT_BODY, lambda req, body: {"reboot_type": body["type"].upper()}),
    "resize": (RESIZE_BODY, lambda req, body: resize_payload(body)),
    "live-migration": (MIGRATE_LIVE_BODY, live_migration_payload),
    "migrate": (MIGRATE_BODY, lambda req, body: {"host": migrate_host(req, body)}),
}

#: Statuses of actions that do not return 202.
STATUS = {"confirmResize": 204}


def migrate_host(req: Request, body: Any) -> str | None:
    """Return the host to migrate to, None for any. Before 2.56 the value of the action is not looked at."""
    if not req.has(Change.MIGRATE_HOST) or body is None:
        return None
    host: str | None = body.get("host")
    return host


def resize_payload(body: dict[str, Any]) -> dict[str, Any]:
    """Return the operation's payload of ``resize``."""
    config = body.get("OS-DCF:diskConfig")
    return {"flavor_id": str(body["flavorRef"]), "auto_disk_config": None if config is None else config == "AUTO"}


#: Kinds of operations whose action has a handler elsewhere, because it has a response body.
SERVED_ELSEWHERE = ("rescue",)

SERVED = [
    operation
    for operation in OPERATIONS.values()
    if operation.action and operation.rule and operation.kind not in SERVED_ELSEWHERE
]


class ServerActions(Extension):
    alias = "os-server-start-stop"
    title = "Server actions"
    routes = tuple(
        action(
            "servers",
            str(operation.action),
            "accept",
            since=operation.microversion,
            declared=Declaration(
                str(operation.rule),
                body=BODIES[operation.kind][0] if operation.kind in BODIES else None,
                status=STATUS.get(operation.kind, 202),
            ),
        )
        for operation in SERVED
    )

    def accept(self, req: Request, id: str) -> Response:
        """Request the operation of the action."""
        name = str(req.route.action)
        operation = next(operation for operation in SERVED if operation.action == name)
        payload = BODIES[operation.kind][1](req, req.data[name]) if operation.kind in BODIES else {}
        self.compute.accept(req.context, id, operation.kind, payload)
        return Response(status=STATUS.get(operation.kind, 202))


class ServerLock(Extension):
    alias = "os-lock-server"
    title = "Lock and unlock"
    routes = (
        action("servers", "lock", "lock"),
        action("servers", "unlock", "unlock"),
    )

    @declares(policies.LOCK, body=LOCK_BODY, status=202)
    def lock(self, req: Request, id: str) -> Response:
        options = req.data["lock"]
        reason = (options or {}).get("locked_reason") if req.has(Change.LOCKED_REASON) else None
        self.conductor.instance_lock(req.context, id, reason)
        return Response(status=202)

    @declares(policies.UNLOCK, body=UNLOCK_BODY, status=202)
    def unlock(self, req: Request, id: str) -> Response:
        self.conductor.instance_unlock(req.context, id, req.allows(policies.UNLOCK_OVERRIDE))
        return Response(status=202)


class AdminActions(Extension):
    alias = "os-admin-actions"
    title = "Admin's actions on servers"
    routes = (
        action("servers", "os-resetState", "reset_state"),
        action("servers", "injectNetworkInfo", "inject_network_info"),
    )

    @declares(policies.RESET_STATE, body=RESET_STATE_BODY, status=202)
    def reset_state(self, req: Request, id: str) -> Response:
        """Set a server's state. The API's names of the states are also the internal ones."""
        state = req.data["os-resetState"]["state"]
        self.conductor.instance_reset_state(req.context, id, state)
        return Response(status=202)

    @declares(policies.INJECT_NETWORK_INFO, status=202)
    def inject_network_info(self, req: Request, id: str) -> Response:
        """Do nothing, in every state of the server.

        Guests get their addresses by DHCP or from the config drive.
        """
        instance = self.conductor.instance_get(req.context, id)
        if instance.locked and not req.context.is_admin:
            raise exceptions.InstanceIsLocked(instance_id=id)
        return Response(status=202)
