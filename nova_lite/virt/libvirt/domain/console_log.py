"""Output of a guest's serial console: a log file that virtlogd writes, limits and rotates."""

from __future__ import annotations

import os

from nova_lite.virt.driver import last_lines

#: Limit of the returned bytes: the text crosses the message bus and is read by a person.
MAX_BYTES = 256 * 1024


def tail(path: str, length: int | None, max_bytes: int = MAX_BYTES) -> str:
    """Return the last ``length`` lines (None: all) of the log at ``path`` and its rotated parts, at most ``max_bytes``.

    virtlogd renames a full ``path`` to ``path.0``, that to ``path.1``, and so on. Without a log the text is empty.
    """
    data = b""
    for part in _newest_first(path):
        data = _last_bytes(part, max_bytes - len(data)) + data
        if len(data) >= max_bytes:
            break
    text = data.decode("utf-8", errors="replace")
    return last_lines(text, length)


def _newest_first(path: str) -> list[str]:
    parts = [path] if os.path.exists(path) else []
    while os.path.exists(f"{path}.{len(parts) - 1}") and parts:
        parts.append(f"{path}.{len(parts) - 1}")
    return parts


def _last_bytes(path: str, count: int) -> bytes:
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - count))
        return file.read()
