"""Fixture of the container that all tests of this directory share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.systemd.machine import Machine


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("machine") / "tree")
    yield made
    made.stop()
