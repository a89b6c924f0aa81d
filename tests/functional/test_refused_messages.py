"""Messages that the broker refuses (basic.nack), as it does while the copies of a queue choose a leader, and messages
on a connection that stands still.
"""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import amqp.channel
import amqp.spec
import amqp.transport
import oslo_messaging as messaging
import pytest
from oslo_config import cfg
from oslo_messaging._drivers import impl_rabbit

from nova_lite.rpc import patches
from tests.functional.cloud import rabbitmqctl
from tests.functional.proxy import Proxy
from tests.support.rpc_conf import make_conf

TOPIC = "refusing"
#: A queue with this policy refuses each message.
FULL = '{"max-length":0,"overflow":"reject-publish"}'


class Endpoint:
    def echo(self, context: dict[str, Any], value: int) -> int:
        return value


class Bus:
    """A client and a server of one topic, on a virtual host of their own. ``proxy``: leads to the broker."""

    proxy: Proxy

    def __init__(self, conf: cfg.ConfigOpts, vhost: str, port: int, brokers: int = 1) -> None:
        self._vhost = vhost
        addresses = ",".join([f"guest:guest@127.0.0.1:{port}"] * brokers)
        self._transport = messaging.get_rpc_transport(conf, f"rabbit://{addresses}/{vhost}")
        target = messaging.Target(topic=TOPIC, server="here")
        self._server = messaging.get_rpc_server(self._transport, target, [Endpoint()])
        self._server.start()
        self._client = messaging.get_rpc_client(self._transport, messaging.Target(topic=TOPIC), retry=0, timeout=20)

    def call(self, value: int, timeout: float = 20) -> int:
        # Daemons send in this way: each message is confirmed, or the call fails.
        options = messaging.TransportOptions(at_least_once=True)
        client = self._client.prepare(transport_options=options, timeout=timeout)
        return int(client.call({}, "echo", value=value))

    def refuse(self) -> None:
        rabbitmqctl("set_policy", "-p", self._vhost, "full", f"^{TOPIC}$", FULL, "--apply-to", "queues")

    def accept(self) -> None:
        rabbitmqctl("clear_policy", "-p", self._vhost, "full")

    def close(self) -> None:
        self._server.stop()
        self._server.wait()
        self._transport.cleanup()


@pytest.fixture
def bus(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Bus]:
    """Return a bus. The parameter is the number of its brokers, by default one."""
    patches.install()
    vhost = f"nova-lite-test-{uuid.uuid4().hex[:12]}"
    rabbitmqctl("add_vhost", vhost)
    rabbitmqctl("set_permissions", "-p", vhost, "guest", ".*", ".*", ".*")
    with Proxy(5672) as proxy:
        made = Bus(make_conf(tmp_path), vhost, proxy.port, getattr(request, "param", 1))
        made.proxy = proxy
        try:
            yield made
        finally:
            made.close()
            rabbitmqctl("delete_vhost", vhost)


def wait_until_refused(bus: Bus) -> None:
    """Wait until the policy is in force, which takes the broker a moment."""
    for _ in range(100):
        try:
            bus.call(0)
        except messaging.MessageDeliveryFailure:
            return
    raise AssertionError("the broker refuses nothing")


def test_connection_stays_usable_after_the_broker_has_refused_a_message(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "REFUSED_ATTEMPTS", 1)
    assert bus.call(1) == 1
    bus.refuse()
    wait_until_refused(bus)
    with pytest.raises(messaging.MessageDeliveryFailure):
        bus.call(2)
    bus.accept()
    assert _soon(lambda: bus.call(3)) == 3
    assert [bus.call(value) for value in range(3)] == [0, 1, 2]


def test_message_that_the_broker_refuses_for_a_moment_is_delivered(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bus.call(1) == 1
    bus.refuse()
    with monkeypatch.context() as patch:
        patch.setattr(patches, "REFUSED_ATTEMPTS", 1)
        wait_until_refused(bus)
    monkeypatch.setattr(patches, "REFUSED_ATTEMPTS", 600)
    accepting = threading.Thread(target=bus.accept)
    accepting.start()
    assert bus.call(2) == 2
    accepting.join()


def _soon(call: Callable[[], int]) -> int:
    """Return the result of a call, as soon as the end of the policy is in force."""
    for _ in range(100):
        try:
            return call()
        except messaging.MessageDeliveryFailure as error:
            assert "already closed" not in str(error)
    raise AssertionError("the broker continues to refuse")


@pytest.mark.parametrize("is_first", [False, True], ids=["later message", "first message"])
@pytest.mark.parametrize("bus", [1, 2], indirect=True, ids=["one broker", "two brokers"])
def test_connection_on_which_a_message_was_not_confirmed_in_time_is_reset_and_not_used_again(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    assert bus.call(1) == 1
    held = Held(monkeypatch)
    publish = impl_rabbit.Connection._publish

    def hold_and_publish(used: Any, exchange: Any, *arguments: Any, **options: Any) -> None:
        if exchange.name and held.port is None:  # the default exchange leads to a caller's own queue: this is no reply
            held.port = port_of(used.channel.connection.transport)
            bus.proxy.hold(held.port)
            used._declared_exchanges = set() if is_first else {exchange.name}
        publish(used, exchange, *arguments, **options)

    monkeypatch.setattr(impl_rabbit.Connection, "_publish", hold_and_publish)
    with pytest.raises(messaging.MessageDeliveryFailure):
        bus.call(2, timeout=1)
    assert held.lingers == [(1, 0)], "the connection is reset"
    # A connection that is new asks for confirmations with its first message.
    waits = [wait for wait in held.waits if wait != (amqp.spec.Confirm.Select, 1.0)]
    assert waits == ([(amqp.spec.Exchange.Declare, 1.0)] if is_first else []), "its channels wait for nothing else"
    assert [bus.call(value) for value in range(4)] == [0, 1, 2, 3]
    bus.proxy.cut()  # else the end of the transport waits for held connections
    bus.proxy.restore()


def port_of(used: Any) -> int:
    return int(used.sock.getsockname()[1])


class Held:
    """The connection from ``port``. ``lingers``: with which it was closed. ``waits``: methods after which its channels
    wait for a reply, each with its time limit.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port: int | None = None
        self.lingers: list[tuple[int, ...]] = []
        self.waits: list[tuple[Any, float]] = []
        close, send = amqp.transport._AbstractTransport.close, amqp.channel.Channel.send_method

        def close_and_note(used: Any) -> None:
            if used.sock is not None and port_of(used) == self.port:
                linger = used.sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8)
                self.lingers.append(struct.unpack("ii", linger))
            close(used)

        def send_and_note(used: Any, method: Any, *arguments: Any, **options: Any) -> Any:
            transport = used.connection.transport
            if options.get("wait") and port_of(transport) == self.port:
                self.waits.append((method, transport.sock.gettimeout()))
            return send(used, method, *arguments, **options)

        monkeypatch.setattr(amqp.transport._AbstractTransport, "close", close_and_note)
        monkeypatch.setattr(amqp.channel.Channel, "send_method", send_and_note)
