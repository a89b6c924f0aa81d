"""Request smuggling: no API, and no console proxy, executes bytes that another reader takes for a part of a request."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.http import deploy
from nova_lite.api.identity import passwords
from nova_lite.base.timing import HealthTiming
from nova_lite.console import opening
from nova_lite.console import server as console_server
from nova_lite.daemon.health import MAX_CLIENTS, Health
from nova_lite.daemon.sockets import listen
from tests.security import smuggling
from tests.support.http_site import HttpSite, make_certificate, statuses, until_closed
from tests.support.identity_api import World
from tests.support.waiting import wait_for

APIS = {
    "osapi_compute": "/v2.1",
    "identity": "/v3",
    "image": "/versions",
    "volume": "/v3",
    "network": "/",
    "metadata": "/",
}
CASES = list(smuggling.cases())


class Recorded:
    """An application, and the requests that reached it."""

    def __init__(self, app: deploy.App) -> None:
        self._app = app
        self.requests: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        return self._app(environ, start_response)


class Api:
    def __init__(self, name: str, app: Recorded, site: HttpSite) -> None:
        self.name = name
        self.app = app
        self.site = site

    def get(self) -> bytes:
        path = APIS[self.name].encode()
        return self.site.exchange(b"GET %b HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\n\r\n" % path)


class ConsoleSite:
    """A console proxy that serves one page, and no console."""

    def __init__(self, pages: Path) -> None:
        (pages / "page.html").write_text("a page")
        sock = listen("127.0.0.1", 0)
        self._address = sock.getsockname()
        opener = opening.Opener(None, None, ("novnc",), [])  # type: ignore[arg-type]
        self._server = console_server.ProxyServer(sock, opener, str(pages), None, 20, 50, 50)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def exchange(self, data: bytes) -> bytes:
        with socket.create_connection(self._address, 20) as sock, contextlib.suppress(OSError):
            sock.sendall(data)
            return until_closed(sock)
        return b""

    def stop(self) -> None:
        self._server.stop()
        self._thread.join(10)


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> World:
    hashes = dict.fromkeys(("admin", "alice", "bob"), passwords.hashed("secret"))
    return World(tmp_path_factory.mktemp("apis"), hashes)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module", params=[(name, tls) for name in APIS for tls in (False, True)], ids=str)
def api(request: pytest.FixtureRequest, services: World, certificate: tuple[str, str]) -> Iterator[Api]:
    name, tls = request.param
    app = Recorded(deploy.load_app(name, services.services))
    site = HttpSite(app, tls=certificate if tls else None)
    yield Api(name, app, site)
    site.stop()


def test_corpus_has_several_hundred_different_cases() -> None:
    assert len({data for _, data in CASES}) > 600
    for valid in (smuggling.request(b"Content-Length: 5", body=b"12345"), smuggling.request(method=b"GET")):
        assert valid not in {data for _, data in CASES}


def test_smuggling_case_is_refused_and_its_connection_closed(api: Api) -> None:
    """Try every case, so that one failure does not hide the others."""
    wrong = []
    for name, data in CASES:
        del api.app.requests[:]
        codes = statuses(api.site.exchange(data))
        if len(codes) != 1 or codes[0] not in smuggling.REFUSALS or api.app.requests:
            wrong.append((name, codes, list(api.app.requests)))
    assert wrong == []


def test_ambiguous_length_or_coding_is_a_400(api: Api) -> None:
    for headers in (
        (b"Content-Length: 5", b"Content-Length: 6"),
        (b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        (b"Content-Length: +5",),
        (b"Content-Length: -5",),
        (b"X_Auth_Token: admin",),
        (b"X-Auth-Token : admin",),
    ):
        received = api.site.exchange(smuggling.request(*headers, body=b"12345" + smuggling.SMUGGLED))
        assert statuses(received) == [400], headers
        assert b"Connection: close" in received
    chunk = smuggling.request(b"Transfer-Encoding: chunked", body=b"zz\r\n")
    assert statuses(api.site.exchange(chunk)) == [400]


def test_bytes_in_pieces_are_refused_in_the_same_way(api: Api) -> None:
    """A request that arrives byte by byte has the same meaning as in one piece."""
    for _, data in CASES[::61]:
        if len(data) > 1000:
            continue
        with api.site.connect() as sock:
            del api.app.requests[:]
            received = b""
            with contextlib.suppress(OSError):  # the server closes the connection while bytes are still sent
                for index in range(len(data)):
                    sock.sendall(data[index : index + 1])
                received = until_closed(sock)
            assert all(code in smuggling.REFUSALS for code in statuses(received)), data
            assert api.app.requests == []


def test_unread_body_is_not_a_request(api: Api) -> None:
    """The application does not read the body of a GET, or of a request that it refuses."""
    path = APIS[api.name].encode()
    size = len(smuggling.SMUGGLED)
    for method in (b"GET", b"POST", b"DELETE"):
        chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (size, smuggling.SMUGGLED)
        framed = ((b"Content-Length: %d" % size, smuggling.SMUGGLED), (b"Transfer-Encoding: chunked", chunks))
        for header, body in framed:
            del api.app.requests[:]
            last = b"GET %b HTTP/1.1\r\nHost: cloud\r\nConnection: close\r\n\r\n" % path
            received = api.site.exchange(smuggling.request(header, method=method, target=path, body=body) + last)
            assert api.app.requests == [f"{method.decode()} {APIS[api.name]}", f"GET {APIS[api.name]}"]
            assert len(statuses(received)) == 2


def test_api_still_serves_after_the_corpus(api: Api) -> None:
    assert statuses(api.get())[0] < 500


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleSite]:
    site = ConsoleSite(tmp_path_factory.mktemp("pages"))
    yield site
    site.stop()


def test_console_proxy_refuses_the_corpus(proxy: ConsoleSite) -> None:
    """The proxy executes nothing behind the first request: there is one response, and then the end."""
    wrong = []
    for name, data in CASES:
        codes = statuses(proxy.exchange(data))
        if len(codes) > 1 or not set(codes) <= smuggling.REFUSALS:
            wrong.append((name, codes))
    assert wrong == []


def test_console_proxy_refuses_bodies_and_serves_pages(proxy: ConsoleSite) -> None:
    for header, body in ((b"Content-Length: 5", b"12345"), (b"Transfer-Encoding: chunked", b"0\r\n\r\n")):
        received = proxy.exchange(smuggling.request(header, method=b"GET", body=body + smuggling.SMUGGLED))
        assert statuses(received) == [400]
    page = smuggling.request(method=b"GET", target=b"/page.html")
    last = smuggling.request(b"Connection: close", method=b"GET", target=b"/page.html")
    received = proxy.exchange(page + last)
    assert statuses(received) == [200, 200]
    assert received.count(b"a page") == 2


def test_health_server_executes_one_request_of_a_connection() -> None:
    health = Health()
    health.serve("127.0.0.1", 0)
    try:
        for _, data in CASES[::7]:
            with socket.create_connection(("127.0.0.1", health.port), 20) as sock:
                sock.sendall(data)
                assert len(statuses(until_closed(sock).replace(b"HTTP/1.0", b"HTTP/1.1"))) <= 1
    finally:
        health.close()


def test_health_server_has_few_threads_for_slow_clients() -> None:
    health = Health()
    health.serve("127.0.0.1", 0)
    address = ("127.0.0.1", health.port)
    before = threading.active_count()
    try:
        with contextlib.ExitStack() as slow:
            for number in range(MAX_CLIENTS):
                slow.enter_context(socket.create_connection(address, 20)).sendall(b"GET /he")
                wait_for("it is accepted", lambda number=number: threading.active_count() > before + number, 30)
            for _ in range(20):
                with socket.create_connection(address, 20) as one_more:
                    assert until_closed(one_more) == b""
            assert threading.active_count() <= before + MAX_CLIENTS
        wait_for("the slow ones have gone", lambda: threading.active_count() <= before, 30)
        with socket.create_connection(address, 20) as sock:
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b" 200 OK" in until_closed(sock)
    finally:
        health.close()


def test_health_server_ends_slow_connections() -> None:
    health = Health(HealthTiming(max_connection=0.5))
    health.serve("127.0.0.1", 0)
    try:
        with socket.create_connection(("127.0.0.1", health.port), 20) as sock:
            sock.sendall(b"GET /he")
            assert until_closed(sock) == b""
    finally:
        health.close()
