"""The tests of tests/unit/db/test_usage.py, on each kind of database."""

from tests.unit.db.test_usage import *  # noqa: F403
