"""The tests of tests/unit/conductor/engine/test_delete_batches.py, on each kind of database."""

from tests.unit.conductor.engine.test_delete_batches import *  # noqa: F403
