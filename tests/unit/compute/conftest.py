from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.compute.fakes import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)
