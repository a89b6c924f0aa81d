"""The real scheduler daemon over RabbitMQ, in both concurrency modes; the test plays the conductor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import HostState
from nova_lite.scheduler.rpcapi import SchedulerRPC
from tests.functional.cloud import rabbitmqctl, wait_for
from tests.unit.scheduler.builders import flavor, host, spec

CONTEXT = get_admin_context()


class Conductor:
    """A conductor as far as a scheduler needs one."""

    def __init__(self, hosts: list[HostState]) -> None:
        self.hosts = hosts
        self.heard = threading.Event()

    def host_states_get(self, context: RequestContext, after: int = 0, limit: int | None = None) -> list[HostState]:
        return [state for state in self.hosts if state.id > after][:limit]

    def report_service(self, context: RequestContext, host: str, binary: str, topic: str, version: str) -> None:
        assert (host, binary, topic) == ("scheduler1", "nova-scheduler", "scheduler")
        self.heard.set()


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Path]:
    """Provide the configuration of a vhost that exists while the test runs."""
    vhost = f"nova-lite-test-{uuid.uuid4().hex[:12]}"
    rabbitmqctl("add_vhost", vhost)
    try:
        rabbitmqctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
        path = tmp_path / "nova-lite.conf"
        path.write_text(
            f"[DEFAULT]\nhost = scheduler1\ntransport_url = rabbit://guest:guest@127.0.0.1:5672/{vhost}\n"
            "report_interval = 1\nstartup_retry_interval = 1\nrpc_response_timeout = 10\n[metrics]\nenabled = false\n"
        )
        yield path
    finally:
        rabbitmqctl("delete_vhost", vhost)


@pytest.fixture
def transport(config: Path) -> Iterator[Any]:
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(["--config-file", str(config)], project="nova-lite", default_config_files=[])
    transport = rpc.Transport(conf)
    yield transport
    transport.cleanup()
    conf.reset()


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
