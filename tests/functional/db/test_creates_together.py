"""The tests of tests/unit/conductor/test_creates_together.py, on each kind of database."""

from tests.unit.conductor.test_creates_together import *  # noqa: F403
