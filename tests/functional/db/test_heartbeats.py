"""The tests of tests/unit/conductor/hosts/test_heartbeats.py, on each kind of database."""

from tests.unit.conductor.hosts.test_heartbeats import *  # noqa: F403
