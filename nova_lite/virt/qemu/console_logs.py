"""Logs of serial consoles. qemu appends to them without a limit, so the daemon moves what is old aside."""

from __future__ import annotations

import os
import shutil

from nova_lite.base import files

CONSOLE_LOG = "console.log"
#: Size from which the content is moved to ``console.log.0``.
MAX_BYTES = 2 * 1024 * 1024


def prepare(directory: str) -> str:
    """Make the log unless it exists. Return its path."""
    path = os.path.join(directory, CONSOLE_LOG)
    with open(path, "ab", opener=files.private_opener):
        return path


def limit(directory: str, max_bytes: int = MAX_BYTES) -> None:
    """Move the content of a large log aside. qemu keeps its file, and appends to it."""
    path = os.path.join(directory, CONSOLE_LOG)
    if os.path.exists(path) and os.path.getsize(path) > max_bytes:
        with open(path, "r+b") as source, open(f"{path}.0", "wb", opener=files.private_opener) as target:
            source.seek(-max_bytes, os.SEEK_END)
            shutil.copyfileobj(source, target)
            source.truncate(0)
