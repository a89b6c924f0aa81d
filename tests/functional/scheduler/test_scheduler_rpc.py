"""The real scheduler daemon over RabbitMQ, in both concurrency modes; the test plays the conductor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.functional.scheduler.conftest import CONTEXT, Conductor
from tests.support.waiting import wait_for
from tests.unit.scheduler.builders import flavor, host, spec


@pytest.fixture(params=["threading", "eventlet"])
def log(request: pytest.FixtureRequest, config: Path, tmp_path: Path) -> Iterator[Path]:
    """Run a scheduler daemon during the test, and provide its log."""
    path = tmp_path / "scheduler.log"
    with path.open("wb") as stream:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "nova_lite.cmd.scheduler", "--config-file", str(config)],
            stdout=stream,
            stderr=stream,
            env=os.environ | {"NOVA_LITE_CONCURRENCY": request.param},
        )
    try:
        yield path
        daemon.terminate()
        assert daemon.wait(30) == 0
        assert "Traceback" not in path.read_text(), path.read_text()
    finally:
        daemon.kill()
        daemon.wait(10)


def test_a_scheduler_and_its_conductor(transport: Any, log: Path) -> None:
    scheduler = rpc.proxy(SchedulerRPC, transport)
    wait_for("the daemon serves", lambda: "is ready on host scheduler1" in log.read_text())
    with pytest.raises(exceptions.SchedulerNotReady):
        scheduler.select_destinations(CONTEXT, spec())

    conductor = Conductor([host(1), host(2, memory_mb_used=4096), host(3, up=False)])
    server = rpc.RpcServer(transport, "conductor1", rpc.Endpoint(ConductorRPC, conductor, partial=True))
    server.start()
    try:
        wait_for("the hosts are loaded", lambda: "Host states are loaded: 3 hosts" in log.read_text())
        assert conductor.heard.wait(10)
    finally:
        server.stop()
        server.wait()

    first, second = scheduler.select_destinations(CONTEXT, spec(2))
    assert (first.instance_uuid, second.instance_uuid) == ("uuid-0", "uuid-1")
    assert (first.selected.host, second.selected.host) == ("host1", "host1")
    assert [alternate.host for alternate in first.alternates] == ["host2"]

    with pytest.raises(exceptions.NoValidHost) as caught:
        scheduler.select_destinations(CONTEXT, spec(flavor=flavor(memory_mb=9000)))
    assert caught.value.message == (
        "No valid host was found. Of 3 hosts, 3 failed RamFilter (9000 MB requested, at most 8192 MB free)."
    )
    assert caught.value.kwargs["details"].startswith("RamFilter took out 3 of 3 hosts: host1 (9000 MB requested")

    scheduler.update_host_states(CONTEXT, [host(number, generation=2, disabled=True) for number in (1, 2, 4)])

    def refusal() -> str:
        try:
            scheduler.select_destinations(CONTEXT, spec())
        except exceptions.NoValidHost as error:
            return error.message
        return ""

    assert "Of 4 hosts, 4 failed ComputeFilter" in wait_for("the news have come", refusal)
