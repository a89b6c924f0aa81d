"""Heads of responses, and the framing of their bodies."""

from __future__ import annotations

import contextlib
import email.utils
import http
import time
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import webob

from nova_lite.api.http import wsgi
from nova_lite.api.http.transfers import Later
from nova_lite.daemon.http_parser import Refusal, Request

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Response(NamedTuple):
    """Response of an application."""

    status: str
    headers: list[tuple[str, str]]
    body: Iterable[bytes]

    @classmethod
    def of(cls, response: webob.Response) -> Response:
        return cls(response.status, response.headerlist, response.app_iter)

    @classmethod
    def refusing(cls, refusal: Refusal) -> Response:
        """Return a fault in JSON. The API that would have answered is not known yet."""
        fault = cls.of(wsgi.fault(refusal.status, refusal.sentence))
        return fault._replace(status=f"{refusal.status} {http.HTTPStatus(refusal.status).phrase}")

    def close(self) -> None:
        close = getattr(self.body, "close", None)
        if close is not None:
            close()


class Stream:
    """The rest of a response whose body is an iterator.

    ``length``: how many bytes it has; None if that is unknown. ``chunked``: its pieces are sent as chunks.
    """

    def __init__(self, response: Response, length: int | None, chunked: bool) -> None:
        self._response = response
        self._pieces: Iterator[bytes] = iter(response.body)
        self._left = length
        self._chunked = chunked

    def next(self) -> bytes | None:
        """Return the next bytes to send, or None after the last ones. Raises ValueError if the length was wrong.

        A `Later` is returned as it is.
        """
        for piece in self._pieces:
            if isinstance(piece, Later):
                return piece
            if not piece:
                continue
            if self._left is not None:
                self._left -= len(piece)
                if self._left < 0:
                    raise ValueError("the response is longer than announced")
            return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece
        if self._left:
            raise ValueError("the response is shorter than announced")
        if self._chunked:
            self._chunked = False
            return b"0\r\n\r\n"
        return None

    def close(self) -> None:
        self._response.close()


def begin(request: Request | None, response: Response, keep: bool) -> tuple[bytes, Stream | None, bool]:
    """Return the first bytes of the response, the rest, and whether the connection may stay open after it.

    Raises ValueError if a header has a line break. ``request`` is None if the request was not understood.
    """
    status, headers, body = response
    code = int(status[:3])
    is_http11 = request is None or request.is_http11
    has_body = code >= 200 and code not in (204, 304)
    sends_body = has_body and (request is None or request.environ["REQUEST_METHOD"] != "HEAD")
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), None)
    framing = ""
    data, stream = b"", None
    if isinstance(body, (list, tuple)):
        data = b"".join(body)
        if length is None and has_body:
            framing = f"Content-Length: {len(data)}\r\n"
        elif length is not None and sends_body and length != len(data):
            raise ValueError("the response is not as long as announced")
        data = data if sends_body else b""
        response.close()
    elif sends_body:
        if length is None and is_http11:
            framing = "Transfer-Encoding: chunked\r\n"
        keep = keep and (length is not None or is_http11)
        stream = Stream(response, length, length is None and is_http11)
    else:
        response.close()
    if not keep:
        framing += "Connection: close\r\n"
    elif not is_http11:
        framing += "Connection: keep-alive\r\n"
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers) or "\n" in status or "\r" in status:
        raise ValueError("a header of the response has a line break")
    head = f"HTTP/1.1 {status}\r\n{lines}Date: {_date()}\r\n{framing}\r\n"
    return head.encode("latin-1") + data, stream, keep


_cached_date = (0, "")


def _date() -> str:
    global _cached_date
    now = int(time.time())
    if _cached_date[0] != now:
        _cached_date = now, email.utils.formatdate(now, usegmt=True)
    return _cached_date[1]


def call(app: Any, environ: dict[str, Any]) -> Response:
    """Call a WSGI application, and return its response."""
    started: list[Any] = []
    written: list[bytes] = []

    def start_response(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        started[:] = [status, headers]
        return written.append

    body = app(environ, start_response)
    if not started:
        # A generator calls start_response when its first piece is requested.
        pieces = iter(body)
        written.extend(piece for piece in [next(pieces, b"")] if piece)
        body = _Chained([*written], pieces, body)
    elif written:
        body = _Chained(written, iter(body), body)
    return Response(started[0], started[1], body)


class _Chained:
    """First pieces of a body, and its rest."""

    def __init__(self, first: list[bytes], rest: Iterator[bytes], body: Any) -> None:
        self._first = first
        self._rest = rest
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        yield from self._first
        yield from self._rest

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            self._body.close()
