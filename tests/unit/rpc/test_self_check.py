"""Deaf servers: how they are noticed, and what happens to their running messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.rpc import self_check
from nova_lite.rpc.self_check import SelfCheckingServer


@rpc.service("compute", version="2.0")
class SlowRPC(Protocol):
    def work(self, context: RequestContext, host: rpc.Receiver) -> str: ...


class Slow:
    """Replies to ``work`` after an event."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def work(self, context: RequestContext) -> str:
        self.begun.set()
        assert self.may_end.wait(30)
        return "done"


@pytest.fixture
def server(transport: rpc.Transport) -> Iterator[SelfCheckingServer]:
    made = SelfCheckingServer(transport, "host", rpc.Endpoint(SlowRPC, Slow()))
    made.start()
    yield made
    made.stop()
    made.wait()


def test_server_receives_its_own_call(server: SelfCheckingServer) -> None:
    for _ in range(3):
        server.check()
    assert not server.deaf.is_set()


def test_server_is_deaf_after_consecutive_misses(
    server: SelfCheckingServer, no_answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        no_answer()
        server.check()
        monkeypatch.undo()
        server.check()
    assert not server.deaf.is_set()
    no_answer()
    server.check()
    server.check()
    assert server.deaf.is_set()


def test_late_reply_clears_deafness(
    server: SelfCheckingServer, no_answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_answer()
    server.check()
    server.check()
    monkeypatch.undo()
    server.check()
    assert not server.deaf.is_set()


def test_absent_broker_is_no_deafness(
    server: SelfCheckingServer, no_answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise exceptions.MessagingUnavailable("away")

    no_answer()
    monkeypatch.setattr(self_check, "require_broker", away)
    for _ in range(5):
        server.check()
    assert not server.deaf.is_set()


def test_running_messages_end_over_the_old_connections(transport: rpc.Transport) -> None:
    slow, answers = Slow(), []
    server = SelfCheckingServer(transport, "host", rpc.Endpoint(SlowRPC, slow))
    server.start()
    client = rpc.proxy(SlowRPC, transport)
    caller = threading.Thread(target=lambda: answers.append(client.work(get_admin_context(), "host")))
    caller.start()
    assert slow.begun.wait(10)
    before = transport.take()
    transport.release(before)

    server.reconnect()
    server.check()
    assert not server.deaf.is_set()
    after = transport.take()
    transport.release(after)
    assert after is not before

    slow.may_end.set()
    caller.join(30)
    assert answers == ["done"]
    server.stop()
    server.wait()


def test_replaced_transport_is_closed_with_its_last_user(
    transport: rpc.Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = transport.take()
    closed = threading.Event()
    monkeypatch.setattr(used, "cleanup", closed.set)
    transport.renew()
    assert not closed.wait(0.1)
    transport.release(used)
    assert closed.wait(10)
