"""Calls over the conductor's Unix socket, and by the broker where the socket gives no reply."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oslo_messaging as messaging
import pytest

from nova_lite import rpc
from nova_lite.base import exceptions, unix_sockets
from nova_lite.base.context import get_admin_context
from nova_lite.rpc import local
from nova_lite.rpc.client import Message
from nova_lite.rpc.local import LocalClient, LocalRequest, LocalServer, Undelivered
from nova_lite.rpc.signing import Draft
from tests.unit.rpc.bench import ASK, CONTEXT, Bench, ThingRPC

CALL = Message("conductor", "ask", get_admin_context(), arguments={"number": 1})


def send(client: LocalClient, message: Message = CALL) -> Any:
    return client.call(Draft(message, None, 0.0), message)


class Conductor:
    """A server that answers by a function, in threads."""

    def __init__(self, path: Path, is_signed: bool = True) -> None:
        self.path = str(path / "rpc.sock")
        self.answer: Callable[[LocalRequest], Any] = lambda request: request.message["args"]
        self.server = LocalServer(self.path, self._submit, is_signed)
        self.client = LocalClient(self.path, 10.0, is_signed)

    def _submit(self, request: LocalRequest) -> None:
        threading.Thread(target=lambda: request.reply(self.answer(request)), daemon=True).start()

    def close(self) -> None:
        self.client.close()
        self.server.stop()


@pytest.fixture
def conductor(tmp_path: Path) -> Iterator[Conductor]:
    made = Conductor(tmp_path)
    yield made
    made.close()


def test_call_gets_its_reply_over_one_connection(conductor: Conductor) -> None:
    for _ in range(3):
        assert send(conductor.client) == {"number": 1}
    assert len(conductor.server._connections) == 1


def test_calls_at_the_same_time_get_their_own_replies(conductor: Conductor) -> None:
    together = threading.Barrier(4)

    def answer(request: LocalRequest) -> Any:
        together.wait(10)
        return request.message["args"]

    conductor.answer = answer
    replies: dict[int, Any] = {}

    def call(number: int) -> None:
        message = Message("conductor", "ask", get_admin_context(), arguments={"number": number, "text": "x" * 300_000})
        replies[number] = send(conductor.client, message)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert {number: reply["number"] for number, reply in replies.items()} == {number: number for number in range(4)}


def test_client_carries_only_calls_to_any_conductor(conductor: Conductor) -> None:
    assert conductor.client.carries(CALL)
    for other in (
        Message("scheduler", "ask", CONTEXT),
        Message("conductor", "ask", CONTEXT, server="controller"),
        Message("conductor", "ask", CONTEXT, fanout=True),
    ):
        assert not conductor.client.carries(other)


def test_socket_is_for_owner_and_group(conductor: Conductor) -> None:
    assert stat.S_IMODE(os.stat(conductor.path).st_mode) == 0o660


def test_directory_that_others_can_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for make in (
        lambda: LocalClient(str(tmp_path / "s"), 1.0, True),
        lambda: LocalServer(str(tmp_path / "s"), print, True),
    ):
        with pytest.raises(exceptions.ConfigurationError, match="can be written by others"):
            make()


def test_other_users_are_refused_without_signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix_sockets, "is_trusted", lambda sock: False)
    conductor = Conductor(tmp_path, is_signed=False)
    with pytest.raises(Undelivered):
        send(conductor.client)
    stranger = socket.socket(socket.AF_UNIX)
    stranger.connect(conductor.path)
    assert stranger.recv(1) == b""
    conductor.close()


@pytest.mark.parametrize("content", [b"\xff\xff\xff\xff", b"\0\0\0\2[]", b"\0\0\0\1x", b'\0\0\0\x0e{"context": 1}'])
def test_malformed_frame_ends_only_its_connection(conductor: Conductor, content: bytes) -> None:
    stranger = socket.socket(socket.AF_UNIX)
    stranger.connect(conductor.path)
    stranger.sendall(content)
    stranger.settimeout(10)
    assert stranger.recv(1) == b""
    assert send(conductor.client) == {"number": 1}


def test_call_without_a_reply_in_time_is_a_timeout(conductor: Conductor) -> None:
    end = threading.Event()
    conductor.answer = lambda request: end.wait(20)
    with pytest.raises(messaging.MessagingTimeout):
        send(conductor.client, Message("conductor", "ask", get_admin_context(), timeout=0.05))
    end.set()


def test_server_that_stops_serves_what_was_sent_before(conductor: Conductor) -> None:
    send(conductor.client)
    arrived, stopped = threading.Event(), threading.Event()

    def answer(_request: Any) -> Any:
        arrived.set()
        return stopped.wait(20) and "late"

    conductor.answer = answer
    replies: list[Any] = []
    caller = threading.Thread(target=lambda: replies.append(send(conductor.client)))
    caller.start()
    assert arrived.wait(20)
    conductor.server.stop()
    assert not os.path.exists(conductor.path)
    with pytest.raises(Undelivered):
        send(conductor.client)
    stopped.set()
    caller.join(20)
    assert replies == ["late"]


def test_connection_of_a_server_that_was_replaced_is_made_again(conductor: Conductor, tmp_path: Path) -> None:
    send(conductor.client)
    successor = Conductor(tmp_path)
    conductor.server.stop()
    assert send(conductor.client) == {"number": 1}
    assert len(successor.server._connections) == 1
    successor.close()


@pytest.mark.parametrize(("is_signed", "error"), [(True, Undelivered), (False, messaging.MessagingTimeout)])
def test_call_whose_server_dies_is_sent_again_only_if_it_is_signed(
    tmp_path: Path, is_signed: bool, error: type[Exception]
) -> None:
    """The replay cache recognises only signed calls."""
    listener = local._listen(str(tmp_path / "rpc.sock"))
    listener.setblocking(True)

    def die() -> None:
        sock, _ = listener.accept()
        sock.recv(1 << 16)
        sock.close()

    threading.Thread(target=die, daemon=True).start()
    with pytest.raises(error):
        send(LocalClient(str(tmp_path / "rpc.sock"), 10.0, is_signed))


# --- with signatures, and a broker


@pytest.fixture(params=[True, False], ids=["session", "signatures"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, socket=True, sessions=request.param)
    made.serve()
    yield made
    made.close()


def connected(bench: Bench) -> rpc.Transport:
    """Return an API's transport that has a connection to the conductor."""
    sender = bench.sender(rpc.API, "web")
    sender.call(ASK)
    bench.things.heard.clear()
    return sender


def by_broker(bench: Bench, sender: rpc.Transport, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the methods that the sender calls by the broker."""
    methods: list[str] = []
    prepared = rpc.Transport._prepared
    monkeypatch.setattr(
        sender, "_prepared", lambda client, message: methods.append(message.method) or prepared(client, message)
    )
    return methods


def test_api_calls_the_conductor_without_the_broker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = bench.sender(rpc.API, "web")
    methods = by_broker(bench, sender, monkeypatch)
    client = rpc.proxy(ThingRPC, sender)
    assert client.ask(CONTEXT, {"a": 1}) == {"again": {"a": 1}}
    client.tell(CONTEXT, "x")
    assert bench.things.told.acquire(timeout=10)
    assert methods == ["tell"]


def test_other_daemons_use_the_broker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sender = bench.sender(rpc.COMPUTE, "host-1")
    methods = by_broker(bench, sender, monkeypatch)
    assert rpc.proxy(ThingRPC, sender).ask(CONTEXT, {}) == {"again": {}}
    assert methods == ["ask"]


def test_api_uses_the_broker_when_the_socket_is_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sender = bench.sender(rpc.API, "web")
    methods = by_broker(bench, sender, monkeypatch)
    path = str(bench.path / "rpc.sock")
    os.rename(path, path + ".away")
    for _ in range(2):
        assert sender.call(ASK) == {"again": {"a": 1}}
    assert methods == ["ask", "ask"]
    assert len([line for line in caplog.messages if "Calls to the conductor use the broker" in line]) == 1
    os.rename(path + ".away", path)
    assert sender._local is not None
    sender._local._retry_at = 0.0
    sender.call(ASK)
    assert methods == ["ask", "ask"]


@pytest.mark.parametrize("was_taken", [False, True])
def test_call_whose_conductor_died_runs_once(bench: Bench, monkeypatch: pytest.MonkeyPatch, was_taken: bool) -> None:
    """The broker carries the same id, which the replay cache of all conductors knows."""
    sender = connected(bench)
    client = sender._local
    assert client is not None
    receive = local._receive

    def lose(sock: socket.socket, end: float) -> Any:
        if was_taken:
            receive(sock, end)
        raise ConnectionResetError("killed")

    if not was_taken:
        monkeypatch.setattr(client, "_send", lambda *call: local._Line(socket.socketpair()[0]))
    monkeypatch.setattr(local, "_receive", lose)
    if was_taken:
        with pytest.raises(exceptions.MessagingUnavailable):
            sender.call(ASK)
    else:
        assert sender.call(ASK) == {"again": {"a": 1}}
    assert bench.things.heard == [{"a": 1}]


def test_read_that_a_late_conductor_has_taken_is_answered_by_the_broker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = connected(bench)
    receive = local._receive

    def lose(sock: socket.socket, end: float) -> Any:
        receive(sock, end)
        raise TimeoutError

    monkeypatch.setattr(local, "_receive", lose)
    read = dataclasses.replace(ASK, is_read=True)
    assert sender.call(read) == {"again": {"a": 1}}
    assert bench.things.heard == [{"a": 1}, {"a": 1}]


def test_reply_over_the_socket_needs_the_conductors_signature(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sender = connected(bench)
    forged = json.dumps({"result": {"again": "forged"}, "failure": None}).encode()
    monkeypatch.setattr(local, "_receive", lambda sock, end: forged)
    with pytest.raises(exceptions.MessagingUnavailable):
        sender.call(ASK)
    # A session ends with the forged frame. The broker then carries a call that was taken before.
    assert ("it was taken before" if bench.sessions else "is not trusted: it is not signed") in caplog.text


def test_frame_of_a_call_is_json(conductor: Conductor) -> None:
    frame = local._frame(local._json({"a": "\udc80"}))
    assert json.loads(frame[4:]) == {"a": "\udc80"}
