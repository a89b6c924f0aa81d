"""Restart of each daemon of a single controller under many requests: they wait, and none is refused.

``NOVA_LITE_LONG=1`` adds a machine with a load of 20.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.clients import Clients, CloudWithSockets

#: More than the threads of all workers, so that requests wait for one.
READERS = 120
#: Seconds for which a daemon is away: so long it starts on a busy machine.
AWAY_SECONDS = 9.0
#: The defaults: tests have shorter ones.
DEFAULTS = "[DEFAULT]\nrpc_response_timeout = 20\nservice_down_time = 60\n"
SPINNERS = [0, *([20] if os.environ.get("NOVA_LITE_LONG") == "1" else [])]


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[CloudWithSockets]:
    made = CloudWithSockets(tmp_path, None, (), DEFAULTS)
    try:
        made.make()
        made.start_all()
        yield made
    finally:
        made.destroy()


@pytest.fixture(params=SPINNERS)
def busy(request: pytest.FixtureRequest) -> Iterator[int]:
    """Keep the machine busy with so many processes."""
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(request.param)]
    try:
        yield request.param
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@pytest.mark.timeout(600)
def test_daemons_restarted_one_by_one_under_load_refuse_no_request(cloud: CloudWithSockets, busy: int) -> None:
    clients = Clients(cloud, READERS)
    try:
        for name in ("conductor", "scheduler", "compute-1", "api"):
            clients.wait_for_more(2 * READERS)
            clients.phase = f"{name} is away"
            assert cloud.stop(name) == 0
            time.sleep(0.0 if busy else AWAY_SECONDS)  # the fault
            cloud.start_and_wait(name)
            clients.phase = f"{name} is back"
        clients.wait_for_more(2 * READERS)
    finally:
        clients.stop()
    kinds = Counter(re.sub(r"servers/[^: ?]+|after .*", "", failure) for failure in clients.failures)
    print(f"\n{clients.total()} requests, {len(clients.failures)} failed; {dict(clients.answers)}; {dict(kinds)}")
    assert clients.failures == []
