"""Migrations of servers: which servers have left a host."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.servers import claims, server_migrations
from nova_lite.operations.migration_states import (
    COMPLETED,
    CONFIRMED,
    DONE,
    ERROR,
    EVACUATION,
    FINISHED,
    PRE_MIGRATING,
    RUNNING,
)
from tests.support import make

GONE, BACK, ON, IN = ("h1", "h2"), ("h2", "h1"), ("h2", "h3"), ("h3", "h1")


def migrate(
    uow: UnitOfWork, uuid: str, source: str, destination: str, status: str, kind: str = "live-migration"
) -> None:
    row = uow.session.scalars(sa.select(models.Instance).where(models.Instance.uuid == uuid)).one()
    place = claims.Place(source, source, 1, None)
    migration = server_migrations.begin(uow, make.ADMIN, row, kind, place, make.flavor())
    migration.destination_host, migration.status = destination, status
    if status in (COMPLETED, CONFIRMED, FINISHED):
        row.host = destination
    uow.session.flush()


@pytest.mark.parametrize(
    ("moves", "left"),
    [
        ([], []),
        ([(GONE, COMPLETED)], [("h2", False)]),
        ([(GONE, CONFIRMED)], [("h2", False)]),
        ([(GONE, COMPLETED), (BACK, ERROR)], [("h2", False)]),
        ([(GONE, COMPLETED), (BACK, COMPLETED)], []),
        ([(GONE, COMPLETED), (ON, COMPLETED)], []),
        ([(GONE, COMPLETED), (BACK, RUNNING)], [("h2", True)]),
        ([(GONE, FINISHED)], [("h2", True)]),
        ([(GONE, RUNNING)], [("h1", True)]),
        ([(GONE, ERROR)], []),
        ([(IN, RUNNING), (GONE, ERROR)], [("h1", True)]),
    ],
)
def test_server_has_left_its_host_if_its_last_move_that_has_not_failed_began_there(
    db: Database, moves: list[tuple[tuple[str, str], str]], left: list[tuple[str, bool]]
) -> None:
    uuid = db.write(make.instance, host="h1")
    db.write(migrate, uuid, *GONE, COMPLETED)
    after = db.read(server_migrations.newest_id)
    db.write(lambda uow: uow.session.execute(sa.update(models.Instance).values(host="h1")))
    for (source, destination), status in moves:
        db.write(migrate, uuid, source, destination, status)
    found = db.read(server_migrations.left_host, "h1", after)
    assert [(server.host, server.is_open) for server in found] == left


@pytest.mark.parametrize("status", [PRE_MIGRATING, DONE])
def test_server_that_was_evacuated_has_not_left_its_host_and_moves_by_no_migration(db: Database, status: str) -> None:
    uuid = db.write(make.instance, host="h1")
    db.write(migrate, uuid, *GONE, status, EVACUATION)
    assert db.read(server_migrations.left_host, "h1", 0) == []
    assert db.read(server_migrations.current, uuid) is None
    assert db.read(server_migrations.in_progress, uuid) == []
    assert (db.read(server_migrations.evacuation, uuid) is None) is (status == DONE)
