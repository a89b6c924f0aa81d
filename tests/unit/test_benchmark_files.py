"""The files of `benchmarks/`, which no type checker reads."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).resolve().parents[2] / "benchmarks").glob("*.py"))
ROOTS = ("nova_lite", "tests", "benchmarks")


def missing(source: str) -> list[str]:
    """Return the names that a file imports from this project and that are not there."""
    wanted = [
        (node.module, alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ROOTS
        for alias in node.names
    ]
    return [f"{module}.{name}" for module, name in wanted if not is_there(module, name)]


def is_there(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    try:
        importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return False
    return True


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_names_that_a_benchmark_imports_exist(file: Path) -> None:
    assert missing(file.read_text()) == []


def test_name_that_was_moved_away_is_found() -> None:
    assert missing("from tests.support.guests import make_flavor, moved") == ["tests.support.guests.moved"]
