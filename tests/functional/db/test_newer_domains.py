"""The tests of tests/unit/db/servers/test_newer_domains.py, on each kind of database."""

from tests.unit.db.servers.test_newer_domains import *  # noqa: F403
