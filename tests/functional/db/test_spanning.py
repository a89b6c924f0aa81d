"""The tests of tests/unit/conductor/test_db_spanning.py, on each kind of database."""

from tests.unit.conductor.test_db_spanning import *  # noqa: F403
