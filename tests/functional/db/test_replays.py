"""Each message is accepted once, on each kind of database."""

from __future__ import annotations

from nova_lite.db.core import replay_cache
from nova_lite.db.core.engine import Database
from tests.unit.conductor.test_replay_cache import test_expired_message_ids_are_deleted  # noqa: F401


def test_a_message_is_taken_once(db: Database) -> None:
    assert [db.write(replay_cache.message_taken, number * 32) for number in "121"] == [True, True, False]
