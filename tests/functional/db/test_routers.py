"""The tests of tests/unit/db/network/test_routers.py, on each kind of database."""

from tests.unit.db.network.test_routers import *  # noqa: F403
