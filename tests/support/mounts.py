"""Real mounts for tests, which end with them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

NO_MOUNTS = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


class Mounts:
    """Mounts that a test has made. `end` ends them, the newest first."""

    def __init__(self) -> None:
        self._places: list[Path] = []

    def bind(self, source: Path, place: Path) -> None:
        """Mount a directory or a file over another one of the same kind."""
        self._mount("--bind", str(source), place)

    def file_system(self, place: Path) -> None:
        """Mount an empty file system."""
        self._mount("--types=tmpfs", "tmpfs", place)

    def _mount(self, option: str, source: str, place: Path) -> None:
        subprocess.run(["mount", option, source, str(place)], check=True)
        self._places.append(place)

    def end(self) -> None:
        while self._places:
            subprocess.run(["umount", str(self._places.pop())], check=True)
