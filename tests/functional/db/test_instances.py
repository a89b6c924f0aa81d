"""The tests of tests/unit/conductor/test_db_instances.py, on each kind of database."""

from tests.unit.conductor.test_db_instances import *  # noqa: F403
