"""The tests of tests/unit/conductor/test_db_numa.py, on each kind of database."""

from tests.unit.conductor.test_db_numa import *  # noqa: F403
