"""The tests of tests/unit/conductor/test_db_usage.py, on each kind of database."""

from tests.unit.conductor.test_db_usage import *  # noqa: F403
