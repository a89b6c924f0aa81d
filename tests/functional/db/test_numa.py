"""The tests of tests/unit/db/test_numa.py, on each kind of database."""

from tests.unit.db.test_numa import *  # noqa: F403
