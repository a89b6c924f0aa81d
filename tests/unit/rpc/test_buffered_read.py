"""Patches that read from the broker: few system calls, and grouped acknowledgements."""

from __future__ import annotations

import contextlib
import socket
import struct
import types
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import amqp.channel
import amqp.connection
import amqp.exceptions
import amqp.transport
import pytest

from nova_lite.rpc import patches

PAYLOADS = [b"method", b"head", b"body" * 300]
ACK = struct.Struct(">BHIHHQBB")


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
            (amqp.transport._AbstractTransport, "write"),
            (amqp.transport.TCPTransport, "_read"),
            (amqp.transport.TCPTransport, "_setup_transport"),
            (amqp.transport.SSLTransport, "_read"),
            (amqp.channel.Channel, "basic_ack"),
            (amqp.connection.Connection, "blocking_read"),
        ):
            undo.callback(setattr, owner, name, getattr(owner, name))
        patches._read_ahead()
        patches._group_acks()
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

    def channel(self, number: int = 1) -> Any:
        connection = types.SimpleNamespace(transport=self.used)
        return types.SimpleNamespace(connection=connection, channel_id=number)

    def ack(self, tag: int, number: int = 1) -> None:
        amqp.channel.Channel.basic_ack(self.channel(number), tag)

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


def acks(heard: bytes) -> list[tuple[int, int, bool]]:
    """Return the acknowledgements: channel, tag, and whether each includes all earlier tags."""
    told = [ACK.unpack_from(heard, start) for start in range(0, len(heard), ACK.size)]
    assert all((each[0], *each[2:5], each[7]) == (1, 13, 60, 80, 0xCE) for each in told)
    return [(each[1], each[5], bool(each[6])) for each in told]


def test_messages_read_together_are_acknowledged_together_before_a_wait(ends: Ends) -> None:
    ends.broker.sendall(frame(b"one") + frame(b"two") + frame(b"three"))
    for tag, content in enumerate([b"one", b"two"], 1):
        assert ends.read() == content
        ends.ack(tag)
    assert ends.heard() == b""
    assert ends.read() == b"three"
    ends.ack(3)
    assert acks(ends.heard()) == [(1, 3, True)]
    with pytest.raises(TimeoutError):
        ends.read(0.001)
    assert ends.heard() == b""


def test_ack_is_sent_when_the_next_frame_is_no_message(ends: Ends) -> None:
    ends.broker.sendall(frame(b"message") + frame(b"", kind=8))
    ends.read()
    ends.ack(7)
    assert ends.heard() == b""
    ends.read()
    with pytest.raises(TimeoutError):
        ends.read(0.001)
    assert acks(ends.heard()) == [(1, 7, True)]


def test_acks_of_every_channel_are_sent_before_other_data(ends: Ends) -> None:
    ends.broker.sendall(frame(b"one") * 3)
    ends.read()
    ends.ack(4, number=1)
    ends.ack(9, number=2)
    ends.used.write(b"sent")
    heard = ends.heard()
    assert heard.endswith(b"sent")
    assert sorted(acks(heard[: -len(b"sent")])) == [(1, 4, True), (2, 9, True)]


def test_acknowledge_sends_the_remaining_acks(ends: Ends) -> None:
    ends.broker.sendall(frame(b"one") * 2)
    ends.read()
    ends.ack(1)
    patches.acknowledge(ends.used)
    assert acks(ends.heard()) == [(1, 1, True)]
    patches.acknowledge(ends.used)
    assert ends.heard() == b""


def test_ack_has_the_format_of_amqp(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag for all earlier tags is the only difference."""
    from amqp.method_framing import frame_writer

    sent: list[bytes] = []
    connection = types.SimpleNamespace(frame_max=131072, bytes_sent=0)
    used = types.SimpleNamespace(write=lambda data: sent.append(bytes(data)))
    frame_writer(connection, used)(1, 5, (60, 80), amqp.serialization.dumps("Lb", (12, True)), None)
    ends.ack(12, number=5)
    assert [ends.heard()] == sent
