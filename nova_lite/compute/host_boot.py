"""Whether this machine has booted since its daemon last compared its domains with the database.

By the kernel's boot id, which is remembered on disk: a machine that booted has no guest that runs, and the rows do not
say which of them were turned off by their owners and which lost their power.
"""

from __future__ import annotations

import os

from nova_lite.base import files

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class HostBoot:
    """``path``: the file that remembers the boot of which everything is known."""

    def __init__(self, path: str) -> None:
        self._path = path
        files.private_directory(os.path.dirname(path))

    def is_new(self) -> bool:
        """Whether the machine has booted since `settle`; no where nothing is remembered yet."""
        remembered = self._remembered()
        return remembered is not None and remembered != current()

    def settle(self) -> None:
        """What this boot meant for the guests is in the database."""
        if self._remembered() != current():
            files.write_atomically(self._path, current().encode())

    def _remembered(self) -> str | None:
        try:
            with open(self._path, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return None


def current() -> str:
    """The kernel's name of this boot."""
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
