"""TLS between a console proxy and the consoles of hosts: real sockets, and certificates of the real authority."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg
from websockify.websocket import WebSocket

from nova_lite import conf as configuration
from nova_lite.base.exceptions import ConfigurationError
from nova_lite.base.host_certificates import Authority
from nova_lite.console import rfb
from nova_lite.console.host_tls import HostTls
from nova_lite.console.opening import Opener
from nova_lite.console.server import ProxyServer
from nova_lite.daemon.sockets import listen
from nova_lite.objects import Console, ConsolePort, ConsoleTarget
from tests.support import consoles
from tests.support.consoles import read

HOST, OTHER = "host_1", "host_2"
SPICE = "spice-html5"
PATH = "/?token=x"
CLIENT_INIT = b"\x01"


def expect(sock: socket.socket, said: bytes) -> None:
    if sock.recv(len(said)) != said:
        raise ConnectionError("the proxy does not continue")


class Guest:
    """A guest's console on a host with the certificate in ``directory``. It repeats its input.

    ``types``: security types of its VNC server; None for a serial console. ``subtypes``: of VeNCrypt. ``result``: what
    the VNC server says at the end. ``clients``: names of clients' certificates. ``records``: sizes of records of input.
    ``plain``: input without TLS. ``plain_port``: port of SPICE without TLS, where nothing listens; 0: there is none.
    """

    def __init__(self, directory: Path | None, types: list[int] | None) -> None:
        self.types = types
        self.subtypes = [rfb.X509_NONE]
        self.result = 0
        self.version = rfb.VERSION
        self.clients: list[Any] = []
        self.records: list[int] = []
        self.plain = b""
        self.plain_port = 0
        self.tls: ssl.SSLContext | None = None
        if directory is not None:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(directory / "server-cert.pem", directory / "server-key.pem")
            self.tls.load_verify_locations(directory / "ca-cert.pem")
            self.tls.verify_mode = ssl.CERT_REQUIRED
        self.sock = listen("127.0.0.1", 0)
        self.port = int(self.sock.getsockname()[1])
        consoles.serve(self.sock, self._speak)

    def _speak(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError, IndexError), contextlib.ExitStack() as own:
            own.enter_context(sock)
            if self.types is not None:
                sock = self._begin(sock)
            elif self.tls is not None:
                sock = self._secure(sock)
            own.enter_context(sock)
            while said := sock.recv(65536):
                if isinstance(sock, ssl.SSLSocket):
                    self.records.append(len(said))
                else:
                    self.plain += said
                sock.sendall(said)

    def _begin(self, sock: socket.socket) -> socket.socket:
        assert self.types is not None
        sock.sendall(self.version)
        expect(sock, rfb.VERSION)
        sock.sendall(bytes([len(self.types), *self.types]))
        if sock.recv(1)[0] == rfb.VENCRYPT:
            sock.sendall(b"\x00\x02")
            expect(sock, b"\x00\x02")
            count = len(self.subtypes)
            sock.sendall(b"\x00" + struct.pack(f"!B{count}L", count, *self.subtypes))
            expect(sock, struct.pack("!L", rfb.X509_NONE))
            sock.sendall(b"\x01")
            sock = self._secure(sock)
        sock.sendall(struct.pack("!L", self.result))
        return sock

    def _secure(self, sock: socket.socket) -> socket.socket:
        assert self.tls is not None
        secured = self.tls.wrap_socket(sock, server_side=True)
        self.clients.append((secured.getpeercert() or {}).get("subjectAltName"))
        return secured


class Cloud:
    """Fake conductor and compute service."""

    def __init__(self, guest: Guest, console_type: str) -> None:
        self._guest = guest
        self._type = console_type

    def console_token_redeem(self, *args: Any) -> ConsoleTarget:
        port, tls_port = self._guest.port, None
        if self._type == "spice-html5" and self._guest.tls is not None:
            port, tls_port = self._guest.plain_port, self._guest.port
        console = Console(
            console_type=self._type, host="127.0.0.1", port=port, access_url_base="http://proxy/", tls_port=tls_port
        )
        return ConsoleTarget(instance_uuid="uuid", compute_host=HOST, console=console)

    def find_console_port(self, *args: Any) -> ConsolePort:
        return ConsolePort(is_current=True, tls=self._type != "novnc" and self._guest.tls is not None)


class Site:
    """Certificates of two hosts and a proxy, and proxies that use them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.authority = Authority(str(path / "authority"))
        self.authority.create()
        for host in (HOST, OTHER):
            self.authority.issue_console(host, ["127.0.0.1"], str(path / host))
        self.authority.issue_proxy("proxy", str(path / "proxy"), 1)
        self._running: list[ProxyServer] = []
        self._guests: list[Guest] = []

    def tls(self, required: bool = True) -> HostTls | None:
        conf = cfg.ConfigOpts()
        configuration.register_opts(conf)
        conf([], default_config_files=[])
        conf.set_override("tls_directory", str(self.path / "proxy"), "console")
        conf.set_override("require_tls", required, "console")
        return HostTls.of(conf)

    def guest(self, host: str | None, types: list[int] | None) -> Guest:
        self._guests.append(Guest(self.path / host if host else None, types))
        return self._guests[-1]

    def proxy(self, guest: Guest, tls: HostTls | None, console_type: str = "") -> int:
        """Start a proxy to the guest's console. Return its port."""
        console_type = console_type or ("serial" if guest.types is None else "novnc")
        cloud: Any = Cloud(guest, console_type)
        opener = Opener(cloud, cloud, (console_type,), (), tls)
        sock = listen("127.0.0.1", 0)
        port = int(sock.getsockname()[1])
        self._running.append(ProxyServer(sock, opener, None, None, 30, 10, 10))
        threading.Thread(target=self._running[-1].serve_forever, args=(0.05,), daemon=True).start()
        return port

    def close(self) -> None:
        for proxy in self._running:
            proxy.stop()
        for guest in self._guests:
            guest.sock.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def dial(port: int) -> WebSocket:
    return consoles.connect(socket.create_connection(("127.0.0.1", port), 20), PATH)


def begin(client: WebSocket, version: bytes = rfb.VERSION) -> None:
    """Begin the protocol as a browser does."""
    assert read(client, 12) == rfb.VERSION
    client.send(version)
    if version == b"RFB 003.003\n":
        assert read(client, 4) == b"\0\0\0\x01"
        return
    assert read(client, 2) == bytes([1, rfb.NONE])
    client.send(bytes([rfb.NONE]))
    if version == rfb.VERSION:
        assert read(client, 4) == bytes(4)


@pytest.mark.parametrize("version", [rfb.VERSION, b"RFB 003.007\n", b"RFB 003.003\n"])
def test_screen_is_reached_by_tls_with_the_proxys_certificate(site: Site, version: bytes) -> None:
    guest = site.guest(HOST, [rfb.VENCRYPT])
    client = dial(site.proxy(guest, site.tls()))
    begin(client, version)
    sent = CLIENT_INIT + os.urandom(300_000)
    threading.Thread(target=client.send, args=(sent,), daemon=True).start()
    assert read(client, len(sent)) == sent
    assert guest.clients == [(("DNS", "proxy"),)] and guest.plain == b""


def test_screen_gets_input_that_comes_with_the_beginning(site: Site) -> None:
    client = dial(site.proxy(site.guest(HOST, [rfb.VENCRYPT]), site.tls()))
    client.send(rfb.VERSION + bytes([rfb.NONE]) + b"early")
    expected = rfb.VERSION + bytes([1, rfb.NONE]) + bytes(4) + b"early"
    assert read(client, len(expected)) == expected


def test_serial_console_is_reached_by_tls_with_the_proxys_certificate(site: Site) -> None:
    """The guest says nothing first, and session tickets of TLS must not hold up the proxy."""
    guest = site.guest(HOST, None)
    client = dial(site.proxy(guest, site.tls()))
    for _ in range(3):
        sent = os.urandom(10_000)
        threading.Thread(target=client.send, args=(sent,), daemon=True).start()
        assert read(client, len(sent)) == sent
    assert guest.clients == [(("DNS", "proxy"),)] and guest.plain == b""


def test_serial_console_gets_each_byte_in_a_record_of_its_own(site: Site) -> None:
    """Some versions of qemu end the connection if a guest does not take a whole record at once."""
    guest = site.guest(HOST, None)
    client = dial(site.proxy(guest, site.tls()))
    client.send(b"pasted text")
    assert read(client, 11) == b"pasted text"
    assert guest.records == [1] * 11


def refusal(site: Site, guest: Guest, caplog: pytest.LogCaptureFixture, tls: HostTls | None) -> str:
    """Check that the console is refused, and return the line for the operator."""
    with caplog.at_level(logging.WARNING):
        assert consoles.status(site.proxy(guest, tls), PATH) == 502
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"port {guest.port} of host {HOST}: " in line and "\n" not in line
    return line


@pytest.mark.parametrize("types", [[rfb.VENCRYPT], None], ids=["screen", "serial"])
def test_host_in_place_of_another_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture, types: list[int] | None
) -> None:
    guest = site.guest(OTHER, types)
    assert f"its certificate is not of host {HOST}" in refusal(site, guest, caplog, site.tls())
    assert guest.plain == b""


@pytest.mark.parametrize("types", [[rfb.VENCRYPT], None], ids=["screen", "serial"])
def test_certificate_of_another_authority_is_refused(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, types: list[int] | None
) -> None:
    stranger = Authority(str(tmp_path / "stranger"))
    stranger.create()
    stranger.issue_console(HOST, ["127.0.0.1"], str(tmp_path / HOST))
    assert "certificate verify failed" in refusal(site, site.guest(HOST, types), caplog, site.tls())


@pytest.mark.parametrize("name", ["client-cert.pem", "server-cert.pem"])
def test_certificate_for_migrations_is_not_one_of_consoles(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    site.authority.issue(HOST, ["127.0.0.1"], str(tmp_path / HOST), 1)
    for kind in ("cert", "key"):
        source = tmp_path / HOST / name.replace("cert", kind)
        (tmp_path / HOST / f"server-{kind}.pem").write_bytes(source.read_bytes())
    assert "certificate verify failed" in refusal(site, site.guest(HOST, None), caplog, site.tls())


def test_screen_without_tls_is_refused(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    guest = site.guest(None, [rfb.NONE])
    assert "offers no TLS (security types [1])" in refusal(site, guest, caplog, site.tls())
    assert guest.plain == b""


def test_serial_console_without_tls_is_refused_and_gets_no_input(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    guest = site.guest(None, None)
    assert "the guest's console has no TLS" in refusal(site, guest, caplog, site.tls())
    assert guest.plain == b""


def test_spice_console_with_two_ports_is_reached_at_that_of_tls(site: Site) -> None:
    guest = site.guest(HOST, None)
    guest.plain_port = 1
    client = dial(site.proxy(guest, site.tls(), SPICE))
    client.send(b"REDQ")
    assert read(client, 4) == b"REDQ"
    assert guest.clients == [(("DNS", "proxy"),)] and guest.plain == b""


def test_spice_console_with_tls_alone_needs_a_proxy_with_a_certificate(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert consoles.status(site.proxy(site.guest(HOST, None), None, SPICE), PATH) == 502
    assert "no [console] tls_directory" in caplog.text


def test_spice_console_without_tls_is_refused_and_gets_no_input(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    guest = site.guest(None, None)
    with caplog.at_level(logging.WARNING):
        assert consoles.status(site.proxy(guest, site.tls(), SPICE), PATH) == 502
    assert "has no TLS: spice_tls in qemu.conf on its host" in caplog.text and guest.plain == b""
    client = dial(site.proxy(guest, site.tls(required=False), SPICE))
    client.send(b"REDQ")
    assert read(client, 4) == b"REDQ"


def test_console_without_tls_is_shown_while_tls_is_not_required(site: Site) -> None:
    screen, serial = site.guest(None, [rfb.NONE]), site.guest(None, None)
    client = dial(site.proxy(screen, site.tls(required=False)))
    begin(client)
    client.send(b"typed")
    assert read(client, 5) == b"typed"
    client = dial(site.proxy(serial, site.tls(required=False)))
    client.send(b"typed")
    assert read(client, 5) == b"typed"


def test_screen_with_tls_gets_it_while_it_is_not_required(site: Site) -> None:
    guest = site.guest(HOST, [rfb.NONE, rfb.VENCRYPT])
    begin(dial(site.proxy(guest, site.tls(required=False))))
    assert guest.clients == [(("DNS", "proxy"),)]


def test_serial_console_with_tls_needs_a_proxy_with_a_certificate(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert "no [console] tls_directory" in refusal(site, site.guest(HOST, None), caplog, None)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"version": b"RFB 003.003\n"}, "not RFB 3.8"),
        ({"version": b"SSH-2.0-rude"}, "not RFB 3.8"),
        ({"types": []}, "offers no TLS (security types [])"),
        ({"types": [2]}, "offers no TLS (security types [2])"),
        ({"subtypes": [257, 261]}, "has no certificate (VeNCrypt subtypes [257, 261])"),
        ({"result": 1}, "refuses this proxy"),
    ],
    ids=str,
)
def test_vnc_server_that_differs_is_refused(
    site: Site, caplog: pytest.LogCaptureFixture, change: dict[str, Any], why: str
) -> None:
    guest = site.guest(HOST, [rfb.VENCRYPT])
    for name, value in change.items():
        setattr(guest, name, value)
    assert why in refusal(site, guest, caplog, site.tls())


@pytest.mark.parametrize("said", [b"GET / HTTP/1", rfb.VERSION + b"\x02", rfb.VERSION + b"\x13"])
def test_browser_that_does_not_speak_the_protocol_reaches_no_guest(site: Site, said: bytes) -> None:
    guest = site.guest(HOST, [rfb.VENCRYPT])
    client = dial(site.proxy(guest, site.tls()))
    client.send(said + b"never")
    with contextlib.suppress(OSError):
        while (heard := client.socket.recv(4096)) != b"":
            assert b"never" not in heard


def test_directory_without_a_file_is_one_clear_line(site: Site) -> None:
    for name in ("ca-cert.pem", "client-cert.pem", "client-key.pem"):
        path = site.path / "proxy" / name
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(ConfigurationError, match=rf"\[console\] tls_directory: {path}: No such file"):
            site.tls()
        path.write_bytes(b"what")
        path.chmod(0o600)
        with pytest.raises(ConfigurationError, match=r"\[console\] tls_directory = "):
            site.tls()
        path.write_bytes(content)
    assert site.tls() is not None


def test_key_that_others_can_read_is_refused(site: Site) -> None:
    (site.path / "proxy/client-key.pem").chmod(0o640)
    with pytest.raises(ConfigurationError, match="can be read by others"):
        site.tls()


def test_no_directory_is_no_tls() -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    assert HostTls.of(conf) is None
