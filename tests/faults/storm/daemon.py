"""Run a daemon of a storm: ``python -m tests.faults.storm.daemon SEED ORIGIN RULE nova_lite.cmd.DAEMON …``.

Its clocks run at a wrong rate, its machine has a boot id of its own, and its guard can have a full disk.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

from nova_lite.base import failpoints
from nova_lite.compute import host_boot
from nova_lite.compute.self_fencing import GuardClient
from tests.faults.history import daemon
from tests.faults.storm import clocks

#: Files of a host, in its state directory.
BOOT_ID, FULL = "boot-id", "disk-is-full"


def main() -> int:
    seed, origin = sys.argv.pop(1), float(sys.argv.pop(1))
    name = os.environ[failpoints.DAEMON]
    state = Path(sys.argv[sys.argv.index("--config-file") + 1]).parent / name
    rate = clocks.rate_of(seed, name)
    clocks.run_at(rate, origin)
    host_boot.BOOT_ID = str(state / BOOT_ID)

    def start_guard(self: GuardClient) -> None:
        words = [str(rate), str(origin), str(state / FULL), self.directory, *self._arguments]
        command = [sys.executable, "-W", "ignore", "-m", "tests.faults.storm.guard", *words]
        self._process = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)

    check = failpoints.check_disk

    def check_disk() -> None:
        if (state / FULL).exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        check()

    failpoints.check_disk = check_disk
    GuardClient._start = start_guard  # type: ignore[method-assign]
    return daemon.main()
