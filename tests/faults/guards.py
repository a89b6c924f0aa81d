"""Guards of the hosts of a cloud, which outlive their daemons."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path


def found(directory: Path) -> Iterator[int]:
    """Yield the processes of guards whose state is below a directory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            is_guard = b"nova_lite.compute.guard" in words or b"tests.faults.storm.guard" in words
            if is_guard and any(word.startswith(f"{directory}/".encode()) for word in words):
                yield int(path.parent.name)


def send(directory: Path, number: int) -> None:
    """Send a signal to the guards below a directory."""
    for pid in found(directory):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(directory: Path) -> None:
    send(directory, signal.SIGKILL)
