"""A killed test process takes its daemons with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.functional.cloud import ROOT
from tests.support.waiting import wait_for

#: A program with a ``main`` that starts at once and runs for two minutes.
DAEMON = ["timeit", "-n", "1", "-r", "1", "import time; time.sleep(120)"]
TEST = f"""
import os, time
from pathlib import Path
from tests.functional import nursery

print(nursery.start({DAEMON!r}, Path(os.devnull), dict(os.environ)).pid, flush=True)
time.sleep(120)
"""


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""


def test_daemon_of_a_killed_test_process_ends() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", TEST], stdout=subprocess.PIPE, env=environment
    ) as test:
        assert test.stdout is not None
        daemon = int(test.stdout.readline())
        alive = _command_of(daemon)
        test.kill()
    assert b"nursery" in alive
    wait_for("the daemon to end", lambda: b"nursery" not in _command_of(daemon), timeout=20)
