"""The tests of tests/unit/db/test_races.py, on each kind of database."""

from tests.unit.db.test_races import *  # noqa: F403
