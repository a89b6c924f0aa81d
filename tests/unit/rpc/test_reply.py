"""Replies are confirmed by the broker only over new connections, never to hosts, and futures are sent later."""

from __future__ import annotations

import contextlib
import os
import socket
import types
from collections.abc import Iterator
from typing import Any

import oslo_messaging as messaging
import pytest
from oslo_messaging._drivers import amqpdriver

from nova_lite.base import exceptions
from nova_lite.base.context import DaemonIdentity
from nova_lite.base.futures import ResponseFuture
from nova_lite.rpc import patches
from nova_lite.rpc.keys import API, COMPUTE
from nova_lite.rpc.signing import SENDER

HOST = DaemonIdentity(COMPUTE, "h1")


class Channel:
    """A channel of the broker. `basic_publish` waits for the confirmation."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.sent: list[tuple[str, Any]] = []

    def basic_publish(self, *arguments: Any, **options: Any) -> None:
        raise AssertionError("this one waits")

    def _basic_publish(self, message: Any, exchange: str, routing_key: str, **options: Any) -> None:
        assert exchange == ""
        if self.connection.error is not None:
            raise self.connection.error
        self.sent.append((routing_key, message["body"]))

    def prepare_message(self, body: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        return {"body": body}


class Connection:
    """A connection to the broker. ``others``: its channels after the first."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.others: list[Channel] = []
        ours, self.end = socket.socketpair()
        self.transport = types.SimpleNamespace(sock=ours, _read_buffer=b"")

    def channel(self) -> Channel:
        self.others.append(Channel(self))
        return self.others[-1]


class Oslo:
    """A connection of oslo.messaging. ``own``: the replies that oslo.messaging has sent."""

    def __init__(self) -> None:
        self.broker = Connection()
        self.channel: Channel | None = Channel(self.broker)
        self.own: list[tuple[Any, Any]] = []
        self._initial_pid = os.getpid()
        self._connection_lock = contextlib.nullcontext()

    @contextlib.contextmanager
    def get(self, purpose: str) -> Iterator[Any]:
        yield types.SimpleNamespace(connection=self)

    @property
    def plain(self) -> list[Any]:
        return [each for channel in self.broker.others for each in channel.sent]


@pytest.fixture
def oslo(monkeypatch: pytest.MonkeyPatch) -> Oslo:
    made = Oslo()

    def reply(message: Any, answer: Any = None, failure: Any = None) -> None:
        made.own.append((answer, failure))

    monkeypatch.setattr(amqpdriver.AMQPIncomingMessage, "reply", reply)
    monkeypatch.setattr(patches, "Producer", Producer)
    patches._reply_unconfirmed()
    patches._reply_later()
    return made


class Producer:
    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def publish(self, content: Any, exchange: str, routing_key: str) -> None:
        self.channel.basic_publish(self.channel.prepare_message(content), exchange=exchange, routing_key=routing_key)


class Message:
    def __init__(self, oslo: Oslo, sender: DaemonIdentity | None = HOST, is_call: bool = True) -> None:
        self.ctxt = {SENDER: sender}
        self.orig_msg_id = "m1" if is_call else None
        self.listener = types.SimpleNamespace(driver=types.SimpleNamespace(_get_connection=oslo.get))

    def reply(self, answer: Any = None, failure: Any = None) -> None:
        amqpdriver.AMQPIncomingMessage.reply(self, answer, failure)

    def _send_reply(self, connection: Any, answer: Any, failure: Any) -> None:
        connection.direct_send("reply_h1", failure or answer)


def test_reply_to_a_host_is_not_confirmed(oslo: Oslo) -> None:
    for answer in ("a", "b"):
        Message(oslo).reply(answer)
    Message(oslo).reply(failure="c")
    assert (oslo.plain, oslo.own) == ([("reply_h1", "a"), ("reply_h1", "b"), ("reply_h1", "c")], [])
    assert len(oslo.broker.others) == 1


def test_reply_channel_is_replaced_with_its_connection(oslo: Oslo) -> None:
    Message(oslo).reply("a")
    oslo.broker = Connection()
    oslo.channel = Channel(oslo.broker)
    Message(oslo).reply("b")
    assert oslo.plain == [("reply_h1", "b")]


@pytest.mark.parametrize("sender", [None, DaemonIdentity(API, "api")])
def test_reply_to_others_is_confirmed_while_the_connection_is_new(
    oslo: Oslo, sender: DaemonIdentity | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(patches.time, "monotonic", lambda: now)
    Message(oslo, sender).reply("a")
    now += patches.SETTLED_SECONDS - 1
    Message(oslo, sender).reply("b")
    assert (oslo.own, oslo.plain) == ([("a", None), ("b", None)], [])
    now += 1
    Message(oslo, sender).reply("c")
    assert oslo.plain == [("reply_h1", "c")]
    oslo.channel = Channel(oslo.broker)
    Message(oslo, sender).reply("d")
    assert (oslo.own[2:], oslo.plain) == ([("d", None)], [("reply_h1", "c")])


def test_reply_over_a_connection_that_the_broker_has_closed_is_confirmed(
    oslo: Oslo, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(patches.time, "monotonic", lambda: now)
    Message(oslo, DaemonIdentity(API, "api")).reply("new")
    now += patches.SETTLED_SECONDS
    Message(oslo, DaemonIdentity(API, "api")).reply("a")
    oslo.broker.end.close()
    Message(oslo, DaemonIdentity(API, "api")).reply("b")
    assert (oslo.own, oslo.plain) == ([("new", None), ("b", None)], [("reply_h1", "a")])


@pytest.mark.parametrize("why", ["no connection", "another process", "no call"])
def test_reply_that_needs_more_is_sent_by_oslo_messaging(oslo: Oslo, why: str) -> None:
    if why == "no connection":
        oslo.channel = None
    if why == "another process":
        oslo._initial_pid += 1
    Message(oslo, is_call=why != "no call").reply("a")
    assert (oslo.own, oslo.plain) == ([("a", None)], [])


def test_failed_reply_is_sent_again_by_oslo_messaging(oslo: Oslo) -> None:
    oslo.broker.error = ConnectionResetError("reset by the broker")
    Message(oslo).reply("a", None)
    assert (oslo.own, oslo.plain) == ([("a", None)], [])


@pytest.mark.parametrize("sender", [HOST, DaemonIdentity(API, "api")])
def test_future_is_sent_when_it_has_its_result(oslo: Oslo, sender: DaemonIdentity) -> None:
    later: ResponseFuture[str] = ResponseFuture()
    Message(oslo, sender).reply(later)
    assert not oslo.own and not oslo.plain
    later.set_result(lambda: "a")
    assert (oslo.plain, oslo.own) == (([("reply_h1", "a")], []) if sender is HOST else ([], [("a", None)]))


def test_future_with_an_error_is_sent_as_a_failure(oslo: Oslo) -> None:
    def expected() -> str:
        try:
            raise exceptions.HostForcedDown(host="h1")
        except exceptions.HostForcedDown:
            raise messaging.ExpectedException() from None

    def unexpected() -> str:
        raise LookupError("x")

    for get in (expected, unexpected):
        later: ResponseFuture[str] = ResponseFuture()
        Message(oslo, DaemonIdentity(API, "api")).reply(later)
        later.set_result(get)
    assert [failure[0] for _, failure in oslo.own] == [exceptions.HostForcedDown, LookupError]
