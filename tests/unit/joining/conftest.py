"""Fixtures of a cloud that hosts can join, over a real database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import database
from tests.support.join_site import Site

bus, conductor, conf, db = database.bus, database.conductor, database.conf, database.db
empty_database, manager = database.empty_database, database.manager


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    made = Site(*map(request.getfixturevalue, ("conf", "db", "conductor")), tmp_path)
    yield made
    made.stop()
