"""A directory server that was taken over, or an attacker in its place: what its answers do to the identity API."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nova_lite.api.identity.ldap import MAX_RESPONSE, LdapDirectory
from nova_lite.base import exceptions
from tests.security.hostile_directory import BIND, REFERRAL, HostileDirectory, Replies
from tests.support.api_client import make_conf

#: Seconds of a test in which a call has to end, whatever the server sends.
DEADLINE = 60


@pytest.fixture
def server() -> Iterator[HostileDirectory]:
    made = HostileDirectory()
    yield made
    made.stop()


@pytest.fixture
def elsewhere() -> Iterator[HostileDirectory]:
    """Run the server to which referrals lead."""
    made = HostileDirectory()
    yield made
    made.stop()


def directory_of(path: Path, server: HostileDirectory, timeout: float = 5.0) -> LdapDirectory:
    lines = f"urls = {server.url}\ndomain = corp\nuser_tree = ou=people\nstart_tls = false\ntimeout = {timeout}\n"
    return LdapDirectory(make_conf(path, f"[ldap]\n{lines}"))


def gives_up(directory: LdapDirectory) -> None:
    """Expect that a look-up ends as a 503."""
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(directory.find, directory.users, "uid", b"carol")
        with pytest.raises(exceptions.ServiceUnavailable):
            call.result(DEADLINE)


def test_name_of_one_entry_is_this_entry(tmp_path: Path, server: HostileDirectory) -> None:
    server.script = lambda replies: iter([replies.user("carol", "1"), replies.done()])
    directory = directory_of(tmp_path, server)
    found = directory.find(directory.users, "uid", b"carol")
    assert found is not None and (found.name, found.key) == ("carol", b"1")


@pytest.mark.parametrize("count", [2, 3, 100])
def test_name_of_several_entries_is_nobody(tmp_path: Path, server: HostileDirectory, count: int) -> None:
    def several(replies: Replies) -> Iterator[bytes]:
        for number in range(count):
            yield replies.user("carol", str(number), f"carol{number}")
        yield replies.done()

    server.script = several
    directory = directory_of(tmp_path, server)
    assert directory.find(directory.users, "uid", b"carol") is None


def test_entries_without_end_are_given_up(tmp_path: Path, server: HostileDirectory) -> None:
    """A server may ignore how many entries a request allows."""
    sent = 0

    def endless(replies: Replies) -> Iterator[bytes]:
        nonlocal sent
        for number in itertools.count():
            piece = b"".join(replies.user(f"u{number}-{more}", f"{number}-{more}") for more in range(500))
            sent += len(piece)
            if sent > 30 * MAX_RESPONSE:
                return  # without a limit the test ends, too
            yield piece

    server.script = endless
    gives_up(directory_of(tmp_path, server, timeout=30))
    assert sent < 10 * MAX_RESPONSE


def test_value_without_end_is_given_up(tmp_path: Path, server: HostileDirectory) -> None:
    server.script = lambda replies: iter([replies.entry("carol", uid=b"x" * (30 * MAX_RESPONSE)), replies.done()])
    gives_up(directory_of(tmp_path, server, timeout=30))


def test_response_that_trickles_is_given_up(tmp_path: Path, server: HostileDirectory) -> None:
    given_up = threading.Event()

    def trickle(replies: Replies) -> Iterator[bytes]:
        for number in itertools.count():
            if given_up.wait(0.05):
                return
            yield replies.user(f"u{number}", str(number))

    server.script = trickle
    try:
        gives_up(directory_of(tmp_path, server, timeout=0.5))
    finally:
        given_up.set()


def test_pages_without_end_are_given_up(tmp_path: Path, server: HostileDirectory) -> None:
    server.script = lambda replies: iter([replies.done(cookie=b"more")])
    gives_up(directory_of(tmp_path, server))
    assert len(server.requests) < 100


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes(64),
        b"\x30\x80\x00\x00",
        b"\x30\x03\x02\x01\x00",
        b"\x30\x05\x02\x01\x02\x7f\x00",
        b"\x30\x05\x02\x01\x02\x65\x00",
        b"\x30\x84\xff\xff\xff\xff\x02\x01\x02",
        b"",
    ],
)
def test_malformed_response_is_given_up(tmp_path: Path, server: HostileDirectory, response: bytes) -> None:
    server.script = lambda replies: iter([response])
    gives_up(directory_of(tmp_path, server, timeout=1))


def test_referral_leads_to_no_other_server(
    tmp_path: Path, server: HostileDirectory, elsewhere: HostileDirectory
) -> None:
    """Whoever follows a referral shows the password there."""
    elsewhere.script = lambda replies: iter([replies.user("carol", "2"), replies.done()])
    to = f"{elsewhere.url}/ou=people"
    server.script = lambda replies: iter([replies.reference(to), replies.user("carol", "1"), replies.done()])
    directory = directory_of(tmp_path, server)
    found = directory.find(directory.users, "uid", b"carol")
    assert found is not None and found.key == b"1"
    server.script = lambda replies: iter([replies.reference(to), replies.done()])
    assert directory.find(directory.users, "uid", b"carol") is None
    server.script = lambda replies: iter([replies.done(REFERRAL, to)])
    gives_up(directory)
    assert elsewhere.requests == []


def test_referral_of_a_log_in_leads_to_no_other_server(
    tmp_path: Path, server: HostileDirectory, elsewhere: HostileDirectory
) -> None:
    server.script = lambda replies: iter([replies.user("carol", "1"), replies.done()])
    server.bind = (REFERRAL, f"{elsewhere.url}/ou=people")
    directory = directory_of(tmp_path, server)
    found = directory.find(directory.users, "uid", b"carol")
    with pytest.raises(exceptions.ServiceUnavailable):
        directory.is_password(found, "carol's word")
    assert elsewhere.requests == []


def test_empty_password_is_not_sent(tmp_path: Path, server: HostileDirectory) -> None:
    """A server takes a bind without a password for an anonymous one, and accepts it."""
    server.script = lambda replies: iter([replies.user("carol", "1"), replies.done()])
    directory = directory_of(tmp_path, server)
    found = directory.find(directory.users, "uid", b"carol")
    assert found is not None
    server.requests.clear()
    assert not directory.is_password(found, "")
    assert not directory.is_password(found._replace(dn=""), "carol's word")
    assert server.requests == []
    assert directory.is_password(found, "carol's word")
    assert BIND in server.requests
