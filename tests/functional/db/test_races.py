"""The tests of tests/unit/conductor/test_db_races.py, on each kind of database."""

from tests.unit.conductor.test_db_races import *  # noqa: F403
