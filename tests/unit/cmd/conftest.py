"""The management command over an empty database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import make
from tests.support.made_up_schemas import contracts, next_migration
from tests.support.manage import Tool
from tests.support.migrated import migrate

__all__ = ["contracts", "next_migration", "tool"]


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tool:
    made = Tool(tmp_path, capsys)
    migrate(make.conf(made.database))
    return made
