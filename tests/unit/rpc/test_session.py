"""Sessions over the conductor's socket: forged, altered, repeated, swapped and lost frames, keys that change."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_lite import rpc
from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.rpc import local
from nova_lite.rpc.client import Message
from nova_lite.rpc.load_shedding import overloaded_error
from nova_lite.rpc.local import LocalClient, LocalRequest
from nova_lite.rpc.session import CALL, OPEN_SESSION, REPLY, KeyPair, Session
from nova_lite.rpc.signing import SIGNATURE
from tests.unit.rpc.bench import ASK, CONTEXT, Bench, ThingRPC

REPLIED = {"again": {"a": 1}}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path, socket=True)
    made.serve()
    yield made
    made.close()


class Web:
    """An API whose connections are seen. ``received``: the calls that the conductor has received."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.transport = bench.sender(rpc.API, "web")
        assert self.transport._local is not None
        self.client: LocalClient = self.transport._local
        self.received: list[LocalRequest] = []
        made = LocalRequest.__init__

        def remember(request: LocalRequest, *about: Any) -> None:
            made(request, *about)
            self.received.append(request)

        monkeypatch.setattr(LocalRequest, "__init__", remember)

    @property
    def methods(self) -> list[str]:
        return [request.message["method"] for request in self.received]

    @property
    def line(self) -> local._Line:
        """The idle connection."""
        (line,) = self.client._idle
        return line

    def frame(self, calls: int | None = None) -> bytes:
        """Return the frame of the next call, or that of another number."""
        line = self.line
        line.calls = line.calls if calls is None else calls
        return line.frame(local._content(self.transport.signing.draft(ASK).context, ASK, 5.0))


@pytest.fixture
def web(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Web:
    return Web(bench, monkeypatch)


def is_closed(sock: socket.socket) -> bool:
    sock.settimeout(10)
    return sock.recv(1) == b""


# --- calls and replies


def test_calls_of_a_session_have_no_signature_and_their_sender_is_known(bench: Bench, web: Web) -> None:
    for _ in range(3):
        assert web.transport.call(ASK) == REPLIED
    assert web.methods == [OPEN_SESSION, "ask", "ask", "ask"]
    assert all("signature" not in request.ctxt[SIGNATURE] for request in web.received[1:])
    context = bench.things.context
    assert context is not None and context.sender == ("api", "web") and context.user_id == "u"


@pytest.mark.parametrize(
    "what", [{"name": b"disk-\xff".decode(errors="surrogateescape")}, {"big": 2**70}, {"text": "é" * 400_000}]
)
def test_any_result_crosses(web: Web, what: dict[str, Any]) -> None:
    assert web.transport.call(Message("conductor", "ask", CONTEXT, arguments={"what": what})) == {"again": what}


def test_errors_cross_as_themselves(bench: Bench, web: Web) -> None:
    client = rpc.proxy(ThingRPC, web.transport)
    with pytest.raises(exceptions.InstanceNotFound, match="i1 could not be found"):
        client.fail(CONTEXT)
    with pytest.raises(exceptions.ServiceTooOld):
        web.transport.call(Message("conductor", "fly", CONTEXT))
    with pytest.raises(exceptions.MessagingUnavailable):
        web.transport.call(Message("conductor", "report", CONTEXT, arguments={"report": {"host": "web"}}))
    assert web.transport.call(ASK) == REPLIED
    assert web.methods.count(OPEN_SESSION) == 1


def test_refusal_of_a_busy_conductor_crosses(bench: Bench, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.transport.call(ASK)
    error = overloaded_error(7, 2)
    monkeypatch.setattr(
        bench.server._local, "_submit", lambda request: request.reply(failure=(type(error), error, None))
    )
    with pytest.raises(exceptions.ServiceUnavailable, match="nothing was done"):
        web.transport.call(ASK)


# --- attacks on frames


def sessions(caller: str = "api-key", conductor: str = "conductor-key") -> tuple[Session, Session]:
    """Return both sides of a session."""
    own, other = KeyPair(), KeyPair()
    return own.as_caller(caller, conductor, other.public), other.as_conductor(conductor, caller, own.public)


def test_each_frame_is_accepted_at_one_place_only() -> None:
    """An attacker who has all frames of two connections can give none to another reader, at another time."""
    connections = [sessions(), sessions()]
    places = list(itertools.product((0, 1), (CALL, REPLY), range(3)))

    def made(place: tuple[int, bytes, int]) -> bytes:
        connection, direction, number = place
        return connections[connection][direction == REPLY].sealed(direction, number, b"content")

    def is_accepted(frame: bytes, place: tuple[int, bytes, int]) -> bool:
        connection, direction, number = place
        try:
            return connections[connection][direction == CALL].opened(direction, number, frame) == b"content"
        except ValueError:
            return False

    for sent, read in itertools.product(places, places):
        assert is_accepted(made(sent), read) == (sent == read), (sent, read)


@pytest.mark.parametrize("at", [0, 31, 32, -1])
def test_altered_frame_is_refused(at: int) -> None:
    caller, conductor = sessions()
    frame = bytearray(caller.sealed(CALL, 0, b"content"))
    frame[at] ^= 1
    for altered in (bytes(frame), bytes(frame[:20]), b""):
        with pytest.raises(ValueError, match="not the other side's"):
            conductor.opened(CALL, 0, altered)


def test_key_depends_on_the_signing_keys_of_both_sides() -> None:
    """Whoever signs another's key pair as its own gets a session that neither side can use."""
    own, other = KeyPair(), KeyPair()
    caller = own.as_caller("api-key", "conductor-key", other.public)
    assert caller.key == other.as_conductor("conductor-key", "api-key", own.public).key
    assert caller.key != other.as_conductor("conductor-key", "attacker", own.public).key
    assert caller.key != other.as_conductor("attacker", "api-key", own.public).key


@pytest.mark.parametrize("public", ["", "zz", "00" * 31, "00" * 32])
def test_invalid_public_part_is_refused(public: str) -> None:
    with pytest.raises(ValueError):
        KeyPair().as_conductor("conductor-key", "api-key", public)


def test_repeated_frame_ends_the_connection_and_runs_once(bench: Bench, web: Web) -> None:
    web.transport.call(ASK)
    frame, sock = web.frame(), web.line.sock
    sock.sendall(frame)
    web.line.receive(time.monotonic() + 10)
    bench.things.heard.clear()
    sock.sendall(frame)
    assert is_closed(sock)
    assert bench.things.heard == []
    assert web.transport.call(ASK) == REPLIED


@pytest.mark.parametrize("calls", [0, 2, 1000])
def test_frame_of_another_number_ends_the_connection(bench: Bench, web: Web, calls: int) -> None:
    web.transport.call(ASK)
    bench.things.heard.clear()
    web.line.sock.sendall(web.frame(calls))
    assert is_closed(web.line.sock)
    assert bench.things.heard == []


def test_frame_of_another_connection_ends_the_connection(bench: Bench, web: Web) -> None:
    web.transport.call(ASK)
    first = web.client._idle.pop()
    web.transport.call(ASK)
    bench.things.heard.clear()
    first.sock.sendall(web.frame())
    assert is_closed(first.sock)
    assert bench.things.heard == []


def test_signed_call_in_a_session_ends_the_connection(bench: Bench, web: Web) -> None:
    """A session is not left again."""
    web.transport.call(ASK)
    bench.things.heard.clear()
    context, _ = web.transport.signing.signed(ASK)
    web.line.sock.sendall(local._frame(local._content(context, ASK, 5.0)))
    assert is_closed(web.line.sock)
    assert bench.things.heard == []


def test_call_without_a_signature_needs_a_session(bench: Bench, web: Web, caplog: pytest.LogCaptureFixture) -> None:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(bench.path / "rpc.sock"))
    for context in (web.transport.signing.draft(ASK).context, CONTEXT.to_rpc()):
        sock.sendall(local._frame(local._content(context, ASK, 5.0)))
        assert b"MessageRefused" in local._receive(sock, time.monotonic() + 10)
    assert "its signature cannot be read" in caplog.text and "it is not signed" in caplog.text
    assert bench.things.heard == []


def test_captured_first_call_opens_no_session(bench: Bench, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[bytes] = []
    content = local._content
    monkeypatch.setattr(local, "_content", lambda *about: captured.append(content(*about)) or captured[-1])
    web.transport.call(ASK)
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(bench.path / "rpc.sock"))
    sock.sendall(local._frame(captured[0]))
    assert b"it was taken before" in local._receive(sock, time.monotonic() + 10)


def test_second_session_of_a_connection_is_refused(bench: Bench, web: Web) -> None:
    web.transport.call(ASK)
    key = web.line.session
    message = Message("conductor", OPEN_SESSION, get_admin_context(), arguments={"public": KeyPair().public})
    with pytest.raises(Exception, match="the connection has a session"):
        web.transport.call(message)
    assert web.transport.call(ASK) == REPLIED and web.line.session is key


@pytest.mark.parametrize("which", ["forged", "repeated", "reflected"])
def test_reply_that_is_not_the_conductors_is_not_trusted(
    bench: Bench, web: Web, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The call goes to the broker with the same id, and the replay cache refuses it."""
    web.transport.call(ASK)
    receive, kept = local._receive, []

    def keep(sock: socket.socket, end: float) -> bytes:
        kept.append(receive(sock, end))
        return kept[-1]

    monkeypatch.setattr(local, "_receive", keep)
    web.transport.call(ASK)
    frames = {"forged": b"x" * 32 + kept[0][32:], "repeated": kept[0], "reflected": web.frame()[4:]}
    frame = frames[which]
    bench.things.heard.clear()
    monkeypatch.setattr(local, "_receive", lambda sock, end: receive(sock, end) and frame)
    with pytest.raises(exceptions.MessagingUnavailable):
        web.transport.call(ASK)
    assert bench.things.heard == [{"a": 1}]


def test_impostor_at_the_socket_gets_signed_calls_and_no_trust(
    bench: Bench, web: Web, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever prevents the session, as an older conductor would, has to forge signatures."""

    def answer(request: LocalRequest) -> None:
        request.reply({"public": KeyPair().public, "again": "forged"})

    monkeypatch.setattr(bench.server._local, "_submit", answer)
    with pytest.raises(exceptions.MessagingUnavailable):
        web.transport.call(ASK)
    assert caplog.text.count("is not trusted: it is not signed") == 2
    assert "signature" in web.received[-1].ctxt[SIGNATURE]


# --- older conductors


def test_older_conductor_gets_signed_calls_until_it_opens_sessions(
    bench: Bench, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.delattr(LocalRequest, "open_session")
        for _ in range(2):
            assert web.transport.call(ASK) == REPLIED
    assert web.methods == [OPEN_SESSION, "ask", "ask"]
    assert "signature" in web.received[-1].ctxt[SIGNATURE]
    web.client._signed_until = 0.0
    web.transport.call(ASK)
    assert web.methods[3:] == [OPEN_SESSION, "ask"]
    assert web.line.session is not None


def test_conductor_that_does_not_open_in_time_is_passed_by(
    bench: Bench, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench.server._local, "_submit", lambda request: None)
    assert web.transport.call(ASK) == REPLIED
    assert web.methods == [OPEN_SESSION] and not web.client.carries(ASK)


# --- keys change


def test_revoked_caller_is_refused_in_its_session(bench: Bench, web: Web, caplog: pytest.LogCaptureFixture) -> None:
    web.transport.call(ASK)
    bench.things.heard.clear()
    bench.trusted = [key for key in bench.trusted if key.role != rpc.API]
    bench.write()
    bench.look_again()
    with pytest.raises(exceptions.MessagingUnavailable):
        web.transport.call(ASK)
    assert bench.things.heard == [] and "is not trusted" in caplog.text


@pytest.mark.parametrize("role", [rpc.API, rpc.CONDUCTOR])
def test_new_key_of_either_side_gets_a_new_session(bench: Bench, web: Web, role: str) -> None:
    web.transport.call(ASK)
    before = web.line.session
    bench.add(role, "web" if role == rpc.API else "controller")
    if role == rpc.CONDUCTOR:
        bench.trusted.remove(bench.own)
        bench.write()
    bench.look_again()
    assert web.transport.call(ASK) == REPLIED
    assert web.line.session not in (before, None)


def test_wrong_clock_is_refused_in_a_session(bench: Bench, web: Web, caplog: pytest.LogCaptureFixture) -> None:
    web.transport.call(ASK)
    bench.things.heard.clear()
    web.transport.signing.clock.time = lambda: time.time() - 400  # type: ignore[method-assign]
    with pytest.raises(exceptions.MessagingUnavailable):
        web.transport.call(ASK)
    assert bench.things.heard == [] and "its time is 400 s behind ours" in caplog.text
