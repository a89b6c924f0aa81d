"""The tests of tests/unit/db/hosts/test_aggregates.py, on each kind of database."""

from tests.unit.db.hosts.test_aggregates import *  # noqa: F403
