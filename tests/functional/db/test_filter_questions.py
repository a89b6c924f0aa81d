"""The tests of tests/unit/conductor/test_filter_queries.py, on each kind of database."""

from tests.unit.conductor.test_filter_queries import *  # noqa: F403
