"""Maps: README's table names each room, and the docstring of a package with wings names each of its modules once."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import nova_lite

ROOT = Path(nova_lite.__file__).parent
#: Packages whose docstring is the map of their modules, and that of each wing.
WITH_WINGS = ("conductor", "db", "rpcapi")


def modules(directory: Path) -> set[str]:
    files = {path.stem for path in directory.glob("*.py")} - {"__init__"}
    return files | {path.parent.name for path in directory.glob("*/__init__.py")}


def wings() -> list[str]:
    found = []
    for room in WITH_WINGS:
        found.append(room)
        found += [f"{room}/{path.parent.name}" for path in (ROOT / room).glob("*/__init__.py")]
    with_own_map = ("conductor/engine", "conductor/operations", "conductor/notifications", "db/migrations")
    return sorted(set(found) - set(with_own_map))


@pytest.mark.parametrize("wing", wings())
def test_map_of_a_wing_names_each_module_once(wing: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / wing / "__init__.py").read_text())) or ""
    rows = Counter(re.findall(r"^- `(\w+)`: ", text, re.MULTILINE))
    assert rows == dict.fromkeys(modules(ROOT / wing), 1)


def test_table_of_the_readme_names_each_room_once() -> None:
    readme = (ROOT.parent / "README.md").read_text()
    first_columns = " ".join(re.findall(r"^\| (`nova_lite/[^|]*) \|", readme, re.MULTILINE))
    rows = Counter(re.findall(r"`nova_lite/(\w+)`", first_columns))
    assert rows == dict.fromkeys((path.parent.name for path in ROOT.glob("*/__init__.py")), 1)


def test_conductor_and_database_have_wings_of_the_same_names() -> None:
    own = {"engine", "operations", "notifications"}
    assert {path.parent.name for path in (ROOT / "conductor").glob("*/__init__.py")} - own <= modules(ROOT / "db")
