"""Certificates of the authority, in connections with Python's strict checks, which Python 3.13 has by default."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from nova_lite.base.host_certificates import CONSOLES, Authority

NAME, ADDRESS, DAYS = "host-1", "192.0.2.1", 30


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a directory with all kinds of certificates of one authority."""
    authority = Authority(str(tmp_path / "authority"))
    authority.create()
    authority.issue(NAME, [ADDRESS], str(tmp_path / "hosts"), DAYS)
    authority.issue_console(NAME, [ADDRESS], str(tmp_path / CONSOLES))
    authority.issue_service(NAME, [ADDRESS], str(tmp_path / "services"), DAYS)
    authority.issue_cluster(NAME, [ADDRESS], str(tmp_path / "cluster"), DAYS)
    authority.issue_proxy(NAME, str(tmp_path / "proxies"), DAYS)
    return tmp_path


def context(protocol: int, own: Path, role: str, trusted: Path) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.verify_flags |= ssl.VERIFY_X509_STRICT
    if (own / f"{role}-cert.pem").exists():
        made.load_cert_chain(own / f"{role}-cert.pem", own / f"{role}-key.pem")
    made.load_verify_locations(trusted / "ca-cert.pem")
    return made


def connect(server: ssl.SSLContext, client: ssl.SSLContext) -> None:
    """Let a client and a server recognise each other, without a socket."""
    first, second = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(first, second, server_hostname=ADDRESS),
        server.wrap_bio(second, first, server_side=True),
    ]
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert all(end.version() for end in ends)


@pytest.mark.parametrize("which", ["hosts", CONSOLES, "services", "cluster"])
def test_certificate_of_a_server_passes_the_strict_checks(directory: Path, which: str) -> None:
    trusted = directory / ("proxies" if which == CONSOLES else which)
    server = context(ssl.PROTOCOL_TLS_SERVER, directory / which, "server", directory / which)
    connect(server, context(ssl.PROTOCOL_TLS_CLIENT, directory / "nobody", "client", trusted))


@pytest.mark.parametrize(("which", "role"), [("hosts", "client"), ("cluster", "server"), ("proxies", "client")])
def test_certificate_of_a_client_passes_the_strict_checks(directory: Path, which: str, role: str) -> None:
    place = directory / (CONSOLES if which == "proxies" else which)
    server = context(ssl.PROTOCOL_TLS_SERVER, place, "server", place)
    server.verify_mode = ssl.CERT_REQUIRED
    trusted = directory / which
    connect(server, context(ssl.PROTOCOL_TLS_CLIENT, directory / which, role, trusted))
