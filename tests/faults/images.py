"""Images of servers: what the user asks for, and what has to be of them in the end, in rows and in the store."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from nova_lite import operations
from nova_lite.base import failpoints
from nova_lite.base.directory_users import HOSTS
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.image import store
from nova_lite.operations import ImageVerb, states
from tests.faults.arena import SETTLE_SECONDS, Arena
from tests.faults.outages import release
from tests.faults.points import (
    CONDUCTOR,
    IMAGE_ASK,
    IMAGE_FAILED,
    IMAGE_TOLD,
    Fault,
    Points,
    around,
    join,
    of,
    of_image,
    of_order,
)
from tests.support.waiting import wait_for, wait_for_none

NAME, BACKUP, SHELVED = "snap", "backup", "vm-shelved"
CREATE = {"createImage": {"name": NAME}}

DISCARDED = of_image(ImageVerb.DISCARD)
LOST: Points = {CONDUCTOR: around(f"commit/{IMAGE_ASK}", f"commit/{IMAGE_FAILED}", f"commit/{IMAGE_TOLD}")}
MADE = of(operations.CREATE_IMAGE)
BACKED_UP = of(operations.CREATE_BACKUP)
OFFLOADED = join(of(operations.SHELVE), of_order(operations.SHELVE_OFFLOAD))
UNSHELVED = of(operations.UNSHELVE_OFFLOADED)


def ask(arena: Arena) -> None:
    """Request an image. 409: an earlier, unanswered try was accepted."""
    arena.insist("POST", f"/servers/{arena.one()}/action", CREATE, (202, 409))


def active(uow: UnitOfWork, name: str) -> list[str]:
    return [row.id for row in uow.session.query(models.Image).filter_by(name=name, status="active")]


def failures(uow: UnitOfWork, server_id: str) -> list[str]:
    actions = uow.session.query(models.InstanceAction).filter_by(instance_uuid=server_id)
    events = [event for action in actions for event in action.events or []]
    return [str(event["details"]) for event in events if event["result"] == "Error"]


def make(arena: Arena) -> None:
    """Make an image. A full disk makes it fail with a cause; then the user repeats the request."""
    before = arena.db.read(active, NAME)
    ask(arena)
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
    if arena.db.read(active, NAME) == before:
        (why,) = arena.db.read(failures, arena.one())
        assert os.strerror(errno.ENOSPC) in why, why
        ask(arena)
        arena.settle("ACTIVE", 1)
        arena.nothing_open()
    assert len(arena.db.read(active, NAME)) > len(before)


def fails(arena: Arena) -> None:
    """Fail an image: nothing of it is left, and the server is unchanged."""
    before = arena.db.read(active, NAME)
    ask(arena)
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
    arena.control_hosts()
    assert arena.db.read(active, NAME) == before
    check(arena)


def prepare_failure(arena: Arena) -> None:
    arena.create(1)
    arena.settle("ACTIVE", 1)
    arena.control_hosts(fail_at=["snapshot"])


def uploaded_and_lost(arena: Arena) -> None:
    """Remove the file between its upload and its publication."""
    arena.create(1)
    arena.settle("ACTIVE", 1)
    (arena.held["publish"],) = arena.arm((Fault(CONDUCTOR, "image/publish/before", failpoints.HOLD),))
    ask(arena)
    wait_for("it is published", arena.held["publish"].exists)
    for path in Path(arena.conf.image.store_path, store.UPLOADS).glob("*/*"):
        path.unlink()


def lost(arena: Arena) -> None:
    release(arena.held["publish"])
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
    check(arena)


def slow(arena: Arena) -> None:
    """Delete the server while its host makes the image."""
    arena.create(1)
    arena.settle("ACTIVE", 1)
    arena.control_hosts(delays={"snapshot": 2.0})
    ask(arena)

    def at_it() -> bool:
        (server,) = arena.servers()
        return bool(server["OS-EXT-STS:task_state"] == states.IMAGE_SNAPSHOT)

    wait_for("the image is being made", at_it, SETTLE_SECONDS)


def delete(arena: Arena) -> None:
    arena.insist("DELETE", f"/servers/{arena.one()}", None, (204, 404))
    arena.gone()
    arena.nothing_open()
    arena.control_hosts()
    check(arena)


def backup(arena: Arena) -> None:
    """Make two backups; the second replaces the first."""
    body = {"createBackup": {"name": BACKUP, "backup_type": "daily", "rotation": 1}}

    def once() -> None:
        arena.insist("POST", f"/servers/{arena.one()}/action", body, (202, 409))
        arena.settle("ACTIVE", 1)
        arena.nothing_open()

    known = set(arena.db.read(active, BACKUP))
    once()
    if known == set(arena.db.read(active, BACKUP)):
        (why,) = arena.db.read(failures, arena.one())
        assert os.strerror(errno.ENOSPC) in why, why
        once()
    (first,) = set(arena.db.read(active, BACKUP)) - known
    once()
    (second,) = set(arena.db.read(active, BACKUP)) - known
    assert first != second


def shelve(arena: Arena) -> None:
    """Shelve the server and wait until it is offloaded automatically. On a full disk the shelve fails with a cause
    and is repeated.
    """

    def status() -> str:
        """Return the status, or nothing while a task runs."""
        (server,) = arena.servers()
        if server["OS-EXT-STS:task_state"] or server["status"] == "SHELVED":
            return ""
        return str(server["status"])

    for left in (1, 0):
        server_id = arena.one()
        arena.insist("POST", f"/servers/{server_id}/action", {"shelve": None}, (202, 409))
        seen = wait_for("it is shelved", status, SETTLE_SECONDS)
        if seen == "SHELVED_OFFLOADED":
            break
        why = arena.db.read(failures, server_id)
        assert left and any(os.strerror(errno.ENOSPC) in item for item in why), (seen, why)
    arena.nothing_open()
    assert not arena.guests()


def unshelve(arena: Arena) -> None:
    """Unshelve the server. Its image goes away."""
    arena.insist("POST", f"/servers/{arena.one()}/action", {"unshelve": None}, (202, 409))
    arena.settle("ACTIVE", 1)
    arena.nothing_open()
    assert not arena.db.read(active, SHELVED)


def one_shelved(arena: Arena) -> None:
    arena.create(1)
    arena.settle("ACTIVE", 1)
    shelve(arena)
    assert arena.db.read(active, SHELVED)


def check(arena: Arena) -> None:
    """Check that every image is active, and that the store has exactly their files."""
    path = arena.conf.image.store_path

    def wrong() -> list[str]:
        rows = dict(arena.db.read(statuses))
        walked = os.walk(path)
        files = {name for above, _, names in walked if above != os.path.join(path, HOSTS) for name in names}
        halves = {str(file) for file in Path(arena.cloud.path).glob("*/instances/_snapshots/*/*")}
        return sorted({row for row, status in rows.items() if status != "active"} | (files ^ rows.keys()) | halves)

    wait_for_none("every image is active and has its file", wrong, SETTLE_SECONDS, 0.2)


def statuses(uow: UnitOfWork) -> list[tuple[str, str]]:
    return [(row.id, row.status) for row in uow.session.query(models.Image)]
