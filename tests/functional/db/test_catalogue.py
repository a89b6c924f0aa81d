"""The tests of tests/unit/conductor/test_db_catalogue.py, on each kind of database."""

from tests.unit.conductor.test_db_catalogue import *  # noqa: F403
