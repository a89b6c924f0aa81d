"""Generated reference pages equal what the code generates. If not, run ``tools/pages``."""

from __future__ import annotations

import pathlib

import pytest

from nova_lite.base import exceptions
from nova_lite.cmd import manage
from nova_lite.cmd.manage import pages
from nova_lite.conf import opts

REFERENCE = pathlib.Path(__file__).parents[3] / "docs" / "reference"


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
