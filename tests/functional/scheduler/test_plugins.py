"""A package that pip installs adds a filter and a weigher to the real daemon, without a line of ours changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.rpcapi.scheduler import SchedulerRPC
from tests.functional.scheduler.conftest import CONTEXT, Conductor
from tests.support.waiting import wait_for
from tests.unit.scheduler.builders import host, spec

PACKAGE = Path(__file__).parents[2] / "plugin_package"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory that the package was installed into."""
    target = tmp_path_factory.mktemp("plugins")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--target", str(target), str(PACKAGE)], check=True)
    return target


def test_an_installed_filter_and_weigher_decide(config: Path, transport: Any, installed: Path, tmp_path: Path) -> None:
    with config.open("a") as stream:
        stream.write(
            "[scheduler]\nenabled_filters = ComputeFilter,RamFilter,QuietFilter\nweight_classes = NameWeigher\n"
        )
    conductor = Conductor([host(1), host(2, instances=["a", "b"]), host(3, instances=["a", "b", "c"])])
    server = rpc.RpcServer(transport, "conductor1", rpc.Endpoint(ConductorRPC, conductor, partial=True))
    server.start()
    log = tmp_path / "scheduler.log"
    with log.open("wb") as stream:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "nova_lite.cmd.scheduler", "--config-file", str(config)],
            stdout=stream,
            stderr=stream,
            env=os.environ | {"PYTHONPATH": str(installed)},
        )
    try:
        wait_for("the hosts are loaded", lambda: "Host states are loaded: 3 hosts" in log.read_text())
        scheduler = rpc.proxy(SchedulerRPC, transport)
        places = scheduler.select_destinations(CONTEXT, spec(2))
        assert [place.selected.host for place in places] == ["host2", "host1"]
        with pytest.raises(exceptions.NoValidHost, match=r"failed QuietFilter \(3 instances\)"):
            scheduler.select_destinations(CONTEXT, spec(9))
        daemon.terminate()
        assert daemon.wait(30) == 0
    finally:
        daemon.kill()
        daemon.wait(10)
        server.stop()
        server.wait()
