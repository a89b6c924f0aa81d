"""The tests of tests/unit/conductor/test_heartbeats.py, on each kind of database."""

from tests.unit.conductor.test_heartbeats import *  # noqa: F403
