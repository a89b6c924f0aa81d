"""The tests of tests/unit/db/test_audit.py, on each kind of database."""

from tests.unit.db.test_audit import *  # noqa: F403
