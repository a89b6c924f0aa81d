"""The tests of lists and lookups, on each kind of database."""

from __future__ import annotations

from tests.unit.db.core.test_pages import *  # noqa: F403
