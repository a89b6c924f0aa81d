"""The tests of tests/unit/db/servers/test_instances.py, on each kind of database."""

from tests.unit.db.servers.test_instances import *  # noqa: F403
