"""The tests of tests/unit/db/hosts/test_numa.py, on each kind of database."""

from tests.unit.db.hosts.test_numa import *  # noqa: F403
