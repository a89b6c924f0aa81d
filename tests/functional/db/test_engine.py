"""The tests of tests/unit/db/core/test_engine.py, on each kind of database."""

from tests.unit.db.core.test_engine import *  # noqa: F403
