"""The tests of tests/unit/conductor/test_db_server_groups.py, on each kind of database."""

from tests.unit.conductor.test_db_server_groups import *  # noqa: F403
