"""The tests of tests/unit/db/trunks/test_trunk_rows.py, on each kind of database."""

from tests.unit.db.trunks.test_trunk_rows import *  # noqa: F403
