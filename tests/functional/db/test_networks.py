"""The tests of tests/unit/db/test_networks.py, on each kind of database."""

from tests.unit.db.test_networks import *  # noqa: F403
