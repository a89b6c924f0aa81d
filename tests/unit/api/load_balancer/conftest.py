"""The load balancer API over a real conductor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.load_balancers import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.manager.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, dict[str, str]]]:
    """Yield a world with one part of each kind, and their ids. Tests change nothing."""
    made = World(tmp_path_factory.mktemp("shared"))
    made.add_host("host1")
    yield made, made.whole()
    made.manager.close()
