"""The tests of tests/unit/conductor/test_filter_questions.py, on each kind of database."""

from tests.unit.conductor.test_filter_questions import *  # noqa: F403
