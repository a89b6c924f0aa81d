"""A user lets the image service fetch a URL, to reach what only its machine can reach."""

from __future__ import annotations

import socket
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
import webob

from nova_lite.base import exceptions
from nova_lite.image import download
from tests.support.http_site import HttpSite

DATA = b"an image" * 100
#: An address of no machine: that of a mirror elsewhere.
ELSEWHERE = "192.0.2.1"


class Sites:
    """A mirror that the operator allows, which redirects as its URL says, and a service of this machine alone."""

    def __init__(self) -> None:
        self.private_requests: list[str] = []
        self._mirror, self._private = HttpSite(self._serve), HttpSite(self._serve_privately)
        self.mirror, self.private = self._mirror.address[1], self._private.address[1]

    def stop(self) -> None:
        self._mirror.stop()
        self._private.stop()

    @staticmethod
    def _serve(environ: dict[str, Any], start_response: Any) -> Any:
        query = webob.Request(environ).GET
        if "to" in query:
            start_response(f"{query.get('status', '302')} Moved", [("Location", query["to"]), ("Content-Length", "0")])
            return []
        return webob.Response(DATA)(environ, start_response)

    def _serve_privately(self, environ: dict[str, Any], start_response: Any) -> Any:
        self.private_requests.append(environ["PATH_INFO"])
        return webob.Response(b"secret")(environ, start_response)


@pytest.fixture
def sites() -> Iterator[Sites]:
    made = Sites()
    yield made
    made.stop()


def fetched(url: str, *allowed: str) -> bytes:
    with download.opened(url, allowed, time.monotonic() + 30) as (body, _):
        found = b""
        while piece := body.read(65536):
            found += piece
        return found


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{private}/",
        "//127.0.0.1:{private}/",
        "http://localhost:{private}/",
        "http://127.1:{private}/",
        "http://2130706433:{private}/",
        "http://0x7f000001:{private}/",
        "http://[::ffff:127.0.0.1]:{private}/",
        "http://[::1]:{private}/",
        "http://0.0.0.0:{private}/",
        "http://127.0.0.1:{mirror}@127.0.0.1:{private}/",
        "http://127.0.0.1:{private}#@127.0.0.1:{mirror}/",
        "http://127.0.0.1:{private}\\@127.0.0.1:{mirror}/",
        "http://127.0.0.1:{mirror}:{private}/",
        "https://127.0.0.1:{private}/",
        "file:///etc/passwd",
        "ftp://127.0.0.1:{private}/",
        "gopher://127.0.0.1:{private}/",
    ],
)
def test_redirection_leads_to_no_other_service(sites: Sites, target: str, status: int) -> None:
    to = urllib.parse.quote(target.format(private=sites.private, mirror=sites.mirror), safe="")
    mirror = f"127.0.0.1:{sites.mirror}"
    assert fetched(f"http://{mirror}/image", mirror) == DATA
    with pytest.raises((exceptions.ValidationError, OSError)):
        fetched(f"http://{mirror}/image?status={status}&to={to}", mirror)
    assert sites.private_requests == []


class Names:
    """Name service of an attacker, whose answers change. Connections to `ELSEWHERE` reach the mirror of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, sites: Sites, *answers: list[str]) -> None:
        self._answers = list(answers)
        self._mirror = sites.mirror
        self._connect = socket.create_connection
        self.connected: list[str] = []
        monkeypatch.setattr(download.socket, "getaddrinfo", self._resolve)
        monkeypatch.setattr(download.socket, "create_connection", self._open)

    def _resolve(self, host: str, port: int, **options: Any) -> list[Any]:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in answer]

    def _open(self, address: tuple[str, int], **options: Any) -> socket.socket:
        self.connected.append(address[0])
        assert address[0] == ELSEWHERE
        sock = socket.socket()
        sock.connect(("127.0.0.1", self._mirror))
        return sock


def test_name_that_changes_after_its_check_reaches_the_address_that_was_checked(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Names(monkeypatch, sites, [ELSEWHERE], ["127.0.0.1"])
    assert fetched(f"http://mirror.test:{sites.private}/", f"mirror.test:{sites.private}") == DATA
    assert (names.connected, sites.private_requests) == ([ELSEWHERE], [])


@pytest.mark.parametrize(
    "own", ["127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"]
)
def test_name_that_changes_before_a_redirection_is_checked_again(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, own: str
) -> None:
    names = Names(monkeypatch, sites, [ELSEWHERE], [own])
    with pytest.raises(OSError, match="address of this machine"):
        fetched(f"http://mirror.test:{sites.private}/?to=/again", f"mirror.test:{sites.private}")
    assert (names.connected, sites.private_requests) == ([ELSEWHERE], [])


@pytest.mark.parametrize("addresses", [[ELSEWHERE, "127.0.0.1"], ["127.0.0.1", ELSEWHERE]])
def test_name_with_an_own_address_among_others_is_not_contacted(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, addresses: list[str]
) -> None:
    names = Names(monkeypatch, sites, addresses)
    with pytest.raises(OSError, match="address of this machine"):
        fetched(f"http://mirror.test:{sites.private}/", f"mirror.test:{sites.private}")
    assert (names.connected, sites.private_requests) == ([], [])
