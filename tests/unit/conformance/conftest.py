"""Fixtures of the APIs, for tests of the second distribution."""

from __future__ import annotations

import pytest

from tests.support.identity_api import Admin, World
from tests.unit.api.conftest import api, conf
from tests.unit.api.identity.conftest import hashes, world

__all__ = ["admin", "api", "conf", "hashes", "world"]


@pytest.fixture
def admin(world: World) -> Admin:
    return Admin(world)
