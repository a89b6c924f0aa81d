"""The tests of tests/unit/conductor/test_console_tokens.py, on each kind of database."""

from tests.unit.conductor.test_console_tokens import *  # noqa: F403
