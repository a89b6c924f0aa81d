"""The tests of tests/unit/conductor/operations/test_create_batches.py, on each kind of database."""

from tests.unit.conductor.operations.test_create_batches import *  # noqa: F403
