"""Volumes in the fault matrix: one is made, attached and detached, whatever dies meanwhile; it is there once."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import requests

from nova_lite.volume import luks
from tests.faults.arena import Arena
from tests.functional import cloud

SETTLE_SECONDS = 90.0


def _ask(arena: Arena, method: str, path: str, body: Any = None) -> requests.Response | None:
    """Send a request; return None without a response."""
    url = f"http://127.0.0.1:{arena.cloud.volume_port}/v3{path}"
    with contextlib.suppress(requests.RequestException):
        return requests.request(method, url, json=body, headers={"X-Auth-Token": "admin:demo"}, timeout=30)
    return None


def _volumes(arena: Arena) -> list[dict[str, Any]]:
    def listed() -> list[list[dict[str, Any]]]:
        answer = _ask(arena, "GET", "/volumes/detail")
        return [answer.json()["volumes"]] if answer is not None and answer.status_code == 200 else []

    found: list[dict[str, Any]] = cloud.wait_for("volumes are listed", listed, SETTLE_SECONDS)[0]
    return found


def _settle(arena: Arena, status: str) -> str:
    """Wait until the one volume has this status; return its id."""

    def settled() -> list[str]:
        found = _volumes(arena)
        return [str(item["id"]) for item in found] if {item["status"] for item in found} == {status} else []

    return str(cloud.wait_for(f"the volume is {status}", settled, SETTLE_SECONDS)[0])


def make(arena: Arena) -> None:
    """Create a volume. An unanswered request may have been accepted and is then not repeated."""

    def made() -> bool:
        if _volumes(arena):
            return True
        answer = _ask(arena, "POST", "/volumes", {"volume": {"name": "v", "size": 1}})
        return answer is not None and answer.status_code == 202

    cloud.wait_for("a volume is accepted", made, SETTLE_SECONDS)
    volume_id = _settle(arena, "available")
    path = arena.cloud.path / "shared" / "volumes" / volume_id
    assert path.stat().st_size == 1024**3


ENCRYPTED = {"provider": "luks", "control_location": "front-end"}


def encrypted_type(arena: Arena) -> None:
    """Make a type of encrypted volumes, unless it exists. Remove all volumes."""
    clear(arena)
    answer = _ask(arena, "POST", "/types", {"volume_type": {"name": "secret"}})
    if answer is not None and answer.status_code == 200:
        path = f"/types/{answer.json()['volume_type']['id']}/encryption"
        answer = _ask(arena, "POST", path, {"encryption": ENCRYPTED})
        assert answer is not None and answer.status_code == 200


def make_encrypted(arena: Arena) -> None:
    """Create an encrypted volume. Its file is complete, and no plain one is there."""

    def made() -> bool:
        if _volumes(arena):
            return True
        body = {"volume": {"name": "v", "size": 1, "volume_type": "secret"}}
        answer = _ask(arena, "POST", "/volumes", body)
        return answer is not None and answer.status_code == 202

    cloud.wait_for("an encrypted volume is accepted", made, SETTLE_SECONDS)
    volume_id = _settle(arena, "available")
    store = arena.cloud.path / "shared" / "volumes"
    path = store / "luks" / volume_id
    assert path.stat().st_size == 1024**3 + luks.data_offset(str(path))
    assert not (store / volume_id).exists()


def server_and_encrypted_volume(arena: Arena) -> None:
    encrypted_type(arena)
    arena.create(1)
    arena.settle("ACTIVE", 1)
    make_encrypted(arena)


def filled(arena: Arena) -> None:
    """Make a volume with content and without backups."""
    clear(arena)
    make(arena)
    _write(arena, CONTENT)


#: Contents of the volume: of the backup, and after it.
CONTENT, CHANGED = b"what the backup has", b"what a guest wrote."


def _write(arena: Arena, content: bytes) -> None:
    with open(_file(arena), "r+b") as file:
        file.write(content)


def _file(arena: Arena) -> Path:
    return Path(arena.cloud.path / "shared" / "volumes" / _volumes(arena)[0]["id"])


def _backups(arena: Arena) -> list[dict[str, Any]]:
    def listed() -> list[list[dict[str, Any]]]:
        answer = _ask(arena, "GET", "/backups/detail")
        return [answer.json()["backups"]] if answer is not None and answer.status_code == 200 else []

    found: list[dict[str, Any]] = cloud.wait_for("backups are listed", listed, SETTLE_SECONDS)[0]
    return found


def back_up(arena: Arena) -> None:
    """Back up the volume. An unanswered request may have been accepted and is then not repeated."""
    body = {"backup": {"name": "b", "volume_id": _volumes(arena)[0]["id"]}}

    def accepted() -> bool:
        if _backups(arena):
            return True
        answer = _ask(arena, "POST", "/backups", body)
        return answer is not None and answer.status_code == 202

    cloud.wait_for("a backup is accepted", accepted, SETTLE_SECONDS)
    _settle(arena, "available")
    settled = [item["status"] for item in _backups(arena)]
    assert settled == ["available"], settled
    (backup,) = _backups(arena)
    path = Path(arena.cloud.path / "shared" / "backups" / backup["id"])
    assert path.read_bytes()[: len(CONTENT)] == CONTENT
    assert [file.name for file in path.parent.iterdir() if not file.name.startswith(".")] == [backup["id"]]


def backed_up_and_changed(arena: Arena) -> None:
    filled(arena)
    back_up(arena)
    _write(arena, CHANGED)


def restore(arena: Arena) -> None:
    """Restore the backup into its volume. It is repeated until the volume has the content of the backup."""

    def restored() -> bool:
        with open(_file(arena), "rb") as file:
            if file.read(len(CONTENT)) == CONTENT:
                return True
        if {_volumes(arena)[0]["status"], _backups(arena)[0]["status"]} == {"available"}:
            body = {"restore": {"volume_id": _volumes(arena)[0]["id"]}}
            _ask(arena, "POST", f"/backups/{_backups(arena)[0]['id']}/restore", body)
        return False

    cloud.wait_for("the backup is restored", restored, SETTLE_SECONDS)
    _settle(arena, "available")
    cloud.wait_for("the backup is free", lambda: _backups(arena)[0]["status"] == "available", SETTLE_SECONDS)


def server_and_volume(arena: Arena) -> None:
    clear(arena)
    arena.create(1)
    arena.settle("ACTIVE", 1)
    make(arena)


def attached(arena: Arena) -> None:
    server_and_volume(arena)
    attach(arena)


def _has(arena: Arena) -> list[str]:
    """Return the uuids of the guests with a volume, on all hosts."""
    paths = arena.cloud.path.glob("*/instances/fake-*/domains/*.json")
    domains = [json.loads(path.read_text()) for path in paths]
    return [domain["uuid"] for domain in domains if domain.get("volumes")]


def attach(arena: Arena) -> None:
    """Attach a volume. 400: an earlier, unanswered try was accepted."""
    server_id, volume_id = arena.one(), _volumes(arena)[0]["id"]
    body = {"volumeAttachment": {"volumeId": volume_id}}
    arena.insist("POST", f"/servers/{server_id}/os-volume_attachments", body, (200, 400, 409))
    arena.settle("ACTIVE", 1)
    _settle(arena, "in-use")
    assert _has(arena) == [server_id]


def detach(arena: Arena) -> None:
    server_id, volume_id = arena.one(), _volumes(arena)[0]["id"]
    path = f"/servers/{server_id}/os-volume_attachments/{volume_id}"
    arena.insist("DELETE", path, None, (202, 404, 409))
    arena.settle("ACTIVE", 1)
    _settle(arena, "available")
    assert _has(arena) == []


def one_attached_and_another(arena: Arena) -> None:
    attached(arena)
    answer = _ask(arena, "POST", "/volumes", {"volume": {"name": "new", "size": 1}})
    assert answer is not None and answer.status_code == 202
    cloud.wait_for("the new one is there", lambda: _named(arena, "new")["status"] == "available", SETTLE_SECONDS)


def _named(arena: Arena, name: str) -> dict[str, Any]:
    return next(volume for volume in _volumes(arena) if volume["name"] == name)


def swap(arena: Arena) -> None:
    """Swap a volume. Done or not, server and guest have the same one of the two, and the other one is free."""
    server_id, old, new = arena.one(), _named(arena, "v")["id"], _named(arena, "new")["id"]
    body = {"volumeAttachment": {"volumeId": new}}
    arena.insist("PUT", f"/servers/{server_id}/os-volume_attachments/{old}", body, (202, 400, 404, 409))
    arena.settle("ACTIVE", 1)

    def settled() -> list[str]:
        found = {volume["id"]: volume["status"] for volume in _volumes(arena)}
        return [item for item, status in found.items() if status == "in-use"] if _is_settled(found) else []

    (kept,) = cloud.wait_for("one is the server's, and one is nobody's", settled, SETTLE_SECONDS)
    paths = arena.cloud.path.glob("*/instances/fake-*/domains/*.json")
    assert [list(json.loads(path.read_text())["volumes"]) for path in paths] == [[kept]]
    assert kept == new


def _is_settled(found: dict[str, str]) -> bool:
    return sorted(found.values()) == ["available", "in-use"]


def clear(arena: Arena) -> None:
    """Delete all backups and volumes before the next case."""
    for backup in _backups(arena):
        _ask(arena, "DELETE", f"/backups/{backup['id']}")
    cloud.wait_for("no backups are left", lambda: not _backups(arena), SETTLE_SECONDS)
    for volume in _volumes(arena):
        _ask(arena, "DELETE", f"/volumes/{volume['id']}")
    cloud.wait_for("no volumes are left", lambda: not _volumes(arena), SETTLE_SECONDS)
