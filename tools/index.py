#!/usr/bin/env python3
"""Prints the lists of ``docs/index.md``: each page of the menu in ``mkdocs.yml``, with its first heading and sentence.

``tools/pages`` runs it. The head of the page is handwritten, and a unit test compares the rest with this program.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from nova_lite.base import markdown

TOP = Path(__file__).resolve().parents[1]
MARK = "<!-- Made by `tools/index.py` from here on. -->"
#: Folders whose pages have a telling heading, and no sentence that stands alone.
WITHOUT_SENTENCE = ("adr",)


def lists() -> str:
    """Return a section for each part of the menu, and a smaller one for each group in it."""
    menu = yaml.safe_load((TOP / "mkdocs.yml").read_text())["nav"]
    return "\n\n".join([MARK, *_sections(menu, "##")]) + "\n"


def _sections(entries: list[dict[str, Any]], mark: str) -> Iterator[str]:
    """Yield the groups of a part of the menu. Its pages come first."""
    for entry in entries:
        ((title, content),) = entry.items()
        if isinstance(content, list):
            pages = [page for group in content for page in group.values() if isinstance(page, str)]
            yield "\n\n".join([f"{mark} {title}", *(["\n".join(map(item, pages))] if pages else [])])
            yield from _sections([group for group in content if not isinstance(next(iter(group.values())), str)], "###")


def item(page: str) -> str:
    """Return the row of one page."""
    heading, sentence = start_of((TOP / "docs" / page).read_text())
    if page.split("/")[0] in WITHOUT_SENTENCE:
        return markdown.item(f"[{heading}]({page})")
    if not sentence:
        raise SystemExit(f"docs/{page} has to begin with a sentence after its heading")
    return markdown.item(f"[{heading}]({page}): {sentence}")


def start_of(text: str) -> tuple[str, str]:
    """Return the first heading of a page and the first sentence after it, without links."""
    _, heading, body = re.split(r"^# (.+)$", text, maxsplit=1, flags=re.MULTILINE)
    paragraph = " ".join(body.strip().split("\n\n")[0].split())
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", paragraph)
    sentence = re.split(r"(?<=[.?!])\s+(?=[A-Z`\"*])", plain)[0]
    return heading, sentence if re.match(r"[A-Za-z`]", sentence) and sentence.endswith(".") else ""


if __name__ == "__main__":
    sys.stdout.write(lists())
