"""The tests of tests/unit/db/servers/test_usage.py, on each kind of database."""

from tests.unit.db.servers.test_usage import *  # noqa: F403
