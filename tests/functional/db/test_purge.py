"""Purging, on each kind of database: what one transaction removes, beside another that does the same."""

from __future__ import annotations

import datetime

import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.upkeep import purge
from tests.support import make

DAY = datetime.timedelta(days=1)


def deleted(uow: UnitOfWork, days: int) -> str:
    then = uow.now - days * DAY
    uuid = make.instance(uow, deleted=True, terminated_at=then, tag_names=["a"])
    action = make.action(uow, uuid, finish_time=then)
    uow.session.add(models.InstanceActionEvent(action_id=action.id, event="e", start_time=then))
    uow.session.add(models.PurgedInstance(uuid=f"before-{uuid}"[:36], purged_at=then))
    return uuid


def count(db: Database, table: type[models.Base]) -> int:
    return db.read(lambda uow: uow.session.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


def test_purge_removes_old_rows(db: Database) -> None:
    old = [db.write(deleted, days) for days in (30, 20, 10)]
    young = db.write(deleted, 1)
    alive = db.write(make.instance)
    for days in (30, 1):
        db.write(lambda uow, days=days: make.action(uow, alive, finish_time=uow.now - days * DAY) and None)
    before = db.read(purge.days_ago, 5)
    gone = purge.run(db, before, 2)
    assert +gone == {"instances": 3, "instance_actions": 4, "instance_action_events": 3, "instance_tags": 3}
    left = db.read(lambda uow: set(uow.session.scalars(sa.select(models.Instance.uuid))))
    assert left == {young, alive}
    assert db.read(purge.purged, [*old, young, alive]) == set(old)
    assert purge.forget(db, before, 2) == 3
    assert count(db, models.PurgedInstance) == 4


def test_two_at_the_same_time(db: Database) -> None:
    """A purge skips rows that another one has locked, and does not wait: MariaDB may lock more than it takes. SQLite
    has one writer.
    """
    if db.is_sqlite:
        return
    for _ in range(3):
        db.write(deleted, 30)
    before = db.read(purge.days_ago, 5)
    with db.sessions() as session, session.begin():
        mine = purge.TAKES[0](UnitOfWork(session, db.conf), before, 2, None, False)
        assert mine.rows["instances"] == 2
        theirs = purge.run(db, before, 2)["instances"]
        assert theirs in ((0, 1) if db.engine.dialect.name == "mysql" else (1,))
    assert purge.run(db, before, 2)["instances"] == 1 - theirs
    assert (count(db, models.Instance), purge.run(db, before, 2).total()) == (0, 0)


def test_ids_are_not_given_again(db: Database) -> None:
    uuid = db.write(make.instance)
    first = db.write(lambda uow: make.action(uow, uuid).id)
    db.write(lambda uow: uow.change(sa.delete(models.InstanceAction)))
    assert db.write(lambda uow: make.action(uow, uuid).id) > first
