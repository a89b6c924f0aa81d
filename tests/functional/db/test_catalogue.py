"""The tests of tests/unit/db/core/test_catalogue.py, on each kind of database."""

from tests.unit.db.core.test_catalogue import *  # noqa: F403
