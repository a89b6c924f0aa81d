"""The PROXY protocol: whose address the API sees behind a load balancer, and who may name it."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from nova_lite.api.http.limits import ClientLimits
from nova_lite.api.http.proxy_protocol import SIGNATURE, Balancers, Header, Source, networks
from nova_lite.base import exceptions, ip
from nova_lite.cmd import api
from nova_lite.objects import Controller
from nova_lite.rpc import controllers
from tests.support.http_site import GET, HttpSite, make_certificate, read_reply, serving, until_closed

LOOPBACK = Balancers(networks(["127.0.0.1"]))
CLIENT = Source("192.0.2.77", 4711)


def header(source: Source = CLIENT, command: int = 0x21, extra: bytes = b"") -> bytes:
    version6 = ":" in source.address
    kind = socket.AF_INET6 if version6 else socket.AF_INET
    there = "2001:db8::10" if version6 else "192.0.2.10"
    content = socket.inet_pton(kind, source.address) + socket.inet_pton(kind, there)
    content += struct.pack("!HH", source.port, 443) + extra
    return SIGNATURE + struct.pack("!BBH", command, 0x21 if version6 else 0x11, len(content)) + content


class App:
    """An application that returns the client's address."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [f"{environ['REMOTE_ADDR']} {environ['REMOTE_PORT']}".encode()]


def client_of(site: HttpSite, *pieces: bytes) -> str:
    """Return the address and port that the application sees, after these pieces."""
    with site.connect() as sock:
        for piece in pieces:
            sock.sendall(piece)
        return read_reply(sock)[0].body.decode()


# --- headers


@pytest.mark.parametrize("source", [CLIENT, Source("2001:db8::77", 1)])
@pytest.mark.parametrize("size", [1, 11, 1000])
def test_header_in_pieces_names_the_client_and_leaves_the_rest(source: Source, size: int) -> None:
    data, read = header(source, extra=b"\x04\0\1x") + b"rest", Header()
    for start in range(0, len(data), size):
        found = read.feed(data[start : start + size])
        if found is not None:
            break
    assert found is not None and found[0] == source
    assert b"rest".startswith(found[1])


@pytest.mark.parametrize("data", [GET, b"\x16\x03\x01\x02", b"\r\n\r\nGET /"])
def test_connection_without_a_header_is_the_balancers_own(data: bytes) -> None:
    assert Header().feed(data) == (None, data)


def test_check_of_the_balancer_is_its_own_connection() -> None:
    assert Header().feed(header(command=0x20) + b"x") == (None, b"x")
    of_a_file = SIGNATURE + struct.pack("!BBH", 0x21, 0x31, 216) + bytes(216)
    assert Header().feed(of_a_file) == (None, b"")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (SIGNATURE + struct.pack("!BBH", 0x11, 0x11, 12) + bytes(12), "version and command 0x11"),
        (SIGNATURE + struct.pack("!BBH", 0x22, 0x11, 12) + bytes(12), "version and command 0x22"),
        (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 11) + bytes(11), "its addresses have 11 bytes"),
        (SIGNATURE + struct.pack("!BBH", 0x21, 0x21, 35) + bytes(35), "its addresses have 35 bytes"),
        (SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 65535), "it announces 65535 bytes"),
    ],
)
def test_wrong_header_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Header().feed(data)


# --- the server


def test_client_behind_a_balancer_is_the_one_of_the_header() -> None:
    with serving(App(), balancers=LOOPBACK) as site:
        assert client_of(site, header() + GET) == "192.0.2.77 4711"
        assert client_of(site, header()[:9], header()[9:], GET) == "192.0.2.77 4711"
        assert client_of(site, GET).startswith("127.0.0.1 ")
        assert client_of(site, header(command=0x20), GET).startswith("127.0.0.1 ")


def test_header_of_another_peer_is_no_request() -> None:
    with serving(App(), balancers=Balancers(networks(["192.0.2.0/24"]))) as site:
        answer = site.exchange(header() + GET)
        assert b"192.0.2.77" not in answer and not answer.startswith(b"HTTP/1.1 200")
        assert client_of(site, GET).startswith("127.0.0.1 ")


def test_header_comes_before_tls(tmp_path: Path) -> None:
    tls = make_certificate(tmp_path)
    with serving(App(), balancers=LOOPBACK, tls=tls) as site:
        sock = site.connect(shake=False)
        sock.sendall(header())
        assert site._client is not None
        with site._client.wrap_socket(sock, server_hostname="127.0.0.1") as shaken:
            shaken.sendall(GET)
            assert read_reply(shaken)[0].body == b"192.0.2.77 4711"
        assert client_of(site, GET).startswith("127.0.0.1 ")


def test_wrong_header_ends_the_connection() -> None:
    with serving(App(), balancers=LOOPBACK) as site, site.connect() as sock:
        sock.sendall(SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 1) + b"x" + GET)
        assert until_closed(sock) == b""


def test_connections_are_counted_by_client_and_not_by_balancer() -> None:
    limits = ClientLimits(connections=2)
    with serving(App(), balancers=LOOPBACK, limits=limits) as site:
        kept = []
        for number in range(6):
            sock = site.connect()
            kept.append(sock)
            sock.sendall(header(Source(f"192.0.2.{number // 2}", 1)) + GET)
            assert read_reply(sock)[0].status == 200
        with site.connect() as sock:
            sock.sendall(header(Source("192.0.2.1", 1)) + GET)
            assert until_closed(sock) == b""
        kept.pop(2).close()
        wanted = header(Source("192.0.2.1", 1))
        assert client_of(site, wanted + GET) == "192.0.2.1 1"
        for sock in kept:
            sock.close()


# --- the option


def test_controllers_are_balancers_as_soon_as_they_are_listed(tmp_path: Path) -> None:
    controllers.write_members(str(tmp_path), [Controller(host="ha1", address="192.0.2.11")])
    found = Balancers([], lambda: {member.address for member in controllers.members(str(tmp_path))})
    assert "192.0.2.11" not in found
    assert not found.refresh() and "192.0.2.11" in found and "192.0.2.12" not in found
    (tmp_path / controllers.MEMBERS).write_text("[")
    assert "cannot be read" in found.refresh() and "192.0.2.11" in found
    assert "fe80::1%eth0" in Balancers([ip.parse_network("fe80::/64")])


def test_option_that_is_no_address_is_named() -> None:
    assert networks(["controllers", "192.0.2.1/24"]) == [ip.parse_network("192.0.2.0/24")]
    with pytest.raises(exceptions.ConfigurationError, match="ha1 is no address, no network, and not controllers"):
        networks(["controllers", "ha1"])


def test_option_needs_the_directory_of_the_list(conf: Any) -> None:
    assert api._balancers(conf) is None
    conf.set_override("proxy_protocol_from", ["controllers"], "api")
    conf.set_override("keys_directory", None, "rpc")
    with pytest.raises(exceptions.ConfigurationError, match="keys_directory"):
        api._balancers(conf)
