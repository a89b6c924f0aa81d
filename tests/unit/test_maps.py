"""Maps: README's table names each room, a package's docstring each of its modules once, and the figures are true."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path

import pytest

import nova_lite

ROOT = Path(nova_lite.__file__).parent
TOP = ROOT.parent
SECOND = TOP / "conformance/nova_lite_conformance"
#: Packages without a map: README's table is the map of the whole, and migrations have numbers as names.
WITHOUT_MAP = (".", "db/migrations/versions")
#: Row of a list: the names of one or several modules, and a text.
ROW = re.compile(r"^- ((?:`\w+`(?:,\s+)?)+):\s", re.MULTILINE)
PATH = re.compile(r"^    (\S+)/(\w+)\.py  ", re.MULTILINE)


def modules(directory: Path) -> set[str]:
    files = {path.stem for path in directory.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in directory.glob("*/__init__.py")}


def packages() -> list[str]:
    names = sorted(str(path.parent.relative_to(ROOT)) for path in ROOT.rglob("__init__.py"))
    return [name for name in names if name not in WITHOUT_MAP]


def rows(package: str, text: str) -> Counter[str]:
    """Count the modules of a package in the rows of its map: items of a list, or paths in a literal block."""
    named = [name for names in ROW.findall(text) for name in re.findall(r"`(\w+)`", names)]
    return Counter([*named, *(name for folder, name in PATH.findall(text) if folder == package)])


@pytest.mark.parametrize("package", packages())
def test_map_of_a_package_names_each_module_once(package: str) -> None:
    text = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text())) or ""
    assert rows(package, text) == dict.fromkeys(modules(ROOT / package), 1)


def test_map_of_the_second_distribution_names_each_module_once() -> None:
    text = ast.get_docstring(ast.parse((SECOND / "__init__.py").read_text())) or ""
    assert rows("", text) == dict.fromkeys(modules(SECOND), 1)


def test_rows_of_a_map_are_items_and_paths() -> None:
    text = "Text of `d`.\n\n- `a`,\n  `b`: `e`\n- of `f`: text\n\n    x/c.py   text\n    y/g.py   text\n"
    assert rows("x", text) == Counter("abc")


def test_table_of_the_readme_names_each_room_once() -> None:
    readme = (TOP / "README.md").read_text()
    first_columns = " ".join(re.findall(r"^\| (`nova_lite/[^|]*) \|", readme, re.MULTILINE))
    found = Counter(re.findall(r"`nova_lite/(\w+)`", first_columns))
    assert found == dict.fromkeys((path.parent.name for path in ROOT.glob("*/__init__.py")), 1)


def test_conductor_and_database_have_wings_of_the_same_names() -> None:
    own = {"engine", "operations", "notifications"}
    assert {path.parent.name for path in (ROOT / "conductor").glob("*/__init__.py")} - own <= modules(ROOT / "db")


# --- figures of the page that lists the core

#: Most code lines of the core: a reader has to read them. Whoever raises it says why in the commit.
MOST_LINES = 19_136


def code_lines(path: Path) -> int:
    """Count the lines with code: no blank lines, comments or docstrings."""
    text = path.read_text()
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    kinds = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in kinds]
    return len({line for token in tokens for line in range(token.start[0], token.end[0] + 1)} - documented)


def core() -> list[tuple[list[Path], int]]:
    """Return the files and the figure of each row: folders and modules, the later ones inside of the first."""
    page = (TOP / "docs/explanation/how-it-works.md").read_text()
    found = []
    for cell, figure in re.findall(r"^\| (`[^|]*) \| ([\d,]+) \|", page, re.MULTILINE):
        first, *others = re.findall(r"`([\w/]+)`", cell)
        inner = [f"{first}/{name}" for name in others] if ":" in cell else [first, *others]
        files = [path for name in inner for path in (ROOT / name).rglob("*.py")]
        files += [ROOT / f"{name}.py" for name in inner if not (ROOT / name).is_dir()]
        found.append((files, int(figure.replace(",", ""))))
    return found


def test_figures_of_the_core_are_those_of_the_code() -> None:
    listed = core()
    assert len(listed) > 10
    assert all(files for files, _ in listed)
    counted = [sum(map(code_lines, files)) for files, _ in listed]
    wrong = [(str(files[0]), figure, lines) for (files, figure), lines in zip(listed, counted, strict=True)
             if abs(figure - lines) > max(100, lines / 10)]  # fmt: skip
    assert wrong == []


def test_core_is_not_larger_than_the_limit() -> None:
    assert sum(sum(map(code_lines, files)) for files, _ in core()) <= MOST_LINES


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/how-it-works.md"])
def test_pages_give_the_size_of_the_core_and_of_the_package(page: str) -> None:
    text = (TOP / page).read_text()
    total = sum(sum(map(code_lines, files)) for files, _ in core())
    (read,) = re.findall(r"^## Read these ([\d,]+) lines$", text, re.MULTILINE)
    assert abs(int(read.replace(",", "")) - total) <= 500
    everything = sum(map(code_lines, ROOT.rglob("*.py")))
    (package,) = re.findall(r"package has (?:about )?([\d,]+) lines of code", text)
    assert abs(int(package.replace(",", "")) - everything) <= 3000
