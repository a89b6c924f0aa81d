"""Detection of a reboot of this machine since its daemon last compared its domains with the database.

After a reboot no guest runs. The database cannot distinguish guests that lost their power from guests that were off.
The kernel's boot id is remembered on disk.
"""

from __future__ import annotations

import logging
import os

from nova_lite.base import files

LOG = logging.getLogger(__name__)

BOOT_ID = "/proc/sys/kernel/random/boot_id"


class HostBoot:
    """Remembers the last reconciled boot in the file ``path``, whose name is the host's."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._host = os.path.basename(path)
        self._has_warned = False
        files.remove_unfinished(files.private_directory(os.path.dirname(path)), self._host)

    def is_new(self) -> bool:
        """Check whether the machine has booted since `mark_reconciled`. False if no boot is remembered yet."""
        remembered = self._remembered()
        return remembered is not None and remembered != current_boot_id()

    def mark_reconciled(self) -> None:
        """Remember that the effects of this boot on the guests are in the database."""
        if self._remembered() != current_boot_id():
            files.write_atomically(self._path, current_boot_id().encode(), writer=self._host)

    def _remembered(self) -> str | None:
        """Return the last reconciled boot, or None. A damaged file is one of an earlier boot: a power cut has damaged
        it."""
        try:
            with open(self._path, encoding="ascii") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            if not self._has_warned:
                LOG.warning("%s is damaged, so this machine counts as started again: %s", self._path, error)
            self._has_warned = True
            return ""


def current_boot_id() -> str:
    """Return the kernel's id of this boot."""
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()
