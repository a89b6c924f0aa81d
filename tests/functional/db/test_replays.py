"""That a message is taken once, on each kind of database."""

from __future__ import annotations

from nova_lite.conductor.db import taken_messages
from nova_lite.conductor.db.engine import Database
from tests.unit.conductor.test_replays import test_ids_are_forgotten_when_their_time_is_over  # noqa: F401


def test_a_message_is_taken_once(db: Database) -> None:
    assert [db.write(taken_messages.message_taken, number * 32) for number in "121"] == [True, True, False]
