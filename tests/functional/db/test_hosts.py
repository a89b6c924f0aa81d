"""The tests of tests/unit/db/hosts/test_hosts.py, on each kind of database."""

from tests.unit.db.hosts.test_hosts import *  # noqa: F403
