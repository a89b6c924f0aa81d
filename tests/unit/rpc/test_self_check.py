"""When a server counts as deaf, and what becomes of what it is at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.rpc import self_check
from nova_lite.rpc.self_check import SelfCheckingServer


@rpc.service("compute", version="1.0")
class SlowRPC(Protocol):
    def work(self, context: RequestContext, host: rpc.Receiver) -> str: ...


class Slow:
    """Answers ``work`` when it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()

    def work(self, context: RequestContext) -> str:
        self.begun.set()
        assert self.may_end.wait(30)
        return "done"


@pytest.fixture
def transport(tmp_path: Path) -> Iterator[rpc.Transport]:
    """Messages within this process."""
    file = tmp_path / "bus.conf"
    file.write_text("[DEFAULT]\ntransport_url = fake:/\n[rpc]\nself_check_interval = 1\nself_check_misses = 2\n")
    conf = cfg.CONF
    conf.reset()
    configuration.register_opts(conf)
    conf(["--config-file", str(file)], project="nova-lite", default_config_files=[])
    transport = rpc.Transport(conf)
    yield transport
    transport.cleanup()
    conf.reset()


@pytest.fixture
def server(transport: rpc.Transport) -> Iterator[SelfCheckingServer]:
    made = SelfCheckingServer(transport, "host", rpc.Endpoint(SlowRPC, Slow()))
    made.start()
    yield made
    made.stop()
    made.wait()


@pytest.fixture
def no_answer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it to lose all messages from then on."""

    def lose() -> None:
        def call(*_: Any, **__: Any) -> None:
            raise exceptions.MessagingUnavailable(what="echo")

        monkeypatch.setattr(rpc.Transport, "call", call)

    return lose


def test_a_server_hears_itself(server: SelfCheckingServer) -> None:
    for _ in range(3):
        server.check()
    assert not server.deaf.is_set()


def test_only_misses_in_a_row_count(
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


def test_an_answer_that_comes_after_all_makes_it_whole(
    server: SelfCheckingServer, no_answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_answer()
    server.check()
    server.check()
    monkeypatch.undo()
    server.check()
    assert not server.deaf.is_set()


def test_a_broker_that_is_away_is_no_deafness(
    server: SelfCheckingServer, no_answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise exceptions.MessagingUnavailable("away")

    no_answer()
    monkeypatch.setattr(self_check, "require_broker", away)
    for _ in range(5):
        server.check()
    assert not server.deaf.is_set()


def test_what_it_is_at_goes_on_over_the_old_connections(transport: rpc.Transport) -> None:
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


def test_a_transport_is_closed_when_its_last_user_is_done(
    transport: rpc.Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = transport.take()
    closed = threading.Event()
    monkeypatch.setattr(used, "cleanup", closed.set)
    transport.renew()
    assert not closed.wait(0.1)
    transport.release(used)
    assert closed.wait(10)
