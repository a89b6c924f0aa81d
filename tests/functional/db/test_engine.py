"""The tests of tests/unit/db/test_engine.py, on each kind of database."""

from tests.unit.db.test_engine import *  # noqa: F403
