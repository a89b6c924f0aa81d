"""The tests of tests/unit/db/test_catalogue.py, on each kind of database."""

from tests.unit.db.test_catalogue import *  # noqa: F403
