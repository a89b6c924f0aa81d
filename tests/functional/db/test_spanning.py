"""The tests of tests/unit/db/network/test_spanning.py, on each kind of database."""

from tests.unit.db.network.test_spanning import *  # noqa: F403
