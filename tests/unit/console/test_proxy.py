"""A proxy between a client and a console, both of this process; conductor and host are fakes."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockify.websocket import WebSocket

from nova_lite.base import exceptions
from nova_lite.console import opening, server, tokens
from nova_lite.daemon.sockets import listen, tls_context
from nova_lite.objects import Console, ConsolePort, ConsoleTarget
from tests.support import consoles
from tests.support.consoles import GREETING, EchoConsole, read
from tests.support.waiting import wait_for, wait_for_none

TOKEN = "the-token"
PATH = f"/?token={TOKEN}"


class Cloud:
    """Fake conductor and compute service of a proxy."""

    def __init__(self, port: int) -> None:
        self.valid = {tokens.digest(TOKEN)}
        self.port = port
        self.error: Exception | None = None
        self.is_there = True
        self.base = "http://proxy/vnc.html"
        self.is_old = False

    def console_token_redeem(
        self, context: Any, token_hash: str, console_types: list[str], page_scheme: str | None
    ) -> ConsoleTarget:
        if self.error is not None:
            raise self.error
        if token_hash not in self.valid:
            raise exceptions.ConsoleTokenNotFound()
        assert console_types == ["novnc"]
        console = Console(console_type="novnc", host="127.0.0.1", port=self.port, access_url_base=self.base)
        if not self.is_old and page_scheme is not None and not console.is_shown_by(page_scheme):
            raise exceptions.ConsolePageRefused()
        self.valid.remove(token_hash)
        return ConsoleTarget(instance_uuid="uuid", compute_host="h1", console=console)

    def find_console_port(self, context: Any, host: str, uuid: str, port: int, console_type: str) -> ConsolePort:
        assert (host, uuid, port, console_type) == ("h1", "uuid", self.port, "novnc")
        return ConsolePort(is_current=self.is_there)


class Proxy:
    def __init__(
        self, cloud: Cloud, web: Path | None, tls: ssl.SSLContext | None, timeout: float, most: int, per_client: int
    ) -> None:
        opener = opening.Opener(cloud, cloud, ("novnc",), ["dashboard.example"])  # type: ignore[arg-type]
        sock = listen("127.0.0.1", 0)
        self.port = sock.getsockname()[1]
        self.server = server.ProxyServer(sock, opener, str(web) if web else None, tls, timeout, most, per_client)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def dial(self, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10, (address, 0))

    def status(self, path: str = PATH, **headers: str) -> int:
        return consoles.status(self.port, path, {name.replace("_", "-"): value for name, value in headers.items()})


@pytest.fixture
def target() -> Iterator[EchoConsole]:
    made = EchoConsole()
    yield made
    made.sock.close()


@pytest.fixture
def cloud(target: EchoConsole) -> Cloud:
    return Cloud(target.port)


@pytest.fixture
def start(cloud: Cloud) -> Iterator[Any]:
    running: list[Proxy] = []

    def begin(
        web: Path | None = None, tls: Any = None, timeout: float = 30, most: int = 10, per_client: int = 10
    ) -> Proxy:
        running.append(Proxy(cloud, web, tls, timeout, most, per_client))
        return running[-1]

    yield begin
    for proxy in running:
        proxy.server.stop()
        proxy.thread.join(10)
        assert not proxy.thread.is_alive()


def connect(proxy: Proxy) -> WebSocket:
    return consoles.connect(proxy.dial(), PATH)


def test_proxy_copies_bytes_both_ways_and_the_token_opens_once(start: Any, target: EchoConsole, cloud: Cloud) -> None:
    proxy = start()
    client = connect(proxy)
    assert read(client, len(GREETING)) == GREETING
    sent = os.urandom(300_000)
    threading.Thread(target=client.send, args=(sent,), daemon=True).start()
    assert read(client, len(sent)) == sent
    assert proxy.status() == 401
    client.close()


def test_proxy_buffers_little_for_a_slow_client(start: Any, target: EchoConsole) -> None:
    """A client that does not read makes its console wait."""
    proxy = start()
    client = connect(proxy)
    target.flood = 100
    client.socket.settimeout(1)
    with contextlib.suppress(OSError):
        for _ in range(400):
            client.send(bytes(65536))
    assert target.received < 8_000_000


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/?token=other", {}, 401),
        ("/?token=", {}, 401),
        ("/", {}, 401),
        (PATH, {"Origin": "http://evil.example"}, 403),
        (PATH, {"Origin": "null"}, 403),
        (PATH, {"Sec_WebSocket_Version": "1"}, 400),
        (PATH, {"Sec_WebSocket_Key": ""}, 400),
        (PATH, {"Origin": "http://proxy"}, 101),
        (PATH, {"Origin": "http://dashboard.example"}, 101),
    ],
)
def test_proxy_refused_page_does_not_use_up_the_token(
    start: Any, cloud: Cloud, path: str, headers: dict[str, str], status: int
) -> None:
    assert start().status(path, **headers) == status
    assert bool(cloud.valid) is (status != 101)


def test_proxy_refuses_a_page_without_tls_for_a_console_with_tls(start: Any, cloud: Cloud) -> None:
    cloud.base = "https://proxy/vnc.html"
    proxy = start()
    assert proxy.status(Origin="http://proxy") == 403
    assert cloud.valid, "the token is used up"
    assert proxy.status(Origin="https://proxy") == 101


def test_proxy_of_an_older_conductor_refuses_a_page_without_tls_itself(start: Any, cloud: Cloud) -> None:
    cloud.base, cloud.is_old = "https://proxy/vnc.html", True
    assert start().status(Origin="http://proxy") == 403


def test_proxy_does_not_show_a_port_that_another_guest_has_now(start: Any, cloud: Cloud) -> None:
    cloud.is_there = False
    with start().dial() as sock:
        consoles.request(sock, PATH)
        answer = sock.recv(65536)
    assert answer.startswith(b"HTTP/1.1 401 ") and GREETING not in answer
    assert answer.endswith(b"\r\n\r\n"), "clients would take a body for what the console says"


def test_proxy_console_that_does_not_answer_is_bad_gateway(start: Any, target: EchoConsole, cloud: Cloud) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        cloud.port = unused.getsockname()[1]
        assert start().status() == 502


def test_proxy_without_control_plane_is_unavailable(start: Any, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    cloud.error = exceptions.MessagingUnavailable(what="console_token_redeem")
    proxy = start()
    with caplog.at_level(logging.WARNING):
        assert proxy.status() == 503
    assert len(caplog.records) == 1 and "cannot be opened" in caplog.text
    cloud.error = None
    assert proxy.status() == 101


def test_proxy_logs_no_token(start: Any, cloud: Cloud, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "vnc.html").write_text("page")
    proxy = start(web=tmp_path)
    with caplog.at_level(logging.DEBUG):
        for path in (f"/vnc.html?path=%3Ftoken%3D{TOKEN}", f"/nothing?token={TOKEN}"):
            with contextlib.suppress(urllib.error.HTTPError):
                urllib.request.urlopen(f"http://127.0.0.1:{proxy.port}{path}", timeout=10)
        for path in (PATH, PATH, f"/?token={TOKEN} x y"):
            proxy.status(path)
        cloud.valid = {tokens.digest(TOKEN)}
        client = connect(proxy)
        read(client, len(GREETING))
        client.close()
        wait_for("it leaves the console", lambda: "leaves the console" in caplog.text, 20)
    assert "GET /vnc.html 200" in caplog.text and "GET /nothing 404" in caplog.text
    assert TOKEN not in caplog.text


def test_proxy_serves_pages_of_its_directory_alone(start: Any, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "ui.js").write_text("let x;")
    proxy = start(web=tmp_path)
    url = f"http://127.0.0.1:{proxy.port}"
    with urllib.request.urlopen(f"{url}/app/ui.js", timeout=10) as answer:
        assert answer.read() == b"let x;" and "javascript" in answer.headers["Content-Type"]
        assert answer.headers["Referrer-Policy"] == "no-referrer"
    for path in ("/", "/app/", "/../../etc/passwd", "//evil.example/..", "/none"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url + path, timeout=10)
        assert caught.value.code in (400, 404), path


def test_proxy_without_pages_serves_websockets_alone(start: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{start().port}/vnc.html", timeout=10)
    assert caught.value.code == 405


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_proxy_closes_a_connection_without_a_complete_request(start: Any, said: bytes) -> None:
    proxy = start(timeout=0.5)
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as sock:
        sock.sendall(said)
        began = time.monotonic()
        assert sock.recv(100) == b""
        assert time.monotonic() - began > 0.3


def test_proxy_closes_a_connection_whose_request_comes_in_drops(start: Any) -> None:
    proxy = start(timeout=0.5)
    with socket.create_connection(("127.0.0.1", proxy.port), 10) as sock, pytest.raises(OSError):
        for _ in range(200):
            sock.sendall(b"G")
            time.sleep(0.05)


def test_proxy_open_console_has_no_request_deadline(start: Any) -> None:
    client = connect(start(timeout=0.3))
    read(client, len(GREETING))
    assert select.select([client.socket], [], [], 1.0)[0] == [], "the proxy closes the connection"
    client.send(b"still")
    assert read(client, 5) == b"still"


def test_proxy_closes_connections_above_the_limit(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    proxy = start(most=1)
    client = connect(proxy)
    read(client, len(GREETING))
    with proxy.dial() as sock, contextlib.suppress(OSError):
        consoles.request(sock, PATH)
        assert sock.recv(100) == b""
    assert "there are 1 connections" in caplog.text
    client.close()
    wait_for_none("connections", lambda: proxy.server._connections, 20)
    assert proxy.status() == 401


def test_proxy_client_with_its_share_leaves_room_for_others(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    proxy = start(most=10, per_client=3)
    with contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(proxy.dial())
        wait_for("three connections", lambda: len(proxy.server._connections) == 3, 20)
        with proxy.dial() as sock, contextlib.suppress(OSError):
            consoles.request(sock, PATH)
            assert sock.recv(100) == b""
        assert "127.0.0.1 has 3 connections" in caplog.text
        with proxy.dial("127.0.0.2") as sock:
            consoles.request(sock, PATH)
            assert sock.recv(100).startswith(b"HTTP/1.1 101 ")
    wait_for_none("connections", lambda: proxy.server._connections, 20)
    with proxy.dial() as sock:
        consoles.request(sock, "/?token=other")
        assert sock.recv(100).startswith(b"HTTP/1.1 401 ")


def test_proxy_refuses_a_message_without_end(start: Any) -> None:
    client = connect(start())
    read(client, len(GREETING))
    header = b"\x82\xff" + (1 << 40).to_bytes(8, "big") + b"mask"
    with pytest.raises(OSError):
        client.socket.sendall(header)
        for _ in range(200):
            client.socket.sendall(bytes(65536))


def test_proxy_stop_closes_its_connections(start: Any) -> None:
    proxy = start()
    client = connect(proxy)
    read(client, len(GREETING))
    proxy.server.stop()
    client.socket.settimeout(10)
    with contextlib.suppress(ConnectionResetError):
        while client.socket.recv(100):
            pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    path = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    command += ["-keyout", str(path / "key"), "-out", str(path / "cert")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return str(path / "cert"), str(path / "key")


def test_proxy_with_a_certificate_speaks_tls_alone(start: Any, certificate: tuple[str, str]) -> None:
    proxy = start(tls=tls_context(*certificate, "cert", "key"), timeout=2)
    context = ssl.create_default_context(cafile=certificate[0])
    context.check_hostname = False
    with proxy.dial() as sock:
        answer = b""
        with contextlib.suppress(OSError):
            consoles.request(sock, PATH)
            answer = sock.recv(100)
        assert not answer.startswith(b"HTTP")
    client = consoles.connect(context.wrap_socket(proxy.dial()), PATH)
    assert read(client, len(GREETING)) == GREETING
    sent = os.urandom(200_000)
    client.send(sent[:100_000])
    client.send(sent[100_000:])
    assert read(client, len(sent)) == sent


@pytest.mark.parametrize("files", [(None, None), ("/nonexistent", "/nonexistent")])
def test_tls_context_unreadable_file_is_a_configuration_error(files: tuple[str | None, str | None]) -> None:
    with pytest.raises(exceptions.ConfigurationError, match=r"^\[DEFAULT\] cert = .*: cannot be read\.$"):
        tls_context(*files, "[DEFAULT] cert", "[DEFAULT] key")
