"""SQL of the outbox. `tests.functional.db` repeats these tests on each kind of database."""

from __future__ import annotations

import pytest

from nova_lite.db.core import outbox
from nova_lite.db.core.engine import Database

FIELDS = {
    "channel": "c",
    "event_type": "instance.pause.start",
    "publisher_id": "nova-compute:h1",
    "priority": "INFO",
    "context": {"request_id": None},
    "payload": {"text": "ä\U0001f427", "list": [1, None]},
}


def add(db: Database, *ids: str, channel: str = "c") -> None:
    db.write(outbox.add, [{**FIELDS, "message_id": item, "channel": channel} for item in ids])


def lease(db: Database, owner: str, limit: int = 10, seconds: float = 60) -> list[outbox.Waiting]:
    return db.write(outbox.lease_notifications, "c", owner, limit, seconds)


def ids(items: list[outbox.Waiting]) -> list[str]:
    return [item.message_id for item in items]


def test_outbox_returns_what_was_written_in_its_order(db: Database) -> None:
    assert db.read(outbox.seconds_until_due, "c") is None
    add(db, "a", "b")
    add(db, "other", channel="d")
    add(db, "c")
    assert db.read(outbox.seconds_until_due, "c") == 0.0
    found = lease(db, "me")
    assert ids(found) == ["a", "b", "c"]
    assert (found[0].payload, found[0].context, found[0].attempts) == (FIELDS["payload"], FIELDS["context"], 0)


def test_leased_notifications_are_not_leased_again(db: Database) -> None:
    add(db, "a", "b", "c")
    assert ids(lease(db, "me", limit=2)) == ["a", "b"]
    assert lease(db, "other") == [], "the order is kept: nothing overtakes the oldest one"
    wait = db.read(outbox.seconds_until_due, "c")
    assert wait is not None and 0 < wait <= 60


def test_settled_notifications_are_gone_and_the_others_are_free(db: Database) -> None:
    add(db, "a", "b", "c")
    found = lease(db, "me")
    db.write(outbox.settle_notifications, "me", [found[0].id], found[1].id, 0.0)
    again = lease(db, "other")
    assert ids(again) == ["b", "c"]
    assert [item.attempts for item in again] == [1, 0]


def test_failed_notification_holds_up_the_later_ones(db: Database) -> None:
    add(db, "a", "b")
    found = lease(db, "me")
    db.write(outbox.settle_notifications, "me", [], found[0].id, 60.0)
    assert lease(db, "other") == []


def test_notifications_of_a_lost_lease_stay_with_their_new_holder(db: Database) -> None:
    add(db, "a", "b")
    mine = lease(db, "me", seconds=-1)
    theirs = lease(db, "other")
    assert ids(mine) == ids(theirs) == ["a", "b"]
    db.write(outbox.settle_notifications, "me", [mine[0].id], mine[1].id, 0.0)
    assert db.read(outbox.count) == {"c": 2}
    assert lease(db, "third") == []
    db.write(outbox.settle_notifications, "other", [item.id for item in theirs], None, 0.0)
    assert db.read(outbox.count) == {}


@pytest.mark.parametrize(("most", "left"), [(3, ["a", "b", "c"]), (2, ["b", "c"]), (1, ["c"])])
def test_excess_is_dropped_from_the_oldest_on(db: Database, most: int, left: list[str]) -> None:
    add(db, "a", "b", "c")
    add(db, "other", channel="d")
    assert db.write(outbox.drop_excess, "c", most) == 3 - most
    assert ids(lease(db, "me")) == left
    assert db.read(outbox.count)["d"] == 1


def test_old_notifications_are_dropped(db: Database) -> None:
    add(db, "a")
    assert db.write(outbox.drop_old, 3600.0) == 0
    assert db.write(outbox.drop_old, -1.0) == 1
