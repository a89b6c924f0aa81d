"""The tests of tests/unit/conductor/test_db_aggregates.py, on each kind of database."""

from tests.unit.conductor.test_db_aggregates import *  # noqa: F403
