"""Volumes in the fault matrix: one is made, changed, copied, attached and deleted, whatever dies meanwhile. Its file is
there once, and none without a volume.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import requests
import sqlalchemy as sa

from nova_lite.base import failpoints
from nova_lite.base.directory_users import HOSTS
from nova_lite.image import luks
from tests.faults import images
from tests.faults.arena import Arena
from tests.faults.outages import release
from tests.faults.points import COMPUTE, VOLUME_WORK, Fault
from tests.support.waiting import wait_for, wait_for_none

SETTLE_SECONDS = 90.0


#: A version in which volumes that a server has are extended and copied.
VERSION = {"OpenStack-API-Version": "volume 3.66"}


def ask(arena: Arena, method: str, path: str, body: Any = None) -> requests.Response | None:
    """Send a request; return None without a response."""
    url = f"http://127.0.0.1:{arena.cloud.volume_port}/v3{path}"
    headers = {"X-Auth-Token": "admin:demo", **VERSION}
    with contextlib.suppress(requests.RequestException):
        return requests.request(method, url, json=body, headers=headers, timeout=30)
    return None


def listed(arena: Arena, kind: str) -> list[dict[str, Any]]:
    def read() -> list[list[dict[str, Any]]]:
        answer = ask(arena, "GET", f"/{kind}/detail")
        return [answer.json()[kind]] if answer is not None and answer.status_code == 200 else []

    found: list[dict[str, Any]] = wait_for(f"{kind} are listed", read, SETTLE_SECONDS)[0]
    return found


def _volumes(arena: Arena) -> list[dict[str, Any]]:
    return listed(arena, "volumes")


def _snapshots(arena: Arena) -> list[dict[str, Any]]:
    return listed(arena, "snapshots")


def _settle(arena: Arena, status: str) -> str:
    """Wait until the one volume has this status; return its id."""

    def settled() -> list[str]:
        found = _volumes(arena)
        return [str(item["id"]) for item in found] if {item["status"] for item in found} == {status} else []

    return str(wait_for(f"the volume is {status}", settled, SETTLE_SECONDS)[0])


def make(arena: Arena) -> None:
    """Create a volume. An unanswered request may have been accepted and is then not repeated."""

    def made() -> bool:
        if _volumes(arena):
            return True
        answer = ask(arena, "POST", "/volumes", {"volume": {"name": "v", "size": 1}})
        return answer is not None and answer.status_code == 202

    wait_for("a volume is accepted", made, SETTLE_SECONDS)
    volume_id = _settle(arena, "available")
    path = arena.cloud.path / "shared" / "volumes" / volume_id
    assert path.stat().st_size == 1024**3


ENCRYPTED = {"provider": "luks", "control_location": "front-end"}


def encrypted_type(arena: Arena) -> None:
    """Make a type of encrypted volumes, unless it exists. Remove all volumes."""
    clear(arena)
    answer = ask(arena, "POST", "/types", {"volume_type": {"name": "secret"}})
    if answer is not None and answer.status_code == 200:
        path = f"/types/{answer.json()['volume_type']['id']}/encryption"
        answer = ask(arena, "POST", path, {"encryption": ENCRYPTED})
        assert answer is not None and answer.status_code == 200


def make_encrypted(arena: Arena) -> None:
    """Create an encrypted volume. Its file is complete, and no plain one is there."""

    def made() -> bool:
        if _volumes(arena):
            return True
        body = {"volume": {"name": "v", "size": 1, "volume_type": "secret"}}
        answer = ask(arena, "POST", "/volumes", body)
        return answer is not None and answer.status_code == 202

    wait_for("an encrypted volume is accepted", made, SETTLE_SECONDS)
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
    return listed(arena, "backups")


def back_up(arena: Arena) -> None:
    """Back up the volume. An unanswered request may have been accepted and is then not repeated."""
    body = {"backup": {"name": "b", "volume_id": _volumes(arena)[0]["id"]}}

    def accepted() -> bool:
        if _backups(arena):
            return True
        answer = ask(arena, "POST", "/backups", body)
        return answer is not None and answer.status_code == 202

    wait_for("a backup is accepted", accepted, SETTLE_SECONDS)
    _settle(arena, "available")
    settled = [item["status"] for item in _backups(arena)]
    assert settled == ["available"], settled
    (backup,) = _backups(arena)
    path = Path(arena.cloud.path / "shared" / "backups" / backup["id"])
    assert path.read_bytes()[: len(CONTENT)] == CONTENT
    assert [file.name for file in path.parent.iterdir() if not file.name.startswith((".", HOSTS))] == [backup["id"]]


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
            ask(arena, "POST", f"/backups/{_backups(arena)[0]['id']}/restore", body)
        return False

    wait_for("the backup is restored", restored, SETTLE_SECONDS)
    _settle(arena, "available")
    wait_for("the backup is free", lambda: _backups(arena)[0]["status"] == "available", SETTLE_SECONDS)


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
    answer = ask(arena, "POST", "/volumes", {"volume": {"name": "new", "size": 1}})
    assert answer is not None and answer.status_code == 202
    wait_for("the new one is there", lambda: _named(arena, "new")["status"] == "available", SETTLE_SECONDS)


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

    (kept,) = wait_for("one is the server's, and one is nobody's", settled, SETTLE_SECONDS)
    paths = arena.cloud.path.glob("*/instances/fake-*/domains/*.json")
    assert [list(json.loads(path.read_text())["volumes"]) for path in paths] == [[kept]]
    assert kept == new


def _is_settled(found: dict[str, str]) -> bool:
    return sorted(found.values()) == ["available", "in-use"]


# --- size, snapshots, images, types, deletion


def _only_known_files(arena: Arena) -> None:
    """Check that the store has one file of each volume and each snapshot, and no other."""
    store = Path(arena.cloud.path / "shared" / "volumes")

    def wrong() -> set[str]:
        rows = {item["id"] for item in (*_volumes(arena), *_snapshots(arena))}
        files = (file for file in store.rglob("*") if file.is_file() and file.parent.name != HOSTS)
        return rows ^ {file.name for file in files if not file.name.startswith(".")}

    wait_for_none("files are those of volumes and snapshots", wrong, SETTLE_SECONDS)


def _act(arena: Arena, body: dict[str, Any]) -> requests.Response | None:
    return ask(arena, "POST", f"/volumes/{_volumes(arena)[0]['id']}/action", body)


def _extend(arena: Arena, status: str) -> None:
    """Extend the volume to 2 GB; it is repeated until the volume has this size."""

    def extended() -> bool:
        (volume,) = _volumes(arena)
        if (volume["size"], volume["status"]) == (1, status):
            _act(arena, {"os-extend": {"new_size": 2}})
        return bool((volume["size"], volume["status"]) == (2, status))

    wait_for("the volume is extended", extended, SETTLE_SECONDS)
    assert _file(arena).stat().st_size == 2 * 1024**3
    with _file(arena).open("rb") as file:
        assert file.read(len(CONTENT)) == CONTENT


def extend(arena: Arena) -> None:
    _extend(arena, "available")


def filled_in_use(arena: Arena) -> None:
    """Make a server that has a volume with content."""
    server_and_volume(arena)
    _write(arena, CONTENT)
    attach(arena)


def extend_in_use(arena: Arena) -> None:
    """Extend the volume of a server: its guest sees the new size."""
    _extend(arena, "in-use")
    seen = f"volume {_volumes(arena)[0]['id']} has {2 * 1024**3} bytes"
    wait_for("the guest sees it", lambda: seen in arena.console(arena.one()), SETTLE_SECONDS)


def snapshot(arena: Arena) -> None:
    """Make a snapshot. On a full disk it fails; then the user deletes it and repeats the request."""
    (volume,) = _volumes(arena)

    def made() -> bool:
        statuses = {item["status"] for item in _snapshots(arena)}
        if not statuses:
            ask(arena, "POST", "/snapshots", {"snapshot": {"name": "s", "volume_id": volume["id"]}})
        for item in _snapshots(arena):
            if item["status"] == "error":
                ask(arena, "DELETE", f"/snapshots/{item['id']}")
        return statuses == {"available"}

    wait_for("a snapshot is made", made, SETTLE_SECONDS)
    _settle(arena, volume["status"])
    for item in _snapshots(arena):
        path = arena.cloud.path / "shared" / "volumes" / "snapshots" / item["id"]
        assert path.stat().st_size == volume["size"] * 1024**3
        with path.open("rb") as file:
            assert file.read(len(CONTENT)) == CONTENT
    _only_known_files(arena)


def late_snapshot(arena: Arena) -> None:
    """Hold up the first command for a snapshot. The next one makes it, and the user deletes it. The first command is
    late then, and makes no file.
    """
    (late,) = arena.arm((Fault(COMPUTE, f"handle/{VOLUME_WORK}/before", failpoints.HOLD),))
    snapshot(arena)
    delete_snapshot(arena)
    release(late)
    ignored = "a late command of snapshot is ignored"
    logs = [arena.cloud.path / f"{host}.log" for host in arena.cloud.computes]
    wait_for("it is ignored", lambda: any(ignored in log.read_text() for log in logs), SETTLE_SECONDS)
    _only_known_files(arena)


def with_snapshot(arena: Arena) -> None:
    filled(arena)
    snapshot(arena)


def delete_snapshot(arena: Arena) -> None:
    """Delete the snapshots. The volume and its file stay."""
    _delete_all(arena, "snapshots")
    _settle(arena, "available")
    _only_known_files(arena)


def delete(arena: Arena) -> None:
    """Delete the volume and its file."""
    _delete_all(arena, "volumes")
    _only_known_files(arena)


def _delete_all(arena: Arena, kind: str) -> None:
    """Delete everything of a kind; repeated until it is gone. A deletion that is under way is accepted again."""

    def gone() -> bool:
        found = listed(arena, kind)
        for item in found:
            ask(arena, "DELETE", f"/{kind}/{item['id']}")
        return not found

    wait_for(f"no {kind} are left", gone, SETTLE_SECONDS)


def upload(arena: Arena) -> None:
    """Make an image of the volume. It is repeated until there is one, and the volume is free."""
    before = set(arena.db.read(images.active, IMAGE))

    def uploaded() -> bool:
        (volume,) = _volumes(arena)
        made = set(_active_images(arena)) - before
        if volume["status"] == "available" and not made:
            body = {"image_name": IMAGE, "disk_format": "qcow2", "container_format": "bare"}
            _act(arena, {"os-volume_upload_image": body})
        return bool(volume["status"] == "available" and made)

    wait_for("an image is made of the volume", uploaded, SETTLE_SECONDS)
    for image_id in set(_active_images(arena)) - before:
        assert CONTENT in Path(arena.conf.image.store_path, image_id).read_bytes()
    _only_known_files(arena)


#: Name of the images that are made of volumes.
IMAGE = "of-volume"


def _active_images(arena: Arena) -> list[str]:
    """Return the ids of the images that were made of volumes, none while the database is away."""
    with contextlib.suppress(sa.exc.DBAPIError):
        return arena.db.read(images.active, IMAGE)
    return []


def with_another_type(arena: Arena) -> None:
    """Make a volume, and a type that it does not have, unless it exists."""
    filled(arena)
    ask(arena, "POST", "/types", {"volume_type": {"name": OTHER_TYPE}})


OTHER_TYPE = "other"


def retype(arena: Arena) -> None:
    """Give the volume another type, which is one transaction: no host does anything."""

    def retyped() -> bool:
        (volume,) = _volumes(arena)
        if volume["volume_type"] != OTHER_TYPE:
            _act(arena, {"os-retype": {"new_type": OTHER_TYPE, "migration_policy": "never"}})
        return bool(volume["volume_type"] == OTHER_TYPE)

    wait_for("the volume has another type", retyped, SETTLE_SECONDS)
    _settle(arena, "available")
    _only_known_files(arena)


def clear(arena: Arena) -> None:
    """Delete all backups, snapshots and volumes before the next case."""
    for kind in ("backups", "snapshots", "volumes"):
        _delete_all(arena, kind)
