"""The mark on each thing that a file has made: only marked things are changed or deleted.

It is at the end of the description, ``[nova-lite-apply:CLOUD/NAME]``. Server groups and backup policies have it in
their names, and key pairs in the comment of the public key.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

PREFIX = "nova-lite-apply"
#: Names of files' clouds, and of things.
CLOUD = r"^[a-z0-9][a-z0-9-]{0,30}\Z"
NAME = r"^[A-Za-z0-9_][A-Za-z0-9_. -]{0,62}\Z"

_MARK = re.compile(rf"(?:^|\s)\[{PREFIX}:([a-z0-9-]+)/([A-Za-z0-9_. -]+)(?:#([0-9a-f]{{12}}))?\]$")
_KEY_MARK = re.compile(rf"\s{PREFIX}:([a-z0-9-]+)$")


class Marked(NamedTuple):
    """A text with its mark. ``digest``: of data that the API does not show, such as user data."""

    text: str
    cloud: str
    name: str
    digest: str


def add(text: str, cloud: str, name: str, digest: str = "") -> str:
    """Return a description with the mark."""
    return f"{text} [{PREFIX}:{cloud}/{name}{'#' * bool(digest)}{digest}]".lstrip()


def read(text: str | None) -> Marked | None:
    """Return a description without its mark, and what the mark says. None: there is no mark."""
    found = _MARK.search(text or "")
    if text is None or found is None:
        return None
    return Marked(text[: found.start()], found[1], found[2], found[3] or "")


def add_to_key(public_key: str, cloud: str) -> str:
    return f"{public_key} {PREFIX}:{cloud}"


def read_key(public_key: str) -> tuple[str, str] | None:
    """Return a public key without its mark, and the file's cloud. None: there is no mark."""
    found = _KEY_MARK.search(public_key)
    return None if found is None else (public_key[: found.start()], found[1])


def digest(data: str | None) -> str:
    return "" if data is None else hashlib.sha256(data.encode()).hexdigest()[:12]
