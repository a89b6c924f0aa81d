"""Generated reference pages equal what the code generates. If not, run ``tools/pages``."""

from __future__ import annotations

import importlib.util
import pathlib
from types import ModuleType

import pytest
import yaml

from nova_lite.base import exceptions
from nova_lite.cmd import manage
from nova_lite.cmd.manage import pages
from nova_lite.conf import opts

TOP = pathlib.Path(__file__).parents[3]
REFERENCE = TOP / "docs" / "reference"


def test_configuration_page_equals_generated_text() -> None:
    assert (REFERENCE / "configuration.md").read_text() == pages.configuration(opts.list_opts())


def test_cli_page_equals_generated_text() -> None:
    assert (REFERENCE / "cli.md").read_text() == pages.commands(manage.parser())


def test_errors_page_equals_generated_text() -> None:
    assert (REFERENCE / "errors.md").read_text() == pages.errors()


def test_messages_page_equals_generated_text() -> None:
    assert (REFERENCE / "messages.md").read_text() == pages.messages()


def test_configuration_page_has_every_option() -> None:
    text = pages.configuration(opts.list_opts())
    for group, options in opts.list_opts():
        section = text.partition(f"## [{group}]\n")[2].partition("\n## ")[0]
        assert all(f"- **`{opt.dest}`**" in section for opt in options), group


@pytest.mark.parametrize("name", ["QuotaExceeded", "InstanceNotFound", "NoValidHost"])
def test_errors_page_has_class(name: str) -> None:
    assert hasattr(exceptions, name)
    assert f"**`{name}`**" in pages.errors()


def index_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("index", TOP / "tools" / "index.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_lists_of_the_index_equal_generated_text() -> None:
    program = index_program()
    _, mark, lists = (TOP / "docs" / "index.md").read_text().partition(program.MARK)
    assert mark + lists == program.lists()


def test_menu_and_index_list_each_page_once() -> None:
    menu = yaml.safe_load((TOP / "mkdocs.yml").read_text())["nav"]
    pages = sorted(str(path.relative_to(TOP / "docs")) for path in (TOP / "docs").rglob("*.md"))
    assert sorted(_pages(menu)) == pages
    lists = index_program().lists()
    assert [page for page in pages if lists.count(f"]({page})") != 1] == ["index.md"]


def _pages(menu: object) -> list[str]:
    if isinstance(menu, str):
        return [menu]
    assert isinstance(menu, dict | list)
    return [page for entry in (menu.values() if isinstance(menu, dict) else menu) for page in _pages(entry)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("# Title\n\nA [link](x.md) and\nmore. Next.", "A link and more."),
        ("<!-- Made -->\n# Title\n\n`name` does it.", "`name` does it."),
        ("# Title\n\n| a | b |\n", ""),
        ("# Title\n\nRun this:\n\n```", ""),
    ],
)
def test_start_of_a_page_is_its_first_sentence(text: str, sentence: str) -> None:
    assert index_program().start_of(text) == ("Title", sentence)
