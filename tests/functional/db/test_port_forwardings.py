"""The tests of tests/unit/db/network/test_port_forwardings.py, on each kind of database."""

from tests.unit.db.network.test_port_forwardings import *  # noqa: F403
