"""The tests of tests/unit/conductor/test_db_networks.py, on each kind of database."""

from tests.unit.conductor.test_db_networks import *  # noqa: F403
