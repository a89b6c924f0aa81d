"""The tests of ports and of projects' networks, on each kind of database."""

from __future__ import annotations

from tests.unit.db.network.test_ports import *  # noqa: F403
