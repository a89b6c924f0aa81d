"""The tests of tests/unit/db/load_balancer/test_rows.py, on each kind of database."""

from tests.unit.db.load_balancer.test_rows import *  # noqa: F403
