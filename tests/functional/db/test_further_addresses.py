"""The tests of tests/unit/db/network/test_further_addresses.py, on each kind of database."""

from tests.unit.db.network.test_further_addresses import *  # noqa: F403
