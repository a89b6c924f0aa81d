"""The page on security names every option that has, or leads to, a secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nova_lite.conf import opts

PAGE = Path(__file__).parents[3] / "docs/explanation/security-model.md"
_SECRET = re.compile(r"(password|password_file|secret|secret_file|_key|key_file|keyfile|keys_directory|fencing_file)$")
#: Files of an earlier version, which nothing reads any more, and options of other things.
_NOT_SECRET = {"enable_instance_password", "tokens_path"}


def secrets() -> set[str]:
    options = [option for _, group in opts.list_opts() for option in group]
    names = {option.name for option in options if option.secret or _SECRET.search(option.name) or option.name == "key"}
    return {name for name in names if name not in _NOT_SECRET}


def table() -> list[list[str]]:
    section = PAGE.read_text().partition("## Long-lived secrets")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_table_names_each_option_of_a_secret() -> None:
    named = set(re.findall(r"[a-z_]+", " ".join(cell for row in table() for cell in row)))
    assert {"connection", "metadata_proxy_shared_secret", "encryption_key_file"} <= secrets()
    assert secrets() - named == set()


@pytest.mark.parametrize("row", table(), ids=lambda row: row[0])
def test_row_says_who_has_the_secret_and_how_it_ends(row: list[str]) -> None:
    assert len(row) == 5
    assert all(cell.strip() for cell in row)
