"""The HTTP server: what it makes of requests and responses, and that slow clients hold no thread."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import webob

from nova_lite.api.http import limits, transfers, wsgi
from nova_lite.api.http.limits import ClientLimits
from nova_lite.base import exceptions
from tests.support.http_site import GET, HttpSite, make_certificate, read_reply, serving, statuses, until_closed
from tests.support.waiting import wait_for

THREADS = 2
MANY = ClientLimits(connections=2000, request=300.0, idle=300.0)


class Sink:
    """Receiver of a large body. ``refuses_at``: it takes no more bytes. Responds with what it has received."""

    def __init__(self, refuses_at: int | None = None) -> None:
        self.size = 0
        self.error: Exception | None = None
        self.ended = threading.Event()
        self._refuses_at = refuses_at

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self._refuses_at is not None and self.size > self._refuses_at:
            raise ValueError("full")

    def complete(self) -> None:
        pass

    def respond(self, error: Exception | None) -> webob.Response:
        self.error = error
        self.ended.set()
        return webob.Response(status=413 if error else 201, body=b"%d" % self.size)


class App:
    """An application that shows what it gets."""

    def __init__(self) -> None:
        self.environs: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        self.may_end = threading.Event()
        self.sink = Sink()
        self.coming: Coming | None = None
        self.closed = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.environs.append(environ)
        headers = [("Content-Type", "text/plain"), ("X-Request", "r1")]
        path = environ["PATH_INFO"]
        if path == "/upload" and transfers.RECEIVE in environ:
            try:
                environ[transfers.RECEIVE](self.sink, environ.get("HTTP_X_PROJECT"))
            except exceptions.ServiceUnavailable:
                start_response("503 Service Unavailable", headers)
                return [b"later"]
            start_response("409 Conflict" if environ["QUERY_STRING"] == "conflict" else "202 Accepted", headers)
            return [b"promised"]
        if path == "/later":
            start_response("200 OK", headers)
            self.coming = Coming(self)
            return self.coming
        if path in ("/stream", "/announced", "/short"):
            count = int(environ["QUERY_STRING"])
            length = {"/announced": count * 1024, "/short": count * 1024 + 1}.get(path)
            start_response("200 OK", headers if length is None else [*headers, ("Content-Length", str(length))])
            return Pieces(self, count)
        if path == "/wait":
            assert self.may_end.wait(30)
        if path == "/fails":
            raise RuntimeError("a bug")
        if path == "/split":
            headers.append(("X-Evil", "a\r\nSet-Cookie: b"))
        try:
            self.bodies.append(environ["wsgi.input"].read())
        except webob.exc.HTTPException as error:
            return error(environ, start_response)
        empty = path == "/empty"
        start_response("204 No Content" if empty else "200 OK", headers)
        return [] if empty else [b"hello"]


class Pieces:
    def __init__(self, app: App, count: int) -> None:
        self._app = app
        self._left = count

    def __iter__(self) -> Iterator[bytes]:
        for _ in range(self._left):
            yield b"x" * 1024

    def close(self) -> None:
        self._app.closed += 1


class Coming(transfers.Later):
    """Body whose pieces come when a test adds them, and the piece that says so. None: the end."""

    def __new__(cls, app: App) -> Coming:
        return super().__new__(cls)

    def __init__(self, app: App) -> None:
        self._app = app
        self.pieces: list[bytes | None] = []
        self.waits = threading.Semaphore(0)
        self.notify: Callable[[], None] = lambda: None

    def __iter__(self) -> Iterator[bytes]:  # type: ignore[override]
        while True:
            piece = self.pieces.pop(0) if self.pieces else self
            if piece is None:
                return
            yield piece

    def when_ready(self, notify: Callable[[], None]) -> None:
        self.notify = notify
        self.waits.release()

    def add(self, piece: bytes | None) -> None:
        """Add a piece once the server waits for it."""
        assert self.waits.acquire(timeout=30)
        self.pieces.append(piece)
        self.notify()

    def close(self) -> None:
        self._app.closed += 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def site(request: pytest.FixtureRequest, app: App, certificate: tuple[str, str]) -> Iterator[HttpSite]:
    with serving(app, threads=THREADS, limits=MANY, tls=certificate if request.param else None) as made:
        yield made
        app.may_end.set()


def send(sock: socket.socket, method: str, target: str, *headers: str, body: bytes = b"") -> None:
    lines = [f"{method} {target} HTTP/1.1", "Host: cloud", *headers]
    sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


# --- slow clients


def still_serves(site: HttpSite) -> None:
    for _ in range(3):
        with site.connect() as sock:
            sock.sendall(GET)
            assert read_reply(sock)[0].status == 200


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"G",
        b"POST / HTTP/1.1\r\nHost: cloud\r\n",
        b"POST / HTTP/1.1\r\nHost: cloud\r\nContent-Length: 100000\r\n\r\n" + b"x" * 90_000,
        b"POST / HTTP/1.1\r\nHost: cloud\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"POST / HTTP/1.1\r\nHost: cloud\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
        b"PUT /upload HTTP/1.1\r\nHost: cloud\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 200_000,
    ],
)
def test_slow_requests_hold_no_thread(site: HttpSite, start: bytes) -> None:
    """Twenty times as many slow clients as threads, and all others are served."""
    with contextlib.ExitStack() as slow:
        for _ in range(20 * THREADS):
            slow.enter_context(site.connect()).sendall(start)
        still_serves(site)


@pytest.mark.parametrize("start", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01"])
def test_unfinished_tls_handshakes_hold_no_thread(app: App, certificate: tuple[str, str], start: bytes) -> None:
    with serving(app, threads=THREADS, tls=certificate) as site, contextlib.ExitStack() as slow:
        for _ in range(40):
            slow.enter_context(site.connect(shake=False)).sendall(start)
        still_serves(site)


def test_slow_readers_hold_no_thread(site: HttpSite, app: App) -> None:
    with contextlib.ExitStack() as slow:
        for _ in range(10 * THREADS):
            sock = slow.enter_context(site.connect())
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            send(sock, "GET", "/stream?20000")
            sock.recv(10)
        still_serves(site)
    wait_for("all iterators are closed", lambda: app.closed == 10 * THREADS, 30)


def test_thousand_idle_and_slow_connections_leave_others_served(app: App) -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 3000
    with serving(app, threads=THREADS, limits=MANY) as site, contextlib.ExitStack() as clients:
        for number in range(1000):
            sock = clients.enter_context(site.connect())
            sock.sendall((b"", b"GET / HT", GET)[number % 3])
        wait_for("they are accepted", lambda: len(site.server._connections) == 1000, 30)
        still_serves(site)


def test_late_request_gets_408_and_the_drip_ends(app: App) -> None:
    with serving(app, limits=ClientLimits(request=0.5)) as site, site.connect() as sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: cloud\r\nContent-Length: 100\r\n\r\n")
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.05):
                with contextlib.suppress(OSError):
                    sock.send(b"x")

        threading.Thread(target=drip, daemon=True).start()
        assert statuses(until_closed(sock)) == [408]
        stop.set()
        assert app.environs == []


def test_unfinished_handshake_ends_at_its_deadline(app: App, certificate: tuple[str, str]) -> None:
    with serving(app, tls=certificate, limits=ClientLimits(request=0.5)) as site, site.connect(shake=False) as sock:
        sock.sendall(b"\x16")
        assert until_closed(sock) == b""


def test_idle_connection_ends(app: App) -> None:
    with serving(app, limits=ClientLimits(idle=0.5)) as site, site.connect() as sock:
        sock.sendall(GET)
        assert read_reply(sock)[0].status == 200
        assert sock.recv(10) == b""


def test_reader_that_takes_nothing_is_given_up(app: App) -> None:
    with serving(app, limits=ClientLimits(idle=0.5)) as site, site.connect() as sock:
        send(sock, "GET", "/stream?20000")
        wait_for("the iterator is closed", lambda: app.closed == 1, 30)
        assert wait_for("the connection is gone", lambda: not site.server._connections, 30)


def test_greedy_client_loses_its_bodies_and_others_are_served(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(app, limits=MANY) as site, contextlib.ExitStack() as clients:
        site.server.budget = limits.BodyBudget(1_000_000)
        greedy = [clients.enter_context(site.connect("127.0.0.2")) for _ in range(15)]
        for sock in greedy:
            send(sock, "POST", "/", "Content-Length: 100000", body=b"x" * 90_000)
        with site.connect("127.0.0.3") as modest:
            send(modest, "POST", "/", "Content-Length: 50000", body=b"x" * 40_000)
            modest.sendall(b"x" * 10_000)
            assert read_reply(modest)[0].status == 200
        refused = wait_for("some are refused", lambda: [sock for sock in greedy if _has_data(sock)], 30)
        assert statuses(until_closed(refused[0])) == [503]
        wait_for("the memory is free", lambda: site.server.budget.used <= 1_000_000, 30)


def test_single_body_above_the_memory_for_all_is_refused(app: App) -> None:
    with serving(app, limits=MANY) as site, site.connect() as sock:
        site.server.budget = limits.BodyBudget(10_000)
        send(sock, "POST", "/", "Content-Length: 100000", body=b"x" * 20_000)
        assert statuses(until_closed(sock)) == [503]
        assert site.server.budget.used == 0


def _has_data(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        sock.settimeout(20)


def test_connections_of_one_client_are_limited(app: App) -> None:
    with serving(app, limits=ClientLimits(connections=3)) as site, contextlib.ExitStack() as clients:
        opened = [clients.enter_context(site.connect()) for _ in range(3)]
        with site.connect() as one_more:
            assert until_closed(one_more) == b""
        with site.connect("127.0.0.9") as other:
            other.sendall(GET)
            assert read_reply(other)[0].status == 200
        opened[0].close()
        wait_for("there is room", lambda: len(site.server._connections) == 2, 30)
        with site.connect() as sock:
            sock.sendall(GET)
            assert read_reply(sock)[0].status == 200


def test_full_server_closes_idle_connections_for_new_ones(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONNECTIONS", 5)
    with serving(app) as site, contextlib.ExitStack() as clients:
        idle = [clients.enter_context(site.connect()) for _ in range(5)]
        wait_for("they are accepted", lambda: len(site.server._connections) == 5, 30)
        still_serves(site)
        assert until_closed(idle[0]) == b""


# --- requests


def test_environment_of_a_request(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(
            sock,
            "POST",
            "/a%20b%2Fc/%C3%A4?q=1%2F2&r",
            "Content-Type: a/b",
            "X-Many: 1",
            "X-Many: 2",
            "Content-Length: 3",
            body=b"abc",
        )
        assert read_reply(sock)[0].body == b"hello"
        local, peer = sock.getpeername(), sock.getsockname()
    expected = {
        "PATH_INFO": "/a b%2Fc/\xc3\xa4",
        "QUERY_STRING": "q=1%2F2&r",
        "HTTP_X_MANY": "1, 2",
        "CONTENT_TYPE": "a/b",
        "CONTENT_LENGTH": "3",
        "SERVER_NAME": local[0],
        "SERVER_PORT": str(local[1]),
        "REMOTE_ADDR": peer[0],
        "REMOTE_PORT": str(peer[1]),
        "wsgi.url_scheme": "https" if site.server.context else "http",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    (environ,) = app.environs
    assert {name: environ[name] for name in expected} == expected
    assert app.bodies == [b"abc"]


def test_chunked_body_has_a_length_for_the_application(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        chunks = b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: t\r\n\r\n"
        send(sock, "POST", "/", "Transfer-Encoding: chunked", body=chunks)
        assert read_reply(sock)[0].status == 200
        sock.sendall(GET)
        assert read_reply(sock)[0].status == 200
    first, second = app.environs
    assert (app.bodies, first["CONTENT_LENGTH"]) == ([b"abcde", b""], "5")
    assert not {"HTTP_TRANSFER_ENCODING", "HTTP_X_TRAILER"} & {*first, *second}


def test_request_without_host_gets_links_with_the_server_address(app: App) -> None:
    with serving(app) as site:
        received = site.exchange(b"GET /v2.1 HTTP/1.0\r\n\r\n")
        assert statuses(received) == [200]
        assert b"Connection: close" in received
        host, port = site.address
    assert wsgi.root_url(app.environs[0], None) == f"http://{host}:{port}"


def test_request_over_ipv6_has_the_server_address(app: App) -> None:
    with serving(app, address="::1") as site:
        assert statuses(site.exchange(b"GET / HTTP/1.0\r\n\r\n")) == [200]
        assert wsgi.root_url(app.environs[0], None) == f"http://[::1]:{site.address[1]}"
    assert app.environs[0]["REMOTE_ADDR"] == "::1"


def test_absolute_url_is_served_like_its_path(app: App) -> None:
    with serving(app) as site:
        assert statuses(
            site.exchange(b"GET http://cloud/x?y HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\n\r\n")
        ) == [200]
    assert (app.environs[0]["PATH_INFO"], app.environs[0]["QUERY_STRING"]) == ("/x", "y")


def test_pipelined_requests_are_answered_in_order(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        body = b"POST /b HTTP/1.1\r\nHost: cloud\r\nContent-Length: 3\r\n\r\nabc"
        sock.sendall(GET + body + GET.replace(b"/ ", b"/stream?3 ") + GET + b"GET /half HTTP/1.1\r\nHo")
        more = b""
        for expected in (b"hello", b"hello", b"x" * 3072, b"hello"):
            reply, more = read_reply(sock, more=more)
            assert (reply.status, reply.body) == (200, expected)
        sock.sendall(b"st: cloud\r\n\r\n")
        assert read_reply(sock, more=more)[0].status == 200
    assert [environ["PATH_INFO"] for environ in app.environs] == ["/", "/b", "/stream", "/", "/half"]


def test_good_request_before_a_bad_one_is_answered(site: HttpSite) -> None:
    assert statuses(site.exchange(GET + b"nonsense\r\n\r\n")) == [200, 400]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: cloud\r\n\r\n", 414),
        (b"GET /" + b"x" * 400_000, 414),
        (b"GET / HTTP/1.1\r\nHost: cloud\r\nX: " + b"x" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nHost: cloud\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"BREW / HTTP/1.1\r\nHost: cloud\r\n\r\n", 501),
        (b"GET / HTTP/2.0\r\nHost: cloud\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nHost: cloud\r\nExpect: coffee\r\nContent-Length: 1\r\n\r\n", 417),
        (
            b"POST / HTTP/1.1\r\nHost: cloud\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n1;" + b"e" * 200_000,
            400,
        ),
    ],
)
def test_refusal_has_its_status_and_a_fault_in_json(app: App, data: bytes, status: int) -> None:
    with serving(app) as site, site.connect() as sock:
        sock.sendall(data)
        reply, _ = read_reply(sock)
        assert reply.status == status
        (fault,) = reply.json.values()
        assert fault["code"] == status
        assert fault["message"]
        assert until_closed(sock) == b""
    assert app.environs == []


def test_client_is_told_to_continue_once(site: HttpSite) -> None:
    with site.connect() as sock:
        send(sock, "POST", "/", "Content-Length: 3", "Expect: 100-continue")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"a")
        sock.sendall(b"bc")
        assert read_reply(sock)[0].status == 200


def test_upgrade_is_ignored_and_ends_the_connection(app: App) -> None:
    with serving(app) as site:
        upgrade = b"GET / HTTP/1.1\r\nHost: cloud\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
        received = site.exchange(upgrade + GET)
    assert statuses(received)[0] == 200
    assert len(app.environs) == 1


# --- responses


def test_head_and_empty_responses_have_no_body(site: HttpSite) -> None:
    with site.connect() as sock:
        send(sock, "HEAD", "/")
        reply, more = read_reply(sock, "HEAD")
        assert (reply.headers["content-length"], more) == ("5", b"")
        send(sock, "HEAD", "/stream?3")
        reply, more = read_reply(sock, "HEAD")
        assert (reply.status, more) == (200, b"")
        send(sock, "GET", "/empty")
        reply, more = read_reply(sock)
        assert (reply.status, more, "content-length" in reply.headers) == (204, b"", False)
        assert "transfer-encoding" not in reply.headers
        send(sock, "GET", "/")
        assert read_reply(sock)[0].body == b"hello"


def test_stream_has_chunks_or_its_length(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        for path, header in (("/stream", "transfer-encoding"), ("/announced", "content-length")):
            send(sock, "GET", f"{path}?5000")
            reply, more = read_reply(sock)
            assert (len(reply.body), more) == (5000 * 1024, b"")
            assert header in reply.headers
    wait_for("the iterators are closed", lambda: app.closed == 2, 30)


def test_old_client_gets_a_stream_until_the_end_of_the_connection(app: App) -> None:
    with serving(app) as site:
        received = site.exchange(b"GET /stream?50 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head, _, body = received.partition(b"\r\n\r\n")
        assert len(body) == 50 * 1024
        assert b"Transfer-Encoding" not in head
        keep = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        assert statuses(site.exchange(keep + GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))) == [200, 200]


def test_response_that_is_too_short_ends_the_connection(app: App) -> None:
    with serving(app) as site, site.connect() as sock:
        send(sock, "GET", "/short?3")
        body = until_closed(sock).partition(b"\r\n\r\n")[2]
        assert len(body) == 3 * 1024


@pytest.mark.parametrize("path", ["/fails", "/split"])
def test_faulty_application_is_a_500_without_details(app: App, path: str) -> None:
    with serving(app) as site, site.connect() as sock:
        send(sock, "GET", path)
        received = until_closed(sock)
        assert statuses(received) == [500]
        assert b"a bug" not in received
        assert b"Set-Cookie" not in received
        still_serves(site)


def test_client_that_disconnects_while_the_application_runs_leaves_nothing(app: App) -> None:
    with serving(app, threads=THREADS) as site:
        for _ in range(THREADS):
            with site.connect() as sock:
                send(sock, "GET", "/wait")
                wait_for("it runs", lambda: app.environs, 30)
        app.may_end.set()
        wait_for("the connections are gone", lambda: not site.server._connections, 30)
        still_serves(site)


# --- large bodies


def test_large_body_reaches_the_sink_and_keeps_the_promised_headers(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(sock, "PUT", "/upload", "Content-Length: 3000000", "Expect: 100-continue")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"x" * 3_000_000 + GET)
        reply, more = read_reply(sock)
        assert (reply.status, reply.body) == (201, b"3000000")
        assert reply.headers["x-request"] == "r1"
        assert read_reply(sock, more=more)[0].body == b"hello"
    assert app.sink.error is None


def test_large_chunked_body_reaches_the_sink(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(sock, "PUT", "/upload", "Transfer-Encoding: chunked")
        for _ in range(50):
            sock.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        sock.sendall(b"0\r\n\r\n")
        assert read_reply(sock)[0].body == b"%d" % (50 * 65536)
    assert "CONTENT_LENGTH" not in app.environs[-1], "nobody knows what comes"


@pytest.mark.parametrize("framing", ["Content-Length: 9999999999", "Transfer-Encoding: chunked"])
def test_large_body_that_nobody_takes_is_refused_unread(site: HttpSite, framing: str) -> None:
    with site.connect() as sock:
        body = b"x" * 1000 if framing.startswith("C") else b"30000\r\n" + b"x" * 0x30000
        send(sock, "POST", "/", framing, body=body)
        assert statuses(until_closed(sock)) == [413]


def test_sink_that_refuses_ends_the_upload(site: HttpSite, app: App) -> None:
    app.sink = Sink(refuses_at=500_000)
    with site.connect() as sock:
        with contextlib.suppress(OSError):
            send(sock, "PUT", "/upload", "Content-Length: 3000000", body=b"x" * 1_000_000)
        assert statuses(until_closed(sock)) == [413]
    assert isinstance(app.sink.error, ValueError)


def test_malformed_chunk_ends_the_upload_with_a_refusal(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(sock, "PUT", "/upload", "Transfer-Encoding: chunked", body=b"30000\r\n" + b"x" * 0x30000 + b"\r\nzz\r\n")
        assert statuses(until_closed(sock)) == [413]
    assert app.sink.error is not None


def test_sink_learns_that_the_client_has_gone(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(sock, "PUT", "/upload", "Content-Length: 3000000", body=b"x" * 1_000_000)
        wait_for("it receives", lambda: app.sink.size, 30)
    assert app.sink.ended.wait(20)
    assert isinstance(app.sink.error, OSError)


def test_upload_ends_at_its_deadline(app: App) -> None:
    with serving(app, limits=ClientLimits(upload=0.5)) as site, site.connect() as sock:
        send(sock, "PUT", "/upload", "Content-Length: 3000000", body=b"x" * 1_000_000)
        assert statuses(until_closed(sock)) == [413]
    assert isinstance(app.sink.error, TimeoutError)


def test_stopping_server_ends_uploads_and_finishes_requests(app: App) -> None:
    site = HttpSite(app, threads=THREADS)
    with site.connect() as upload, site.connect() as idle, site.connect() as busy:
        idle.sendall(GET)
        assert read_reply(idle)[0].status == 200
        send(upload, "PUT", "/upload", "Content-Length: 3000000", body=b"x" * 1_000_000)
        wait_for("it receives", lambda: app.sink.size, 30)
        send(busy, "GET", "/wait")
        wait_for("it runs", lambda: len(app.environs) == 3, 30)
        stopper = threading.Thread(target=lambda: site.server.stop(1))
        stopper.start()
        assert until_closed(idle) == b""
        app.may_end.set()
        assert statuses(until_closed(busy)) == [200]
        assert app.sink.ended.wait(20)
        stopper.join(20)
    assert isinstance(app.sink.error, ConnectionAbortedError)


def test_stopping_server_serves_connections_that_it_has_accepted(app: App) -> None:
    site = HttpSite(app, threads=THREADS)
    with contextlib.ExitStack() as clients:
        opened = [clients.enter_context(site.connect()) for _ in range(10)]
        wait_for("they are accepted", lambda: len(site.server._connections) == 10, 30)
        stopper = threading.Thread(target=site.stop)
        stopper.start()
        wait_for("it stops", lambda: site.server.stopping, 30)
        for sock in opened:
            sock.sendall(GET)
        assert [statuses(until_closed(sock)) for sock in opened] == [[200]] * 10
        stopper.join(20)


def test_connection_accepted_after_the_order_to_stop_is_served(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop accepts until it handles the order. The stop must not close what was accepted in between."""
    site = HttpSite(app)
    entered, accept = [], site.server._accept
    # The loop is a native thread, so it waits at a pipe, which no library replaces.
    reader, writer = os.pipe()

    def late_accept(listener: Any) -> None:
        entered.append(True)
        os.readv(reader, [bytearray(1)])
        accept(listener)

    monkeypatch.setattr(site.server, "_accept", late_accept)
    try:
        with site.connect() as sock:
            sock.sendall(GET)
            wait_for("the loop is about to accept", lambda: entered, 30)
            stop = threading.Thread(target=site.stop)
            stop.start()
            stop.join(0.5)  # a stop that does not wait for the loop has given all its orders by then
            os.write(writer, b"x")
            assert read_reply(sock)[0].status == 200
        stop.join(20)
        assert not stop.is_alive()
    finally:
        os.close(writer)  # a loop that still waits continues
        os.close(reader)


@pytest.mark.parametrize(("sources", "projects"), [((2, 2), ("a", "b")), ((2, 3), ("a", "a"))])
def test_client_and_project_have_half_of_the_uploads(
    app: App, sources: tuple[int, int], projects: tuple[str, str]
) -> None:
    with serving(app, limits=MANY) as site, contextlib.ExitStack() as clients:
        site.server.uploads = limits.Slots(2, 4)

        def begin(source: int, project: str) -> socket.socket:
            sock = clients.enter_context(site.connect(f"127.0.0.{source}"))
            send(sock, "PUT", "/upload", "Content-Length: 500000", f"X-Project: {project}", "Expect: 100-continue")
            return sock

        first = [begin(source, project) for source, project in zip(sources, projects, strict=True)]
        assert [sock.recv(12) for sock in first] == [b"HTTP/1.1 100"] * 2
        assert read_reply(begin(sources[0], projects[0]))[0].status == 503
        assert begin(9, "other").recv(12) == b"HTTP/1.1 100"
        first[0].sendall(b"x" * 500_000)
        rest = b" Continue\r\n\r\n"
        assert first[0].recv(len(rest), socket.MSG_WAITALL) == rest
        assert read_reply(first[0])[0].status == 201
        assert begin(sources[0], projects[0]).recv(12) == b"HTTP/1.1 100"


def test_refused_upload_gives_its_slot_back(app: App) -> None:
    with serving(app) as site:
        site.server.uploads = limits.Slots(1, 2)
        for _ in range(3):
            with site.connect() as sock:
                send(sock, "PUT", "/upload?conflict", "Content-Length: 500000")
                assert statuses(until_closed(sock)) == [409]
    assert app.sink.size == 0


# --- pieces that come later


def coming_of(app: App) -> Coming:
    wait_for("a response begins", lambda: app.coming is not None, 30)
    found, app.coming = app.coming, None
    assert found is not None
    return found


def test_pieces_that_come_later_arrive_at_once_and_the_connection_goes_on(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(sock, "GET", "/later")
        coming = coming_of(app)
        data = b""
        for piece in (b"one", b"two"):
            coming.add(piece)
            while piece not in data:
                data += sock.recv(65536)
        coming.add(None)
        reply, rest = read_reply(sock, more=data)
        assert (reply.body, rest) == (b"onetwo", b"")
        wait_for("the body is closed", lambda: app.closed == 1, 30)
        sock.sendall(GET)
        assert read_reply(sock)[0].status == 200


def test_responses_that_wait_hold_no_thread(app: App) -> None:
    with serving(app, threads=THREADS, limits=MANY) as site, contextlib.ExitStack() as own:
        threads = threading.active_count()
        for _ in range(40):
            sock = own.enter_context(site.connect())
            send(sock, "GET", "/later")
            assert coming_of(app).waits.acquire(timeout=30)
        assert threading.active_count() - threads <= transfers.MAX_THREADS
        still_serves(site)


def test_client_that_leaves_ends_a_response_that_waits(site: HttpSite, app: App) -> None:
    with site.connect() as sock:
        send(sock, "GET", "/later")
        coming = coming_of(app)
        assert coming.waits.acquire(timeout=30)
    wait_for("the body is closed", lambda: app.closed, 30)
    coming.notify()  # a late call does nothing
    still_serves(site)


def test_stopping_server_ends_responses_that_wait(app: App) -> None:
    site = HttpSite(app, threads=THREADS, limits=MANY)
    with site.connect() as sock:
        send(sock, "GET", "/later")
        coming = coming_of(app)
        assert coming.waits.acquire(timeout=30)
        site.stop()
        until_closed(sock)
    wait_for("the body is closed", lambda: app.closed == 1, 30)
    coming.notify()
