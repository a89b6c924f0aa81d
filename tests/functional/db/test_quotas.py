"""The tests of tests/unit/conductor/test_db_quotas.py, on each kind of database."""

from tests.unit.conductor.test_db_quotas import *  # noqa: F403
