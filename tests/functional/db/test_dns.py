"""The tests of zones and of names of guests, on each kind of database."""

from __future__ import annotations

from tests.unit.conductor.network.test_guest_names import *  # noqa: F403
from tests.unit.db.dns.test_zones import *  # noqa: F403
