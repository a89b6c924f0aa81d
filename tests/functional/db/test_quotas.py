"""The tests of tests/unit/db/core/test_quotas.py, on each kind of database."""

from tests.unit.db.core.test_quotas import *  # noqa: F403
