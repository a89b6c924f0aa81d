"""The tests of tests/unit/conductor/test_db_audit.py, on each kind of database."""

from tests.unit.conductor.test_db_audit import *  # noqa: F403
