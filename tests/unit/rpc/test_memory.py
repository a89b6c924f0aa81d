"""Messages between daemons of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import oslo_messaging
import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.futures import ResponseFuture
from nova_lite.objects import Flavor
from tests.support import make

CONTEXT = get_admin_context()


@rpc.service("compute", version="2.0")
class WorkerRPC(Protocol):
    def double(self, context: RequestContext, host: rpc.Receiver, flavor: Flavor) -> list[Flavor]: ...

    def later(self, context: RequestContext, host: rpc.Receiver) -> str: ...

    def wait(self, context: RequestContext, host: rpc.Receiver, timeout: rpc.Timeout) -> str: ...

    def fail(self, context: RequestContext, host: rpc.Receiver, expected: bool) -> None: ...

    @rpc.method(kind=rpc.CAST)
    def begin(self, context: RequestContext, host: rpc.Receiver) -> None: ...

    @rpc.method(kind=rpc.FANOUT)
    def announce(self, context: RequestContext) -> None: ...


class Worker:
    def __init__(self) -> None:
        self.may_end, self.begun, self.announced = threading.Event(), threading.Event(), threading.Event()
        self.response: ResponseFuture[str] = ResponseFuture()

    def double(self, context: RequestContext, flavor: Flavor) -> list[Flavor]:
        return [flavor, flavor]

    def later(self, context: RequestContext) -> str | ResponseFuture[str]:
        self.begun.set()
        return self.response

    def wait(self, context: RequestContext) -> str:
        assert self.may_end.wait(30)
        return "done"

    def fail(self, context: RequestContext, expected: bool) -> None:
        if expected:
            raise exceptions.FlavorNotFound(flavor_id="7")
        raise ValueError("a bug")

    def begin(self, context: RequestContext) -> None:
        assert self.may_end.wait(30)
        self.begun.set()

    def announce(self, context: RequestContext) -> None:
        self.announced.set()


class Cloud:
    """Two hosts and a client of them."""

    def __init__(self, path: Path) -> None:
        self.conf = make.conf("sqlite://", path)
        self.broker = rpc.MemoryBroker()
        self.workers = {name: Worker() for name in ("host1", "host2")}
        self.transport = self.broker.connect(self.conf, rpc.COMPUTE)
        self.servers = {
            name: self.transport.server(name, rpc.Endpoint(WorkerRPC, worker)) for name, worker in self.workers.items()
        }
        self.client = rpc.proxy(WorkerRPC, self.broker.connect(self.conf, rpc.CONDUCTOR))


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    cloud = Cloud(tmp_path)
    for server in cloud.servers.values():
        server.start()
    yield cloud
    for worker in cloud.workers.values():
        worker.may_end.set()
    for server in cloud.servers.values():
        server.stop()
        server.wait()


def test_call_returns_typed_reply(cloud: Cloud) -> None:
    flavor = Flavor(flavorid="1", name="m1", vcpus=1, memory_mb=64, root_gb=1)
    assert cloud.client.double(CONTEXT, "host1", flavor) == [flavor, flavor]


def test_call_expected_error_arrives_as_itself(cloud: Cloud) -> None:
    with pytest.raises(exceptions.FlavorNotFound) as caught:
        cloud.client.fail(CONTEXT, "host1", True)
    assert type(caught.value) is exceptions.FlavorNotFound
    assert "7" in caught.value.message


def test_call_unexpected_error_arrives_as_remote_error(cloud: Cloud) -> None:
    with pytest.raises(oslo_messaging.RemoteError) as caught:
        cloud.client.fail(CONTEXT, "host1", False)
    assert (caught.value.exc_type, caught.value.value) == ("ValueError", "a bug")


def test_call_without_reply_in_time_is_unavailable(cloud: Cloud) -> None:
    with pytest.raises(exceptions.MessagingUnavailable):
        cloud.client.wait(CONTEXT, "host1", 0.01)


def test_call_of_a_future_releases_its_thread(cloud: Cloud) -> None:
    replies: list[str] = []
    calling = threading.Thread(target=lambda: replies.append(cloud.client.later(CONTEXT, "host1")))
    calling.start()
    worker = cloud.workers["host1"]
    assert worker.begun.wait(30)
    cloud.servers["host1"].stop()
    cloud.servers["host1"].wait()  # no thread handles the call any more
    worker.response.set_result(lambda: "late")
    calling.join(30)
    assert replies == ["late"]


def test_cast_does_not_wait_for_its_server(cloud: Cloud) -> None:
    cloud.client.begin(CONTEXT, "host1")
    assert not cloud.workers["host1"].begun.is_set()
    cloud.workers["host1"].may_end.set()
    assert cloud.workers["host1"].begun.wait(30)
    assert not cloud.workers["host2"].begun.is_set()


def test_fanout_reaches_all_servers(cloud: Cloud) -> None:
    cloud.client.announce(CONTEXT)
    assert all(worker.announced.wait(30) for worker in cloud.workers.values())


@pytest.mark.parametrize("stopped", [False, True])
def test_message_without_server_is_unavailable(cloud: Cloud, stopped: bool) -> None:
    host = "host1" if stopped else "host3"
    if stopped:
        cloud.servers["host1"].stop()
    for send in (cloud.client.begin, cloud.client.later):
        with pytest.raises(exceptions.MessagingUnavailable):
            send(CONTEXT, host)


def test_fanout_without_server_is_no_error(tmp_path: Path) -> None:
    Cloud(tmp_path).client.announce(CONTEXT)


def test_depth_counts_waiting_messages(cloud: Cloud) -> None:
    from nova_lite.rpc import memory

    for _ in range(memory.MAX_THREADS + 3):
        cloud.client.begin(CONTEXT, "host1")
    waiting = threading.Event()
    while cloud.transport.depth("compute.host1") != 3:
        assert not waiting.wait(0.01)
    assert (cloud.transport.depth("compute"), cloud.transport.depth("compute.host2")) == (3, 0)
