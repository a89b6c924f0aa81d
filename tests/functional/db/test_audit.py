"""The tests of tests/unit/db/upkeep/test_invariants.py, on each kind of database."""

from tests.unit.db.upkeep.test_invariants import *  # noqa: F403
