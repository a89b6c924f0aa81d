"""Daemons that no message reaches although they live and the broker answers: they notice, and connect again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest

from tests.functional import cloud
from tests.functional.proxy import Proxy
from tests.support.waiting import wait_for

#: The own heartbeats of library and broker find a dead connection, too, but after up to twice their threshold.
CONFIG = """
[rpc]
self_check_interval = 1
self_check_misses = 5
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 20
"""
NOTICED = "No messages reach"
ENDED = "The old server of"
HEALED = "is served over new connections"
#: Time to settle. Due commands are repeated every 3 s here. Until the broker drops a half-dead consumer, that consumer
#: gets every second message of its queue.
SETTLE_SECONDS = 180.0


class Site:
    def __init__(self, running: cloud.Cloud, proxy: Proxy) -> None:
        self.cloud = running
        self.proxy = proxy

    def ctl(self, *arguments: str) -> list[list[str]]:
        return [line.split("\t") for line in self.cloud.broker_control(*arguments).splitlines()]

    def delete_queue(self, queue: str) -> None:
        self.cloud.broker_control("delete_queue", "-p", self.cloud.vhost, queue)

    def unbind(self, queue: str) -> None:
        with kombu.Connection(f"amqp://guest:guest@127.0.0.1:5672/{self.cloud.vhost}") as connection:
            connection.default_channel.queue_unbind(queue, "nova_lite", queue)

    def hold(self, queue: str) -> None:
        """Stop all traffic of the connection that consumes the queue, in both directions."""
        vhost = ("-p", self.cloud.vhost)
        connections = dict(self.ctl("list_channels", *vhost, "pid", "connection"))
        # The broker lists all connections. A closing one has no port any more.
        ports = dict(row for row in self.ctl("list_connections", "pid", "peer_port") if len(row) == 2)
        (channel,) = [
            channel
            for name, channel in self.ctl("list_consumers", *vhost, "queue_name", "channel_pid")
            if name == queue
        ]
        self.proxy.hold(int(ports[connections[channel]]))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Proxy(5672) as proxy:
        path: Path = tmp_path_factory.mktemp("deaf")
        with cloud.running(path, broker_port=proxy.port, extra_config=CONFIG) as running:
            yield Site(running, proxy)


def count(running: cloud.Cloud, name: str, text: str) -> int:
    return running.log(name, 10000).count(text)


@pytest.mark.parametrize("fault", ["delete_queue", "unbind", "hold"])
def test_a_deaf_host_builds_all_the_same(site: Site, fault: str) -> None:
    """A build that it is at continues meanwhile, and is reported."""
    running = site.cloud
    running.control_host("compute-1", spawn_delay=8.0)
    slow = running.create("slow")
    wait_for("the host has begun", lambda: begun(running, slow[0]))
    running.control_host("compute-1")
    noticed, healed = count(running, "compute-1", NOTICED), count(running, "compute-1", HEALED)
    getattr(site, fault)("compute.compute-1")
    ids = running.create("late", count=2)
    found = running.wait_active([*slow, *ids], SETTLE_SECONDS)
    if fault == "delete_queue":  # the broker says so, and the library declares it again
        assert count(running, "compute-1", NOTICED) == noticed
    else:
        assert count(running, "compute-1", NOTICED) == noticed + 1
        assert count(running, "compute-1", HEALED) == healed + 1
    assert running.domains() == {key: item["OS-EXT-SRV-ATTR:host"] for key, item in found.items()}
    assert count(running, "compute-1", f"Instance {slow[0]}: took") == 1
    running.delete_all(SETTLE_SECONDS)
    wait_for("nothing is left", lambda: running.domains() == {})
    running.audit()


def begun(running: cloud.Cloud, server_id: str) -> bool:
    return count(running, "compute-1", f"Instance {server_id}: building") > 0


@pytest.mark.parametrize("name", ["conductor", "scheduler"])
def test_a_deaf_controller_serves_again(site: Site, name: str) -> None:
    """Messages that arrive while the controller reconnects may be lost; their callers get an error."""
    running = site.cloud
    noticed = count(running, name, NOTICED)
    site.unbind(name)
    wait_for(f"{name} notices", lambda: count(running, name, NOTICED) == noticed + 1)
    wait_for("the old server has ended", lambda: count(running, name, ENDED) == noticed + 1)
    running.wait_active(running.create(), SETTLE_SECONDS)
    running.delete_all(SETTLE_SECONDS)
    assert count(running, name, NOTICED) == noticed + 1
    assert "Traceback" not in running.log(name, 10000)
