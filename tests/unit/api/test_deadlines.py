"""Slow clients and clients with many connections do not affect other clients."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from nova_lite.api.http import deadlines
from nova_lite.api.http.deadlines import ClientLimits, ConnectionCounter, TimedReader, missing_bytes
from tests.support.api_daemon import MODES, Daemon, running, wait_for

HEAD = b"POST /v2.1/servers HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("seen", "lacks"),
    [
        (b"", 1),
        (b"GET / HT", 1),
        (b"x" * deadlines.MAX_HEADER_BYTES, 0),
        (b"GET / HTTP/1.1\r\n\r\n", 0),
        (HEAD + b"content-LENGTH: 10\r\n\r\n", 10),
        (HEAD + b"Content-Length: 10\r\nX: y\r\n\r\n1234", 6),
        (HEAD + b"Content-Length: 10\r\n\r\n1234567890GET", 0),
        (HEAD + b"Content-Length: 131073\r\n\r\n", 0),
        (HEAD + b"Content-Length: 9999999999\r\n\r\n", 0),
        (HEAD + b"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", 0),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", 0),
        (HEAD + b"\r\nContent-Length: 10\r\n", 0),
    ],
)
def test_missing_bytes_of_a_partial_request(seen: bytes, lacks: int) -> None:
    assert missing_bytes(seen) == lacks


def test_connections_are_counted_by_client() -> None:
    clients = ConnectionCounter(2)
    assert [clients.enter("a") for _ in range(3)] == [True, True, False]
    assert clients.enter("b")
    clients.leave("a")
    assert clients.enter("a")


def test_slow_request_ends_at_its_deadline_without_counting_idle_time() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        timed = TimedReader(socket.SocketIO(ours, "r"), ours, ClientLimits(idle=5.0, request=0.5))
        reader = io.BufferedReader(timed)
        stop = threading.Event()

        def trickle() -> None:
            while not stop.wait(0.05):
                with contextlib.suppress(OSError):
                    theirs.send(b"x")

        threading.Thread(target=trickle, daemon=True).start()
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            reader.readline()
        assert 0.4 < time.monotonic() - started < 3
        stop.set()
        timed.next_request()
        assert timed._left() == 5.0


@pytest.fixture(params=MODES)
def daemon(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    options = {"request_deadline": 3, "max_connections_per_client": 60, "threads": 4}
    with running(tmp_path, request.param, **options) as made:
        yield made


@pytest.mark.parametrize("half", [b"", b"GE", HEAD, HEAD + b"Content-Length: 9\r\n\r\n{"])
def test_half_sent_requests_do_not_block_others(daemon: Daemon, half: bytes) -> None:
    with contextlib.ExitStack() as clients:
        slow = [clients.enter_context(socket.create_connection(("127.0.0.1", daemon.port), 20)) for _ in range(40)]
        for client in slow:
            client.sendall(half)
        for _ in range(5):
            started = time.monotonic()
            assert daemon.get("/v2.1").status_code == 200
            assert time.monotonic() - started < 2.5
        if half:
            ended = time.monotonic() + 15
            for client in slow:
                client.settimeout(max(0.1, ended - time.monotonic()))
                while client.recv(4096):  # a 408, or nothing: then it is closed
                    pass


def test_request_in_pieces_is_served(daemon: Daemon) -> None:
    body = b'{"server": {}}'
    pieces = (b"POST /v2.1/ser", b"vers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: u:p\r\nContent-Length: %d\r\n" % len(body))
    with socket.create_connection(("127.0.0.1", daemon.port), 20) as client:
        for _ in range(2):
            for piece in (*pieces, b"Content-Type: application/json\r\n", b"\r\n", body[:3], body[3:]):
                client.sendall(piece)
                time.sleep(0.1)
            response = client.recv(65536)
            assert response.startswith(b"HTTP/1.1 400"), response
            assert b"is a required property" in response


def test_pipelined_requests_are_both_served(daemon: Daemon) -> None:
    with socket.create_connection(("127.0.0.1", daemon.port), 20) as client:
        client.sendall(b"GET /v2.1 HTTP/1.1\r\nHost: x\r\n\r\n" * 2)
        seen = b""
        while seen.count(b"HTTP/1.1 200") < 2:
            more = client.recv(65536)
            assert more
            seen += more


def test_client_connections_are_limited(daemon: Daemon) -> None:
    """A client above the limit gets no connection until it closes others."""
    address = ("127.0.0.1", daemon.port)

    def refused() -> bool:
        """Open all connections again, because the server closes silent ones after a while."""
        with contextlib.ExitStack() as clients:
            for _ in range(60):
                clients.enter_context(socket.create_connection(address, 20))
            one = clients.enter_context(socket.create_connection(address, 5))
            one.settimeout(1)
            with contextlib.suppress(TimeoutError, ConnectionError):
                return one.recv(1) == b""
            return False

    wait_for("no more connections", refused)
    wait_for("it answers again", lambda: _answers(daemon))
    assert "which is the maximum" in daemon.log.read_text()


def _answers(daemon: Daemon) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return daemon.get("/v2.1").status_code == 200
    return False
