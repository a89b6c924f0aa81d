"""The tests of tests/unit/db/core/test_prepared_queries.py, on each kind of database."""

from tests.unit.db.core.test_prepared_queries import *  # noqa: F403
