"""Shares in the fault matrix: a stopped server gets one or loses it, whatever dies. Its guest agrees with its row."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from nova_lite.base import exceptions
from nova_lite.db.servers import shares
from nova_lite.objects import ShareProtocol
from tests.faults.arena import SETTLE_SECONDS, Arena
from tests.support.waiting import wait_for

VERSION = "2.97"


def one_stopped(arena: Arena) -> None:
    """Make a stopped server, and a share of its project."""
    arena.create(1)
    arena.settle("ACTIVE", 1)
    arena.insist("POST", f"/servers/{arena.one()}/action", {"os-stop": None}, (202, 409))
    arena.settle("SHUTOFF", 1)
    (server,) = arena.servers()
    with contextlib.suppress(exceptions.Conflict):  # an earlier case has made it
        arena.db.write(shares.create, "data", server["tenant_id"], ShareProtocol.DIRECTORY)


def one_with_share(arena: Arena) -> None:
    one_stopped(arena)
    attach(arena)


def attach(arena: Arena) -> None:
    """Attach the share. 409: an earlier, unanswered try was accepted."""
    (share,) = arena.db.read(shares.list_)
    arena.insist("POST", _path(arena), {"share": {"share_id": share.id, "tag": "data"}}, (201, 409), VERSION)
    _settle(arena, {"data": "inactive"})


def detach(arena: Arena) -> None:
    (share,) = arena.db.read(shares.list_)
    arena.insist("DELETE", f"{_path(arena)}/{share.id}", None, (200, 404, 409), VERSION)
    _settle(arena, {})


def _path(arena: Arena) -> str:
    return f"/servers/{arena.one()}/shares"


def _settle(arena: Arena, wanted: dict[str, str]) -> None:
    """Wait until the server has these shares, by tag and status. Its guest has them, and no others."""

    def found() -> bool:
        answer = arena.send("GET", _path(arena), None, VERSION)
        listed: list[dict[str, Any]] = [] if answer is None or answer.status_code != 200 else [answer.json()]
        return [{share["tag"]: share["status"] for share in item["shares"]} for item in listed] == [wanted]

    wait_for(f"shares are {wanted}", found, SETTLE_SECONDS)
    arena.nothing_open()
    (path,) = arena.cloud.path.glob(f"*/instances/fake-*/domains/{arena.one()}.json")
    assert json.loads(path.read_text()).get("shares", {}) == dict.fromkeys(wanted, "directory/data")
