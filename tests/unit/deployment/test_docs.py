"""The documentation names what there is, and nothing else."""

from __future__ import annotations

import ast
import pathlib
import re
import shlex

import pytest

from nova_lite.cmd import manage
from nova_lite.db.core import models
from tests.model.protections import PROTECTIONS, Protection

TOP = pathlib.Path(__file__).parents[3]
PAGES = [TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", [*PAGES, TOP / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_paths_exist(page: pathlib.Path) -> None:
    """Paths of the repository in code font; NAME and braces stand for several."""
    for path in re.findall(r"`((?:nova_lite|conformance|etc|devstack|tests|docs)/[A-Za-z0-9_./-]+)`", page.read_text()):
        if not re.search(r"[A-Z]{4}|local\.conf$", path):
            assert (TOP / path).exists(), path


def manage_commands() -> list[str]:
    found = []
    for page in PAGES:
        if page.name == "cli.md":  # it shows usages, not commands
            continue
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
            lines = [line.split("#")[0].strip() for line in block.splitlines()]
            found += [line for line in lines if line.startswith("nova-lite-manage ")]
    return sorted(set(found))


@pytest.mark.parametrize("command", manage_commands())
def test_manage_command_is_understood(command: str) -> None:
    arguments = manage.parser().parse_args(shlex.split(command)[1:])
    assert callable(arguments.run)


def test_database_page_has_every_table() -> None:
    page = (TOP / "docs/reference/database.md").read_text()
    assert [name for name in models.Base.metadata.tables if f"`{name}`" not in page] == []


def test_there_are_commands_to_check() -> None:
    assert len(manage_commands()) > 3


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda protection: protection.rule)
def test_the_table_of_protections_says_where_each_is(protection: Protection) -> None:
    page = (TOP / "docs/contributing/protocol-model.md").read_text()
    row = f"| {protection.rule} | {protection.upholds} | {protection.code or 'planned'} |"
    assert any(line.startswith(row) for line in page.splitlines())
    for module in re.findall(r"[a-z_/]+\.py", protection.code):
        assert list((TOP / "nova_lite").rglob(module)), module


def _definitions(path: pathlib.Path) -> set[str]:
    """Return the names of a module's functions, classes and constants, and of the classes' methods (``Class.name``)."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names |= {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{item.name}" for item in node.body if isinstance(item, ast.FunctionDef)}
    return names


def _shared_options(page: pathlib.Path) -> str:
    """Return the lines that the examples of a page put into ``nova-lite.conf``, which holds no secrets."""
    found: list[str] = []
    for block in re.findall(r"^ *```ini\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE):
        shared = False
        for line in block.splitlines():
            if line.strip().startswith("#"):
                shared = "nova-lite.conf" in line
            elif shared:
                found.append(line)
    return "\n".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_examples_put_no_secret_into_the_shared_file(page: pathlib.Path) -> None:
    assert not re.search(r"password|secret|connection|transport_url", _shared_options(page), re.IGNORECASE)


def test_there_are_examples_of_the_shared_file() -> None:
    assert sum(bool(_shared_options(page)) for page in PAGES) > 3


CONTRIBUTING = sorted((TOP / "docs/contributing").glob("*.md"))


@pytest.mark.parametrize("page", CONTRIBUTING, ids=lambda page: page.name)
def test_shell_blocks_name_files_that_exist(page: pathlib.Path) -> None:
    assert [path for path in _paths_in_blocks(page) if not (TOP / path).exists()] == []


def test_there_are_paths_in_shell_blocks_to_check() -> None:
    assert sum(len(_paths_in_blocks(page)) for page in CONTRIBUTING) > 15


def _paths_in_blocks(page: pathlib.Path) -> list[str]:
    blocks = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), re.DOTALL | re.MULTILINE)
    path = r"(?<![^\s\"'=])(?:\./)?((?:nova_lite|etc|devstack|tests|docs|tools|benchmarks)/[\w./-]+)"
    return [found for language, block in blocks if not language for found in re.findall(path, block)]


def _named(page: pathlib.Path) -> list[tuple[str, str]]:
    """Return the modules that a page names with a name: "`module.py` `name`", "`name` of `module.py`", and the like."""
    return _named_in(page.read_text())


def _named_in(text: str) -> list[tuple[str, str]]:
    text = " ".join(text.split())
    path, name = r"`(nova_lite/[a-z_/]+\.py)`", r"`([A-Za-z_.]+)`"
    after = re.findall(rf"{path} {name}", text)
    before = re.findall(rf"{name} (?:of |in |\()(?={path})", text)
    return [*after, *((module, word) for word, module in before)]


@pytest.mark.parametrize("page", CONTRIBUTING, ids=lambda page: page.name)
def test_contributing_pages_name_functions_of_the_files_that_they_name(page: pathlib.Path) -> None:
    assert [(path, name) for path, name in _named(page) if name not in _definitions(TOP / path)] == []


def test_each_step_of_a_walk_names_a_function() -> None:
    steps = re.split(r"^(?=\d+\. |## |\*\*)", (TOP / "docs/contributing/walks.md").read_text(), flags=re.MULTILINE)
    numbered = [step for step in steps if step[0].isdigit()]
    assert len(numbered) > 60
    assert [step for step in numbered if not _named_in(step) and "[the create]" not in step] == []


def test_there_are_functions_to_check() -> None:
    counts = {page.stem: len(_named(page)) for page in CONTRIBUTING}
    assert counts["walks"] > 80
    assert counts["add-a-hardware-property"] > 1


def test_code_names_pages_that_exist() -> None:
    suffixes = (".py", ".sh", ".service", ".cfg", ".toml", ".yml")
    folders = ("nova_lite", "conformance", "tests", "etc", "devstack", "benchmarks", "tools")
    files = [path for folder in folders for path in (TOP / folder).rglob("*") if path.suffix in suffixes]
    named = {page for path in files for page in re.findall(r"docs/[a-z0-9/-]+\.md", path.read_text())}
    assert len(named) > 10
    assert {page for page in named if not (TOP / page).exists()} == set()
