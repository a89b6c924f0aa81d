"""Requests that try to write lines of their own into the logs, or to control a terminal that shows them."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import webob

from nova_lite.api.audit import notes
from nova_lite.api.audit.wrapper import AuditWrapper
from nova_lite.api.http import wsgi
from nova_lite.objects import AuditEvent
from tests.support.api_daemon import Daemon, running

#: A line of the log that was never written, and what ends a line or begins a command of a terminal.
FORGED = "2026-01-01 00:00:00.000 1 CRITICAL nova_lite.forged [-] all is lost"
BREAKS = ["\n", "\r", "\x0b", "\x0c", "\x1b[2J", "\x7f", "\x85", "\u2028", "\x9b2J"]
#: A line of the log, or of a traceback.
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \d+ [A-Z]+ [\w.]+ ")


def send(daemon: Daemon, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=30) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while piece := sock.recv(65536):
            received += piece
    return received


def hostile(text: str) -> list[bytes]:
    """Return requests with the text in each part that a client chooses."""
    raw, quoted = text.encode(), "".join(f"%{byte:02X}" for byte in text.encode()).encode()
    end = b"Host: a\r\nX-Auth-Token: u:p\r\nConnection: close\r\n\r\n"
    parts = [b"/v2.1/servers?name=" + raw, b"/v2.1/servers?name=" + quoted, b"/v2.1/" + raw, b"/v2.1/servers/" + quoted]
    made = [b"GET " + part.replace(b" ", b"%20") + b" HTTP/1.1\r\n" + end for part in parts]
    headers = (b"User-Agent", b"X-OpenStack-Request-Id", b"X-Auth-Token", b"Host", b"X-Forwarded-For", b"traceparent")
    made += [b"GET /v2.1/servers HTTP/1.1\r\n" + name + b": " + raw + b"\r\n" + end for name in headers]
    made.append(b"GET /v2.1/servers HTTP/1.1\r\nX-Auth-Token: " + raw + b":" + raw + b"\r\nHost: a\r\n\r\n")
    return made


def test_audit_event_of_a_hostile_request_has_no_controls(tmp_path: Path) -> None:
    events: list[AuditEvent] = []
    recorder = SimpleNamespace(record=events.append)

    def app(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        noted = notes.of(environ)
        noted.path, noted.user_id = "/servers/{id}", environ["HTTP_USER_AGENT"]
        noted.variables = {"id": environ["HTTP_USER_AGENT"]}
        start_response("403 Forbidden", [])
        return []

    audited = AuditWrapper(app, "compute", recorder, "host")  # type: ignore[arg-type]
    for text in BREAKS:
        request = webob.Request.blank("/v2.1/servers/1", method="DELETE", remote_addr=f"192.0.2.1{text}")
        request.environ["HTTP_USER_AGENT"] = request.environ[wsgi.REQUEST_ID] = f"x{text}{FORGED}"
        request.environ["PATH_INFO"] += text.encode().decode("latin-1")
        request.get_response(audited)
    assert len(events) == len(BREAKS)
    for event in events:
        texts = [value for value in msgspec.structs.asdict(event).values() if isinstance(value, str)]
        assert [text for text in texts if not text.isprintable()] == []


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_requests_write_no_lines_and_no_controls_into_the_log(tmp_path: Path, log_format: str) -> None:
    with running(tmp_path, log_format=log_format) as daemon:
        for text in BREAKS:
            for request in hostile(f"x{text}{FORGED}"):
                send(daemon, request)
        assert daemon.end() == 0
    log = daemon.log.read_bytes().decode(errors="replace")
    assert "servers" in log
    assert [line for line in log.split("\n") if line.startswith(FORGED[:20])] == []
    assert sorted({char for char in log if char != "\n" and not char.isprintable()}) == []
    if log_format == "text":
        assert [line for line in log.rstrip("\n").split("\n") if not LINE.match(line)] == []
