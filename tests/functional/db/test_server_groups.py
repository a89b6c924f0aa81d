"""The tests of tests/unit/db/servers/test_server_groups.py, on each kind of database."""

from tests.unit.db.servers.test_server_groups import *  # noqa: F403
