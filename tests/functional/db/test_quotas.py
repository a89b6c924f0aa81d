"""The tests of tests/unit/db/test_quotas.py, on each kind of database."""

from tests.unit.db.test_quotas import *  # noqa: F403
