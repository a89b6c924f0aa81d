"""The management command over an empty database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.manage import Tool


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    made = Tool(tmp_path, capsys)
    made("db", "sync")
    return made
