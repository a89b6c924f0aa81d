"""Strict parsing of HTTP/1 requests: httptools, and the checks that it leaves to its user.

Two readers of one request must not disagree about where it ends. So everything that some servers read in another way is
refused with 400, and its connection is closed (docs/adr/0013).
"""

from __future__ import annotations

import collections
import re
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

MAX_HEAD = 64 * 1024
MAX_TARGET = 32 * 1024
MAX_HEADERS = 128
#: A body that arrives in chunks may need so many times its own size, plus the constant.
CHUNK_OVERHEAD, CHUNK_ALLOWANCE = 8, 64 * 1024

#: Key of the environment: whether each ``%2F`` of ``PATH_INFO`` is a slash that the client has encoded. A client that
#: also writes ``%252F`` means the text itself, so then all of them stay text.
ENCODED_SLASHES = "nova_lite.encoded_slashes"

_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%-]*)(?::\d{0,5})?")
_TARGET = re.compile(rb"(?:https?://([^/?#]+))?(/[^?#]*)?(?:\?([^#]*))?")
_METHOD = re.compile(rb"[A-Z]{1,32} ")
_SLASH = re.compile(rb"%2F", re.IGNORECASE)
#: A second one of these would be a second meaning of the request.
_SINGLE = {
    "HTTP_HOST",
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "HTTP_TRANSFER_ENCODING",
    "HTTP_AUTHORIZATION",
    "HTTP_EXPECT",
    "HTTP_X_AUTH_TOKEN",
    "HTTP_X_SERVICE_TOKEN",
    "HTTP_X_SUBJECT_TOKEN",
}
#: Names of headers as clients write them, and their keys in the environment. Bounded.
_keys: dict[bytes, str] = {}
_MAX_KEYS = 512


class Refusal(NamedTuple):
    """The response to a request that cannot be served. The connection is closed after it."""

    status: int
    sentence: str


class Request:
    """A request.

    ``environ``: its part of the WSGI environment. ``parts``: the pieces of the body that were received and not taken,
    of ``size`` bytes. ``announced``: its Content-Length; None if it is chunked. ``complete``: all of it has arrived.
    """

    __slots__ = (
        "announced",
        "complete",
        "environ",
        "expects_continue",
        "headers",
        "is_http11",
        "keep_alive",
        "parts",
        "size",
        "target",
    )

    def __init__(self) -> None:
        self.environ: dict[str, Any] = {}
        self.target = b""
        self.headers = 0
        self.is_http11 = True
        self.keep_alive = True
        self.expects_continue = False
        self.announced: int | None = 0
        self.parts: list[bytes] = []
        self.size = 0
        self.complete = False

    def take_body(self) -> bytes:
        """Return the pieces of the body that have arrived, and forget them."""
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts = []
        return data


class RequestParser:
    """Parses the bytes of one connection.

    ``requests``: complete requests, in order. ``current``: a request whose headers, but not the body, have arrived.
    ``refusal``: what to answer after ``requests``; nothing is parsed any more.
    """

    def __init__(self) -> None:
        self.requests: collections.deque[Request] = collections.deque()
        self.current: Request | None = None
        self.refusal: Refusal | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._incoming: Request | None = None
        self._fed = 0

    @property
    def is_idle(self) -> bool:
        """True between two requests."""
        return self._incoming is None and not self.requests

    def feed(self, data: bytes) -> None:
        """Parse the next bytes."""
        if self.refusal is not None:
            return
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # HTTP/1.1 continues if a server ignores the wish for another protocol. The bytes after it are in doubt.
            if self.requests:
                self.requests[-1].keep_alive = False
            self._refuse(400, "This server speaks HTTP/1.1 only.")
        except httptools.HttpParserInvalidMethodError:
            known = _METHOD.match(data) and self._fed == len(data)
            self._refuse(501 if known else 400, "The method of the request is unknown.")
        except httptools.HttpParserError as error:
            self._refuse(400, f"The request is not valid HTTP/1.1: {error}.")
        if self.refusal is None:
            self._check_sizes()

    def _check_sizes(self) -> None:
        if self._incoming is None:
            return
        if self.current is None:
            if self._fed > MAX_HEAD:
                long_target = not self._incoming.headers
                self._refuse(414, "The URL is too long.") if long_target else self._refuse_headers()
        elif self.current.announced is None and self._fed > CHUNK_OVERHEAD * self.current.size + CHUNK_ALLOWANCE:
            self._refuse(400, "The chunks of the body are too small.")

    def _refuse(self, status: int, sentence: str) -> None:
        if self.refusal is None:
            self.refusal = Refusal(status, sentence)

    def _refuse_headers(self) -> None:
        self._refuse(431, f"The request's headers have more than {MAX_HEAD} bytes, or are more than {MAX_HEADERS}.")

    # --- called by httptools

    def on_message_begin(self) -> None:
        self._incoming = Request()

    def on_url(self, target: bytes) -> None:
        request = self._incoming
        assert request is not None
        request.target += target
        if len(request.target) > MAX_TARGET:
            self._refuse(414, "The URL is too long.")

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._incoming
        if self.refusal is not None or request is None:
            return
        key = _keys.get(name) or self._key(name)
        request.headers += 1
        if request.headers > MAX_HEADERS:
            self._refuse_headers()
        if self.current is not None:
            return  # a trailer, which nothing here reads
        environ = request.environ
        text = value.decode("latin-1").rstrip(" \t")
        if key in environ:
            if key in _SINGLE:
                self._refuse(400, f"There are two headers {name.decode('latin-1')}.")
            text = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ', '}{text}"
        environ[key] = text

    def _key(self, name: bytes) -> str:
        if b"_" in name:
            self._refuse(400, "The name of a header has an underscore, which could be read as a hyphen.")
        key = name.decode("latin-1").upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = f"HTTP_{key}"
        if len(_keys) < _MAX_KEYS and b"_" not in name:
            _keys[name] = key
        return key

    def on_headers_complete(self) -> None:
        request = self._incoming
        if self.refusal is not None or request is None:
            return
        self._check_head(request)
        if self.refusal is None:
            self.current = request
        self._fed = 0

    def _check_head(self, request: Request) -> None:
        environ = request.environ
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            self._refuse(505, "This server speaks HTTP/1.1 and HTTP/1.0 only.")
            return
        request.is_http11 = version == "1.1"
        request.keep_alive = self._parser.should_keep_alive()
        host = environ.get("HTTP_HOST")
        if (host is None and request.is_http11) or not _HOST.fullmatch(host or ""):
            self._refuse(400, "There must be one header Host, with a name or an address.")
            return
        self._split_target(request, self._parser.get_method(), host)
        coding = environ.pop("HTTP_TRANSFER_ENCODING", None)
        if coding is not None:
            if coding.lower() != "chunked" or not request.is_http11:
                self._refuse(400, "The only Transfer-Encoding is chunked, in HTTP/1.1.")
            request.announced = None
        else:
            request.announced = int(environ.get("CONTENT_LENGTH", 0))
        expected = environ.get("HTTP_EXPECT")
        if expected is not None:
            if expected.lower() != "100-continue":
                self._refuse(417, "The only expectation that is met is 100-continue.")
            request.expects_continue = request.is_http11 and request.announced != 0
        environ["SERVER_PROTOCOL"] = f"HTTP/{version}"

    def _split_target(self, request: Request, method: bytes, host: str | None) -> None:
        environ = request.environ
        match = _TARGET.fullmatch(request.target)
        if match is None or method == b"CONNECT":
            if not (request.target == b"*" and method == b"OPTIONS"):
                self._refuse(400, "The URL must be a path, with a query or without.")
            authority, path, query = None, b"*", None
        else:
            authority, path, query = match.groups()
        if authority is not None and authority.decode("latin-1").lower() != (host or "").lower():
            self._refuse(400, "The URL and the header Host name different hosts.")
        path = path or b"/"
        if b"%" in path:
            # A slash within a segment stays encoded, so that it does not divide the segment.
            parts = [unquote_to_bytes(part) for part in _SLASH.split(path)]
            environ[ENCODED_SLASHES] = len(parts) > 1 and not any(_SLASH.search(part) for part in parts)
            path = b"%2F".join(parts)
        environ["REQUEST_METHOD"] = method.decode("latin-1")
        environ["PATH_INFO"] = path.decode("latin-1")
        environ["QUERY_STRING"] = (query or b"").decode("latin-1")

    def on_body(self, data: bytes) -> None:
        if self.current is not None:
            self.current.parts.append(data)
            self.current.size += len(data)

    def on_message_complete(self) -> None:
        request, self._incoming, self.current = self._incoming, None, None
        self._fed = 0
        if self.refusal is None and request is not None:
            request.complete = True
            self.requests.append(request)


def refusal_of_head(head: bytes) -> Refusal | None:
    """Check the head of a request that has no body, for a server with a parser of its own."""
    parser = RequestParser()
    parser.feed(head)
    if parser.requests:
        return None
    return parser.refusal or Refusal(400, "A request has no body here.")
