"""The tests of tests/unit/db/hosts/test_placement.py, on each kind of database."""

from tests.unit.db.hosts.test_placement import *  # noqa: F403
