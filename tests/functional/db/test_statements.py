"""The tests of tests/unit/conductor/test_statements.py, on each kind of database."""

from tests.unit.conductor.test_statements import *  # noqa: F403
