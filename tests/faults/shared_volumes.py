"""A volume of several servers in the fault matrix: a second server gets it or loses it, or is deleted, whatever dies.

The first server keeps the volume all the time.
"""

from __future__ import annotations

import json
from typing import Any

import requests

from tests.faults import volumes
from tests.faults.arena import Arena
from tests.faults.volumes import SETTLE_SECONDS
from tests.support.waiting import wait_for

SHARED = {"name": "shared", "extra_specs": {"multiattach": "<is> True"}}
VERSION = "2.60"


def one_of_two_has_it(arena: Arena) -> None:
    """Make two servers, and a volume that the first one has."""
    volumes.clear(arena)
    _ask(arena, "POST", "/types", {"volume_type": SHARED})
    arena.create(2)
    arena.settle("ACTIVE", 2)
    answer = _ask(arena, "POST", "/volumes", {"volume": {"name": "v", "size": 1, "volume_type": "shared"}})
    assert answer.status_code == 202, answer.text
    _settle(arena, "available", set())
    _attach(arena, _servers(arena)[0])
    _settle(arena, "in-use", {_servers(arena)[0]})


def both_have_it(arena: Arena) -> None:
    one_of_two_has_it(arena)
    attach_to_the_second(arena)


def attach_to_the_second(arena: Arena) -> None:
    first, second = _servers(arena)
    _attach(arena, second)
    arena.settle("ACTIVE", 2)
    _settle(arena, "in-use", {first, second})


def detach_from_the_second(arena: Arena) -> None:
    first, second = _servers(arena)
    path = f"/servers/{second}/os-volume_attachments/{_volume(arena)['id']}"
    arena.insist("DELETE", path, None, (202, 404, 409))
    arena.settle("ACTIVE", 2)
    _settle(arena, "in-use", {first})


def delete_the_second(arena: Arena) -> None:
    first, second = _servers(arena)
    arena.insist("DELETE", f"/servers/{second}", None, (204, 404))
    arena.settle("ACTIVE", 1)
    _settle(arena, "in-use", {first})


def _attach(arena: Arena, server_id: str) -> None:
    """Attach the volume. 400: an earlier, unanswered try was accepted."""
    body = {"volumeAttachment": {"volumeId": _volume(arena)["id"]}}
    arena.insist("POST", f"/servers/{server_id}/os-volume_attachments", body, (200, 400, 409), VERSION)


def _servers(arena: Arena) -> list[str]:
    return sorted(str(server["id"]) for server in arena.servers())


def _ask(arena: Arena, method: str, path: str, body: Any) -> requests.Response:
    """Send a request without faults."""
    answer = volumes.ask(arena, method, path, body)
    assert answer is not None
    return answer


def _volume(arena: Arena) -> dict[str, Any]:
    (found,) = volumes.listed(arena, "volumes")
    return found


def _settle(arena: Arena, status: str, servers: set[str]) -> None:
    """Wait until the volume has this status and these servers. Their guests have it, and no others."""

    def settled() -> bool:
        found = _volume(arena)
        return (found["status"], {item["server_id"] for item in found["attachments"]}) == (status, servers)

    wait_for(f"the volume is {status}", settled, SETTLE_SECONDS)
    paths = arena.cloud.path.glob("*/instances/fake-*/domains/*.json")
    domains = [json.loads(path.read_text()) for path in paths]
    assert {domain["uuid"] for domain in domains if domain.get("volumes")} == servers
