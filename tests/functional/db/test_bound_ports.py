"""The tests of tests/unit/db/network/test_bound_ports.py, on each kind of database."""

from tests.unit.db.network.test_bound_ports import *  # noqa: F403
