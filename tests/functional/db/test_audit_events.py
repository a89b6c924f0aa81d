"""The tests of the audit log, on each kind of database."""

from __future__ import annotations

from tests.unit.db.upkeep.test_audit_events import *  # noqa: F403
