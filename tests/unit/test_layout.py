"""Test modules are leaves: what several of them use is in a module of its own. Tests patch no times."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: Modules here run the tests of a unit test module again, on each kind of database.
REPEATING = "tests.functional.db."


def imported_test_modules(source: str, module: str) -> list[str]:
    """Return what a module imports from test modules, as full names.

    A module of `REPEATING` may import tests, and all names at once.
    """
    names: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            origin = [*package, *([node.module] if node.module else [])]
            names += [".".join([*origin, alias.name]) for alias in node.names]
    found = [name for name in names if re.match(r"tests\.(\w+\.)*test_\w+", name)]
    return [
        name for name in found if not (module.startswith(REPEATING) and re.search(r"\.test_\w+\.(\*|test_\w+)$", name))
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tests.unit.conductor.test_lifecycle import World", "tests.unit.conductor.test_lifecycle.World"),
        ("from tests.unit.conductor import test_lifecycle", "tests.unit.conductor.test_lifecycle"),
        ("import tests.unit.conductor.test_lifecycle", "tests.unit.conductor.test_lifecycle"),
        ("from .test_lifecycle import *", "tests.unit.conductor.test_lifecycle.*"),
        ("from . import test_lifecycle", "tests.unit.conductor.test_lifecycle"),
        ("def late():\n    from .test_lifecycle import World", "tests.unit.conductor.test_lifecycle.World"),
    ],
)
def test_import_from_a_test_module_is_found(source: str, found: str) -> None:
    assert imported_test_modules(source, "tests.unit.conductor.test_rescue") == [found]


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        ("from tests.unit.db.test_ports import *", True),
        ("from tests.unit.db.test_ports import test_port_is_made", True),
        ("from tests.unit.db.test_ports import port", False),
        ("from tests.unit.db import test_ports", False),
    ],
)
def test_repeating_module_imports_only_tests(source: str, allowed: bool) -> None:
    assert (imported_test_modules(source, REPEATING + "test_ports") == []) is allowed


def test_no_module_imports_from_a_test_module() -> None:
    found = {}
    for path in TESTS.rglob("*.py"):
        module = ".".join(path.relative_to(TESTS.parent).with_suffix("").parts)
        if names := imported_test_modules(path.read_text(), module):
            found[module] = names
    assert found == {}


def test_support_imports_from_no_kind_of_tests() -> None:
    kinds = "|".join(path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "support")
    found = [
        f"{path.name}: {line}"
        for path in (TESTS / "support").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.match(rf"\s*(from|import) tests\.({kinds})\b", line)
    ]
    assert found == []


#: A patch of a constant whose name says that it is a time.
PATCHED_TIME = re.compile(
    r'setattr\(\s*[\w.]+,\s*"([A-Z_]*(SECONDS|INTERVAL|DELAY|PERIOD|TIMEOUT|WAIT|PAUSE|POLL|WINDOW|LIFETIME)[A-Z_]*)"'
)


def test_patch_of_a_time_is_found() -> None:
    assert PATCHED_TIME.findall('monkeypatch.setattr(glance, "RETRY_SECONDS", 0.1)') == [("RETRY_SECONDS", "SECONDS")]
    assert PATCHED_TIME.findall('monkeypatch.setattr(images, "FLATTEN_MEMORY", 1)') == []


def test_no_test_patches_a_time_of_a_daemon() -> None:
    """`nova_lite.base.timing` has these times. Fault tests may patch the times of their own judges."""
    found = {
        str(path.relative_to(TESTS)): names
        for path in TESTS.rglob("*.py")
        if "faults" not in path.parts and path != Path(__file__)
        if (names := PATCHED_TIME.findall(path.read_text()))
    }
    assert found == {}
