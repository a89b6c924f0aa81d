"""The tests of tests/unit/db/network/test_networks.py, on each kind of database."""

from tests.unit.db.network.test_networks import *  # noqa: F403
