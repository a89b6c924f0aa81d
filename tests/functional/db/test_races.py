"""The tests of tests/unit/db/core/test_races.py, on each kind of database."""

from tests.unit.db.core.test_races import *  # noqa: F403
