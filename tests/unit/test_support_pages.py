"""Commands of pages are read as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import pages


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pages, "PAGES", tmp_path)
    return tmp_path / "page.md"


def test_blocks_of_a_section_are_its_commands(page: Path) -> None:
    page.write_text(
        "# Page\n```\nbefore\n```\n## One\ntext\n```\na --b  # why\nc '#d'\n\n```\n"
        "```ini\n# no command\n```\n- item\n\n    ```\n    indented\n    ```\n## Two\n```\nafter\n```\n"
    )
    assert pages.blocks("page.md", "One") == [["a --b", "c '#d'"], ["indented"]]


def test_comment_in_a_block_is_no_heading(page: Path) -> None:
    page.write_text("## One\n```\n# One: a comment\nfirst\n```\n```\nsecond\n```\n")
    assert pages.blocks("page.md", "One") == [["# One: a comment", "first"], ["second"]]


def test_section_without_commands_is_an_error(page: Path) -> None:
    page.write_text("## One\ntext\n## Two\n```\nafter\n```\n")
    with pytest.raises(AssertionError, match="no commands under 'One'"):
        pages.blocks("page.md", "One")


def test_pages_name_at_most_three_commands_for_a_controller_and_two_for_a_host() -> None:
    """The first command of each installs the package."""
    ((token, join),) = pages.blocks("howto/join-a-host.md", "With two commands")
    set_up, _ = pages.blocks("howto/install.md", "A controller with one command")
    assert (token, join) == ("nova-lite-manage host token", "nova-lite-setup compute TOKEN")
    assert 1 + len([*set_up, token]) <= 3 and 1 + len([join]) <= 2
