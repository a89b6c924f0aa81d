"""Requests whose end two readers could see at different places, or that break HTTP/1.1 in another way.

Each is made of a valid request by one change. `cases` yields a name and the bytes. A server must answer each with 400
or another refusal, and must close the connection, so that the bytes after it are no client's request.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

#: Bytes that an attacker wants to be executed as another request.
SMUGGLED = b"DELETE /smuggled HTTP/1.1\r\nHost: cloud\r\n\r\n"
#: Statuses of refusals. All others than 400 say more precisely what is wrong.
REFUSALS = frozenset({400, 413, 414, 417, 431, 501, 505})

_METHODS = (b"GET", b"POST", b"PUT", b"DELETE")
_LENGTHS = (
    b"+5",
    b"-5",
    b"-0",
    b"+0",
    b"--5",
    b"5.0",
    b"5e0",
    b"0x5",
    b"5h",
    b"5 5",
    b"5,5",
    b"5, 5",
    b"5;5",
    b"5\t5",
    b"",
    b" ",
    b"five",
    b"0b101",
    b"0o5",
    b"5_0",
    b"\xb2",
    b'"5"',
    b"'5'",
    b"5\x00",
    b"\x005",
    b"5\x0b",
    b"\x0b5",
    b"5\x0c",
    b"5\x7f",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"1" * 400,
    b"nan",
    b"inf",
    b"5L",
)
_CODINGS = (
    b"xchunked", b"chunkedx", b"x chunked", b"chunked x", b"chunked, identity", b"identity", b"gzip", b"deflate",
    b"gzip, chunked", b"chunked, gzip", b"chunked, chunked", b"chunked,", b",chunked", b"chunked;q=1", b"chunked;",
    b'"chunked"', b"'chunked'", b"\x0bchunked", b"chunked\x0b", b"\x0cchunked", b"chunked\x00", b"\x00chunked",
    b"ch\x00unked", b"chun ked", b"chunked\x7f", b"\xa0chunked", b"identity, chunked", b"cow, chunked", b"", b" ",
    b"chunke", b"hunked", b"\x85chunked", b"chunked\xa0", b"\\chunked", b"chunked\\", b"{chunked}", b"br",
)  # fmt: skip
_SIZES = (
    b"+5", b"-5", b"-0", b"0x5", b"0X5", b"5 ", b" 5", b"\t5", b"5\t", b"5,", b"5.0", b"5h", b"g", b"", b"zz", b"5_",
    b"\x005", b"5\x00", b"\x0b5", b"5\x0b", b"fffffffffffffffff", b"8000000000000000000000", b'"5"', b"5\r", b"\xb2",
    b"5 5", b"5 ;a", b"5;a\nb", b"5;a\x00b", b"5;\x7f",
)  # fmt: skip
_NAMES = (
    b"X_Auth_Token", b"X-Auth_Token", b"X_Auth-Token", b"Content_Length", b"Transfer_Encoding", b"_", b"_Host",
    b"X-Auth-Token ", b"X-Auth-Token\t", b"X-Auth Token", b"X-Auth-Token\x0b", b"X-Auth-Token\x00", b"X\x00Auth",
    b"Content-Length ", b"Content-Length\t", b"Transfer-Encoding ", b"Transfer-Encoding\t", b"Host ", b"", b"X(Y",
    b"X)Y", b"X<Y", b"X@Y", b"X,Y", b"X;Y", b"X\\Y", b'X"Y', b"X/Y", b"X[Y", b"X]Y", b"X?Y", b"X=Y", b"X{Y", b"X}Y",
    b"X\xe9", b"\xffX", b"X\x7f", b"X\x1f", b"X\rY", b"Content-Length\r", b"Transfer-Encoding\x85", b"\x00",
)  # fmt: skip
_VALUES = (b"a\x00b", b"a\rb", b"a\nb", b"a\r\rb", b"\x00", b"a\x01", b"a\x1f", b"a\x7f", b"\r", b"a\x0bb", b"a\x0cb")
_VERSIONS = (
    b"HTTP/0.9", b"HTTP/1.2", b"HTTP/2.0", b"HTTP/3.0", b"HTTP/1", b"HTTP/1.", b"HTTP/.1", b"HTTP/11", b"HTTP/1.10",
    b"HTTP/01.1", b"HTTP/1.01", b"HTTP/1,1", b"http/1.1", b"Http/1.1", b"HTTP /1.1", b"HTTP/ 1.1", b"HTTP/1 .1",
    b"HTTP/1.1 ", b"HTTP/1.1\t", b"HTTP/1.1x", b"HTTP/-1.1", b"HTTP/1.-1", b"HTTP/A.1", b"HTTPS/1.1", b"ICY/1.1",
    b"HTTP\\1.1", b"HTTP/1.1 HTTP/1.1", b"\x00HTTP/1.1", b"HTTP/1.1\x00", b"HTTP/1.1\x0b", b"",
)  # fmt: skip
_TARGETS = (
    b"",
    b"x",
    b"//\x00",
    b"/\x00",
    b"/\x01",
    b"/\x7f",
    b"/\x80",
    b"/\xff",
    b"/a b",
    b"/a\tb",
    b"/a\x0bb",
    b"/#f",
    b"/a#b?c",
    b"*",
    b"http://other/",
    b"http://",
    b"http:///",
    b"ftp://cloud/",
    b"cloud:80",
    b"?q",
    b"http:/x",
    b"\\",
    b"./",
    b"../x",
    b"http://cloud@other/",
    b"http://other:80/",
    b"http://cloud\x00/",
    b"http://clo ud/",
)
_HOSTS = (
    b"a b",
    b"a,b",
    b"a, b",
    b"a/b",
    b"a@b",
    b"a?b",
    b"a#b",
    b"a\\b",
    b"http://cloud",
    b"cloud:port",
    b"cloud:80:80",
    b"[::1",
    b"::1",
    b"[g]",
    b"a\x00b",
    b"a\x7fb",
    b"cloud\t1",
    b"<cloud>",
    b'"cloud"',
    b"cloud:-1",
    b"a;b",
    b"\xff",
)
_ENDS = (b"\n", b"\r", b"\r\r\n", b"\n\r", b"\x0b", b"\x00", b"\x0c\r\n")


def request(
    *headers: bytes,
    method: bytes = b"POST",
    target: bytes = b"/",
    version: bytes = b"HTTP/1.1",
    host: bytes | None = b"Host: cloud",
    body: bytes = b"",
) -> bytes:
    """Return a request."""
    lines = [b"%b %b %b" % (method, target, version), *([] if host is None else [host]), *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def cases() -> Iterator[tuple[str, bytes]]:
    """Yield a name and the bytes of each request."""
    for number, data in enumerate(itertools.chain(_framing(), _chunks(), _headers(), _lines())):
        yield f"{number}-{data[:160]!r}", data


def _framing() -> Iterator[bytes]:
    """Yield requests whose length is not clear."""
    for method, value in itertools.product(_METHODS, _LENGTHS):
        yield request(b"Content-Length: " + value, method=method, body=b"12345" + SMUGGLED)
    for first, second in itertools.product((b"5", b"0", b"6"), repeat=2):
        yield request(b"Content-Length: " + first, b"Content-Length: " + second, body=b"12345" + SMUGGLED)
        yield request(b"Content-Length: " + first, b"X: y", b"content-length: " + second, body=b"12345" + SMUGGLED)
    chunked = b"0\r\n\r\n" + SMUGGLED
    for name, length in itertools.product((b"Transfer-Encoding", b"transfer-encoding"), (b"0", b"4", b"5", b"100")):
        both = [name + b": chunked", b"Content-Length: " + length]
        yield request(*both, body=chunked)
        yield request(*reversed(both), body=chunked)
        yield request(both[0], b"X: y", both[1], method=b"GET", body=chunked)
    for coding in _CODINGS:
        yield request(b"Transfer-Encoding: " + coding, body=chunked)
        yield request(b"Transfer-Encoding: " + coding, b"Content-Length: 5", body=chunked)
        yield request(b"Transfer-Encoding: chunked", b"Transfer-Encoding: " + coding, body=chunked)
        yield request(b"Transfer-Encoding: " + coding, b"Transfer-Encoding: chunked", body=chunked)
    yield request(b"Transfer-Encoding: chunked", version=b"HTTP/1.0", body=chunked)
    for fold in (b"\r\n chunked", b"\r\n\tchunked", b"\n chunked", b" \r\n chunked"):
        yield request(b"Transfer-Encoding:" + fold, body=chunked)
    for fold in (b"\r\n 5", b"\r\n\t5", b"\n 5", b"5\r\n ", b"5\r\n 0"):
        yield request(b"Content-Length: " + fold, body=b"12345" + SMUGGLED)


def _chunks() -> Iterator[bytes]:
    """Yield chunked bodies that are malformed."""
    coding = b"Transfer-Encoding: chunked"
    for size in _SIZES:
        yield request(coding, body=size + b"\r\n12345\r\n0\r\n\r\n" + SMUGGLED)
        yield request(coding, body=b"5\r\n12345\r\n" + size + b"\r\n12345\r\n0\r\n\r\n" + SMUGGLED)
    for end in _ENDS:
        yield request(coding, body=b"5" + end + b"12345\r\n0\r\n\r\n" + SMUGGLED)
        yield request(coding, body=b"5\r\n12345" + end + b"0\r\n\r\n" + SMUGGLED)
        yield request(coding, body=b"5\r\n12345\r\n0" + end + b"\r\n" + SMUGGLED)
    for text in (b"1234", b"123456", b"12345678"):
        yield request(coding, body=b"5\r\n" + text + b"\r\n0\r\n\r\n" + SMUGGLED + b"\r\n" * 8)
    for trailer in (b"Content-Length: 5", b"Transfer-Encoding: chunked", b"X_Y: z", b"X : y", b" X: y", b"X", b": y"):
        yield request(coding, body=b"0\r\n" + trailer + b"\r\n\r\n" + SMUGGLED)


def _headers() -> Iterator[bytes]:
    """Yield headers that some servers change, drop or join."""
    for name, value in itertools.product(_NAMES, (b"5", b"chunked", b"admin:demo")):
        yield request(name + b": " + value, body=SMUGGLED)
    for value in _VALUES:
        yield request(b"X-Auth-Token: " + value, body=SMUGGLED)
        yield request(b"X: " + value, b"Content-Length: 0", body=SMUGGLED)
    for line in (
        b"X",
        b"X y",
        b" X: y",
        b"\tX: y",
        b"X: y\r\n z",
        b"X: y\r\n\tz",
        b"X:\r\n y",
        b"\x0bX: y",
        b"=",
        b"{}",
    ):
        yield request(line, b"Content-Length: 0", body=SMUGGLED)
    for host in _HOSTS:
        yield request(host=b"Host: " + host, body=SMUGGLED)
    yield request(host=None, body=SMUGGLED)
    for second in (b"Host: cloud", b"host: other", b"HOST: "):
        yield request(second, body=SMUGGLED)
    for name in (b"X-Auth-Token", b"Authorization", b"Content-Type", b"X-Subject-Token", b"X-Service-Token", b"Expect"):
        yield request(name + b": a", name.lower() + b": b", body=SMUGGLED)
    for expectation in (b"200-ok", b"100-continue, 100-continue", b"", b"100"):
        yield request(b"Expect: " + expectation, b"Content-Length: 5", body=SMUGGLED)
    yield request(*(b"X-%d: y" % number for number in range(2000)), body=SMUGGLED)
    yield request(b"X: " + b"y" * 200_000, body=SMUGGLED)


def _lines() -> Iterator[bytes]:
    """Yield malformed request lines and line ends."""
    for version in _VERSIONS:
        yield request(version=version, body=SMUGGLED)
    for target in _TARGETS:
        yield request(target=target, body=SMUGGLED)
        yield request(target=target, method=b"GET", body=SMUGGLED)
    yield request(target=b"/" + b"x" * 200_000, body=SMUGGLED)
    for method in (b"get", b"Get", b"GE T", b"", b" GET", b"GET\t", b"G\x00ET", b"G(T", b"\xff", b"FOO", b"CONNECT"):
        yield request(method=method, body=SMUGGLED)
    for end in _ENDS:
        lines = (b"POST / HTTP/1.1", b"Host: cloud", b"Content-Length: 0", b"X: y")
        yield end.join(lines) + end + end + SMUGGLED
        for number in range(1, len(lines)):
            yield b"\r\n".join(lines[:number]) + end + b"\r\n".join(lines[number:]) + b"\r\n\r\n" + SMUGGLED
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SMUGGLED
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 40 + b"\r\n\r\n" + SMUGGLED
