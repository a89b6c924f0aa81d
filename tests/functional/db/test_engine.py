"""The tests of tests/unit/conductor/test_db_engine.py, on each kind of database."""

from tests.unit.conductor.test_db_engine import *  # noqa: F403
