"""More calls than threads, over RabbitMQ: what no caller waits for is not done, what is too much is refused."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import Flavor
from nova_lite.rpc import load_shedding
from nova_lite.rpc.transport import RpcServer
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.functional.cloud import rabbitmqctl
from tests.support.waiting import wait_for

USER = RequestContext(user_id="u", project_id="p")


class Slow:
    """A conductor whose database hangs until it may continue."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.done: list[str] = []

    def flavor_get(self, context: RequestContext, flavor_id: str) -> Flavor:
        assert self.may_end.wait(60)
        self.done.append(flavor_id)
        return Flavor(flavorid=flavor_id, name="f", vcpus=1, memory_mb=1, root_gb=1)

    def flavor_delete(self, context: RequestContext, flavor_id: str) -> None:
        self.done.append(flavor_id)

    def build_instances(self, context: RequestContext, instance_uuids: list[str]) -> None:
        self.done.extend(instance_uuids)


class Site:
    def __init__(self, transport: rpc.Transport) -> None:
        self.slow = Slow()
        self.transport = transport
        classify = rpc.contract_of(ConductorRPC).priority
        self.endpoint = rpc.Endpoint(ConductorRPC, self.slow, partial=True, classify=classify)
        self.server = RpcServer(transport, "c1", self.endpoint)
        self.server.start()
        self.conductor = rpc.proxy(ConductorRPC, transport)
        self.pool = futures.ThreadPoolExecutor(20)

    @property
    def workers(self) -> load_shedding.Workers:
        assert self.server.workers is not None
        return self.server.workers

    def ask(self, name: str) -> futures.Future[Any]:
        return self.pool.submit(self.conductor.flavor_get, USER, name)


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    """``param``: the callers' patience in seconds."""
    vhost = f"nova-lite-test-{uuid.uuid4().hex[:12]}"
    rabbitmqctl("add_vhost", vhost)
    rabbitmqctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    path = tmp_path / "nova-lite.conf"
    path.write_text(
        f"[DEFAULT]\ntransport_url = rabbit://guest:guest@127.0.0.1:5672/{vhost}\nexecutor_thread_pool_size = 4\n"
        f"rpc_response_timeout = {getattr(request, 'param', 30)}\n[rpc]\nmax_waiting = 4\nlongest_wait = 30\n"
    )
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(["--config-file", str(path)], project="nova-lite", default_config_files=[])
    transport = rpc.Transport(conf)
    made = Site(transport)
    try:
        yield made
    finally:
        made.slow.may_end.set()
        made.pool.shutdown()
        made.server.stop()
        made.server.wait()
        transport.cleanup()
        conf.reset()
        rabbitmqctl("delete_vhost", vhost)


def test_calls_that_arrive_while_a_server_stops_are_left_to_the_next_one(site: Site) -> None:
    """The first server has a call to finish. It takes no further calls, and loses none when it closes."""
    running = site.ask("running")
    wait_for("it is begun", lambda: site.workers.queue.running == 1)
    site.server.stop()
    later = [site.ask(f"later-{number}") for number in range(3)]
    next_server = RpcServer(site.transport, "c1", site.endpoint)
    wait_for("they wait in the broker", lambda: site.transport.depth("conductor") == 3, timeout=20)
    site.slow.may_end.set()
    site.server.wait()
    site.server = next_server
    next_server.start()
    assert [call.result(30).flavorid for call in (running, *later)] == ["running", "later-0", "later-1", "later-2"]
    assert sorted(site.slow.done) == ["later-0", "later-1", "later-2", "running"], "each is done once"


@pytest.mark.parametrize("site", [2], indirect=True)
def test_calls_that_nobody_waits_for_are_not_carried_out(site: Site) -> None:
    """Three threads have reads, the fourth is kept for what is urgent; the other reads wait."""
    running = [site.ask(f"running-{number}") for number in range(3)]
    wait_for("they are begun", lambda: site.workers.queue.running == 3)
    waiting = [site.ask(f"waiting-{number}") for number in range(3)]
    for item in (*running, *waiting):
        with pytest.raises(exceptions.MessagingUnavailable):
            item.result(30)
    site.conductor.build_instances(USER, ["nudge"])
    site.slow.may_end.set()
    wait_for("all are dropped", lambda: site.workers.expired == 3)
    assert site.ask("after").result(30).flavorid == "after"
    assert sorted(site.slow.done) == ["after", "nudge", "running-0", "running-1", "running-2"]


def test_the_socket_tells_what_was_not_read(site: Site) -> None:
    """oslo.messaging keeps the socket. Without it, calls start while others cannot even be read."""
    server: Any = site.server._server
    sock = server.listener._poll_style_listener.conn.channel.connection.sock
    assert sock.fileno() > 0
    wait_for("all is read", lambda: server._unread() is False)


def test_overload_excess_is_refused_at_once_and_deletes_succeed(site: Site) -> None:
    running = [site.ask(f"running-{number}") for number in range(3)]
    wait_for("they are begun", lambda: site.workers.queue.running == 3)
    waiting = [site.ask(f"waiting-{number}") for number in range(4)]
    wait_for("they wait", lambda: site.workers.queue.waiting == 4)
    started = time.monotonic()
    with pytest.raises(exceptions.ServiceUnavailable) as refused:
        site.ask("too-much").result(30)
    assert load_shedding.is_overloaded(refused.value)
    assert refused.value.message.startswith("The control plane has more to do than it can")
    site.conductor.flavor_delete(USER, "deleted")
    assert time.monotonic() - started < 10, "neither had to wait for a timeout"
    site.slow.may_end.set()
    assert len([item.result(30) for item in (*running, *waiting)]) == 7
    assert "deleted" in site.slow.done
    assert "too-much" not in site.slow.done
