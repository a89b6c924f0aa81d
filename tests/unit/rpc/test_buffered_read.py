"""Patches that read from the broker and write to it by few system calls."""

from __future__ import annotations

import contextlib
import socket
import struct
import types
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import amqp.connection
import amqp.exceptions
import amqp.transport
import pytest

from nova_lite.rpc import patches

PAYLOADS = [b"method", b"head", b"body" * 300]


def frame(payload: bytes, kind: int = 1, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


class Counted:
    """A socket that counts calls which release the interpreter's lock."""

    def __init__(self, used: socket.socket) -> None:
        self._used = used
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._used, name)
        if name not in ("recv", "sendall", "settimeout"):
            return method

        def counted(*arguments: Any) -> Any:
            self.calls.append(name)
            return method(*arguments)

        return counted


@pytest.fixture
def patched() -> Iterator[None]:
    with contextlib.ExitStack() as undo:
        for owner, name in (
            (amqp.transport._AbstractTransport, "having_timeout"),
            (amqp.transport.TCPTransport, "_read"),
            (amqp.transport.TCPTransport, "_setup_transport"),
            (amqp.transport.SSLTransport, "_read"),
            (amqp.connection.Connection, "blocking_read"),
        ):
            undo.callback(setattr, owner, name, getattr(owner, name))
        patches._read_ahead()
        patches._use_sockets_directly()
        yield


class Ends:
    """The ends of a connection. ``timeout``: of the socket; None if oslo.messaging's heartbeats are off."""

    def __init__(self, timeout: float | None = 60.0) -> None:
        mine, self.broker = socket.socketpair()
        mine.settimeout(timeout)
        self.sock = Counted(mine)
        self.used = amqp.transport.TCPTransport("nowhere")
        self.used.sock = self.sock
        self.used._setup_transport()

    def read(self, timeout: float = 0.05) -> bytes:
        connection = types.SimpleNamespace(transport=self.used, on_inbound_frame=lambda frame: frame[2])
        content: bytes = amqp.connection.Connection.blocking_read(connection, timeout)
        return content

    def heard(self) -> bytes:
        """Return the data that the broker has received."""
        self.broker.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            return self.broker.recv(65536)
        return b""


@pytest.fixture(params=[60.0, None])
def ends(patched: None, request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(request.param)
    yield made
    made.sock.close()
    made.broker.close()


def test_frames_that_have_arrived_are_read_by_one_call(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    wait, receive = patches._wait, patches._receive
    monkeypatch.setattr(patches, "_wait", lambda *args: (asked.append("wait"), wait(*args)))
    ends.used._quick_recv = lambda count: (asked.append("read"), receive(ends.sock, [None], count))[1]
    ends.broker.sendall(b"".join(frame(each) for each in PAYLOADS * 3))
    assert [ends.read() for _ in range(9)] == PAYLOADS * 3
    assert asked == ["wait", "read"]
    assert "settimeout" not in ends.sock.calls


def test_data_is_written_and_waits_only_without_room(patched: None) -> None:
    ends = Ends(0.2)
    ends.used.write(memoryview(b"short"))
    assert (ends.heard(), ends.sock.calls) == (b"short", [])
    large, got = bytes(range(256)) * 40000, bytearray()
    with futures.ThreadPoolExecutor() as pool:
        sent = pool.submit(ends.used.write, memoryview(large))
        ends.broker.settimeout(5)
        while len(got) < len(large):
            got += ends.broker.recv(65536)
        sent.result(5)
    assert (bytes(got), ends.sock.calls) == (large, ["sendall"])
    with pytest.raises(TimeoutError):
        ends.used.write(large)


def test_closed_socket_raises_in_readers_and_writers(ends: Ends) -> None:
    ends.sock.close()
    with pytest.raises(OSError, match="closed"):
        ends.read()
    with pytest.raises(OSError, match="Bad file descriptor"):
        ends.used.write(b"more")
    assert not ends.used.connected
    ends.used.sock = None  # as py-amqp leaves it
    with pytest.raises(amqp.exceptions.RecoverableConnectionError):
        ends.read()


def test_sockets_of_eventlet_are_not_patched(monkeypatch: pytest.MonkeyPatch, patched: None) -> None:
    amqp.connection.Connection.blocking_read = patches._blocking_read
    amqp.transport.TCPTransport._setup_transport = None
    monkeypatch.setattr(patches.concurrency, "is_eventlet", lambda: True)
    patches._use_sockets_directly()
    assert amqp.connection.Connection.blocking_read is patches._blocking_read
    assert amqp.transport.TCPTransport._setup_transport is None


def test_partial_frame_is_waited_for(ends: Ends) -> None:
    whole = frame(b"first") + frame(b"second")
    for cut in range(1, len(whole)):
        ends.broker.sendall(whole[:cut])
        got = []
        with contextlib.suppress(TimeoutError):
            while True:
                got.append(ends.read(0.001))
        assert len(got) == (cut >= len(frame(b"first")))
        ends.broker.sendall(whole[cut:])
        assert got + [ends.read() for _ in range(2 - len(got))] == [b"first", b"second"]


def test_frame_larger_than_one_read_is_complete(ends: Ends) -> None:
    large = bytes(range(256)) * 400
    assert len(large) > patches.AHEAD
    ends.broker.sendall(frame(large) + frame(b"next"))
    assert [ends.read(), ends.read()] == [large, b"next"]


def test_closed_connection_raises_after_its_last_frame(ends: Ends) -> None:
    ends.broker.sendall(frame(b"last"))
    ends.broker.close()
    assert ends.read() == b"last"
    with pytest.raises(OSError, match="closed"):
        ends.read()
    assert not ends.used.connected
