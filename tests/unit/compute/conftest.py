from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.compute_host import Host


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)
