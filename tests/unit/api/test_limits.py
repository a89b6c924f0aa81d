"""Slow clients and clients with many connections do not affect other clients."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from nova_lite.api.http.limits import BodyBudget, Slots
from tests.support.api_daemon import DEADLINE, MODES, Daemon, running
from tests.support.http_site import make_certificate
from tests.support.waiting import wait_for

HEAD = b"POST /v2.1/servers HTTP/1.1\r\nHost: x\r\n"


def test_connections_are_counted_by_client() -> None:
    clients = Slots(2)
    assert [clients.enter("a") for _ in range(3)] == [True, True, False]
    assert clients.enter("b")
    clients.leave("a")
    assert clients.enter("a")


def test_body_budget_gives_up_the_largest_body_of_the_greediest_client() -> None:
    budget: BodyBudget[str] = BodyBudget(100)
    assert [budget.set("greedy", name, size) for name, size in (("a", 30), ("b", 35), ("c", 20))] == [None] * 3
    assert budget.set("modest", "m", 15) is None
    assert budget.set("modest", "m", 25) == "b"
    budget.forget("greedy", "b")
    assert budget.used == 75
    assert budget.set("modest", "m", 40) is None
    for name in "ac":
        budget.forget("greedy", name)
    budget.forget("modest", "m")
    budget.forget("nobody", "x")
    assert budget.used == 0


@pytest.fixture(scope="module", params=MODES)
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    options = {"request_deadline": 3, "max_connections_per_client": 60, "threads": 4}
    with running(tmp_path_factory.mktemp("daemon"), request.param, **options) as made:
        yield made


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GE",
        HEAD,
        HEAD + b"Content-Length: 9\r\n\r\n{",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\n{",
    ],
)
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

    wait_for("no more connections", refused, DEADLINE)
    wait_for("it answers again", lambda: _answers(daemon), DEADLINE)
    assert "which is the maximum" in daemon.log.read_text()


def _answers(daemon: Daemon) -> bool:
    with contextlib.suppress(requests.ConnectionError):
        return daemon.get("/v2.1").status_code == 200
    return False


@pytest.mark.parametrize("mode", MODES)
def test_unfinished_handshakes_do_not_block_others(tmp_path: Path, mode: str) -> None:
    certificate, key = make_certificate(tmp_path)
    options = {"enabled_ssl_apis": "osapi_compute", "ssl_cert_file": certificate, "ssl_key_file": key, "threads": 4}
    with running(tmp_path, mode, request_deadline=3, **options) as daemon, contextlib.ExitStack() as clients:
        for _ in range(40):
            slow = clients.enter_context(socket.create_connection(("127.0.0.1", daemon.port), 20))
            slow.sendall(b"\x16")
        for _ in range(5):
            assert daemon.get("/v2.1", verify=certificate).status_code == 200
        while slow.recv(4096):  # it is closed at its deadline
            pass


def test_daemon_raises_its_limit_of_open_files(tmp_path: Path) -> None:
    launcher = ("bash", "-c", 'ulimit -Sn 256; exec "$@"', "bash")
    with running(tmp_path, launcher=launcher) as daemon:
        lines = Path(f"/proc/{daemon.process.pid}/limits").read_text().splitlines()
        (soft, hard) = next(line.split()[3:5] for line in lines if line.startswith("Max open files"))
        assert int(soft) == min(int(hard), 65536)
