"""A small file system for the repository of backups, which can be full."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

PASSWORD, REPOSITORY = "backup-password", "repository"


@contextlib.contextmanager
def small(path: Path, megabytes: int = 32) -> Iterator[None]:
    """Provide the file system and the password below ``path``. Needs root."""
    (path / PASSWORD).touch(0o600)
    (path / PASSWORD).write_text("a password for tests\n")
    (path / REPOSITORY).mkdir()
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m"]
    subprocess.run(["mount", *options, "nova-lite-faults", path / REPOSITORY], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path / REPOSITORY], check=True)


def fill(repository: Path) -> Path:
    """Fill the file system, and return the file to remove afterwards."""
    ballast = repository / f"ballast-{threading.get_ident()}"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(os.urandom(size))
    return ballast
