"""The tests of tests/unit/conductor/engine/test_statements.py, on each kind of database."""

from tests.unit.conductor.engine.test_statements import *  # noqa: F403
