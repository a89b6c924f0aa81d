"""A broker for schedulers, and a scripted conductor."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.objects import HostState, HostVersion
from tests.functional.cloud import rabbitmqctl

CONTEXT = get_admin_context()


class Conductor:
    """A conductor as far as a scheduler needs one."""

    def __init__(self, hosts: list[HostState]) -> None:
        self.hosts = hosts
        self.heard = threading.Event()

    def host_states_get(
        self, context: RequestContext, after: int = 0, limit: int | None = None, ids: list[int] | None = None
    ) -> list[HostState]:
        if ids is not None:
            return [state for state in self.hosts if state.id in ids]
        return [state for state in self.hosts if state.id > after][:limit]

    def host_versions_get(self, context: RequestContext, after: int = 0, limit: int | None = None) -> list[HostVersion]:
        states = [state for state in self.hosts if state.id > after][:limit]
        return [HostVersion(id=state.id, generation=state.generation, io_ops=state.io_ops) for state in states]

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
            "report_interval = 1\nrpc_response_timeout = 10\n[metrics]\nenabled = false\n"
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
