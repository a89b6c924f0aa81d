"""Commands of pages, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs"

_FENCE = "```"
#: A comment after a command. Two spaces at least, so that it is no part of a value.
_COMMENT = re.compile(r"\s{2,}# .*$")


def blocks(page: str, heading: str) -> list[list[str]]:
    """Return the commands of a section by fenced block. Blocks with a language, such as ``ini``, have none."""
    lines = (PAGES / page).read_text(encoding="utf-8").splitlines()
    inside = False
    found: list[list[str]] = []
    block: list[str] | None = None
    language = ""
    for line in lines:
        if line.strip().startswith(_FENCE):
            if block is None:
                block, language = [], line.strip().removeprefix(_FENCE)
            else:
                if inside and not language:
                    found.append(block)
                block = None
        elif block is not None:
            if command := _COMMENT.sub("", line).strip():
                block.append(command)
        elif line.startswith("#"):
            inside = line.lstrip("#").strip() == heading
    assert found, f"{page} has no commands under {heading!r}."
    return found
