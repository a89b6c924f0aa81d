"""The tests of tests/unit/db/core/test_sessions.py, on each kind of database."""

from tests.unit.db.core.test_sessions import *  # noqa: F403
