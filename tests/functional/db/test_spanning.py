"""The tests of tests/unit/db/test_spanning.py, on each kind of database."""

from tests.unit.db.test_spanning import *  # noqa: F403
