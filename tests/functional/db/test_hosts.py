"""The tests of tests/unit/conductor/test_db_hosts.py, on each kind of database."""

from tests.unit.conductor.test_db_hosts import *  # noqa: F403
