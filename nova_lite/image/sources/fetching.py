"""Downloads that continue after a break, and the checksums that distributors publish.

The operator chooses the address, so this connects to any host, and through the proxies of the environment. A checksum
comes by HTTPS; the file that it judges may come from any mirror.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import requests
import urllib3

from nova_lite.base import exceptions, response_body
from nova_lite.image import store

#: Seconds that a server may be silent, and that a file with checksums may take.
_TIMEOUT = 30.0
_MAX_SUMS = 1024**2
#: Breaks without any new byte in between, after which a download ends.
_MAX_BREAKS = 5

_ALGORITHMS = {32: "md5", 64: "sha256", 128: "sha512"}
_HEX = r"[0-9a-fA-F]{32}(?:[0-9a-fA-F]{32}(?:[0-9a-fA-F]{64})?)?"
#: Line of a file with checksums: of coreutils, a bare sum, or in BSD's form.
_GNU = re.compile(rf"({_HEX})(?: [ *](\S+))?")
_BSD = re.compile(rf"\w+ \((\S+)\) = ({_HEX})")
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class Checksum(NamedTuple):
    """Sum in hex by an algorithm of hashlib."""

    algorithm: str
    value: str

    def __str__(self) -> str:
        return f"{self.algorithm}:{self.value}"


def checksum(text: str) -> Checksum:
    """Return a sum given in hex. Its length shows the algorithm. Raises ValueError."""
    if not re.fullmatch(_HEX, text):
        raise ValueError(f"{text[:64]!r} is no MD5, SHA-256 or SHA-512 sum in hex")
    return Checksum(_ALGORITHMS[len(text)], text.lower())


def published(url: str, name: str) -> Checksum:
    """Return the sum of a file that a URL lists. A list of one sum is the file's. Raises OSError or `InvalidInput`."""
    try:
        with requests.get(url, stream=True, timeout=_TIMEOUT) as response:
            if any(not hop.url.startswith("https://") for hop in [*response.history, response]):
                raise exceptions.InvalidInput(reason=f"{_shown(url)} is not published by HTTPS, so it proves nothing")
            if response.status_code != 200:
                raise OSError(f"status {response.status_code}")
            data = response_body.read(response, _MAX_SUMS, time.monotonic() + _TIMEOUT)
    except OSError as error:
        raise OSError(f"{_shown(url)} cannot be read: {_reason(error)}") from error
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"{_shown(url)} has no checksums: {error}") from error
    found = listed(data.decode(errors="replace"))
    value = found.get(name) or (next(iter(found.values())) if len(found) == 1 else None)
    if value is None:
        raise exceptions.InvalidInput(reason=f"{_shown(url)} has no checksum of {name}")
    return checksum(value)


def listed(text: str) -> dict[str, str]:
    """Return the sums of a list by the names of their files. The name of a bare sum is empty."""
    found = {}
    for line in map(str.strip, text.splitlines()):
        if match := _GNU.fullmatch(line):
            found[os.path.basename(match[2] or "")] = match[1]
        elif match := _BSD.fullmatch(line):
            found[os.path.basename(match[1])] = match[2]
    return found


@contextlib.contextmanager
def partial(store_path: str, wanted: Checksum) -> Iterator[str]:
    """Yield the path of the file that a download of these bytes begins or continues, for one process at a time.

    `nova_lite.image.store.sweep` removes it a day after its last byte. Raises `Conflict`.
    """
    store.prepare(store_path)
    path = os.path.join(store_path, f"{store.TEMPORARY}{wanted.value[:32]}")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_same = os.path.samestat(os.fstat(descriptor), os.stat(path))
        except (BlockingIOError, FileNotFoundError):
            is_same = False
        if not is_same:  # Another process has it, or has just given it the name of an image.
            raise exceptions.Conflict("Another process is fetching this image.")
        yield path
    finally:
        os.close(descriptor)


class Download:
    """Download of a file with a known sum.

    ``show`` receives the bytes that are there and all bytes, 0 if unknown, and may end the download by raising.
    ``wait``: seconds after the first break; they double until bytes arrive again.
    """

    def __init__(self, url: str, path: str, wanted: Checksum, show: Callable[[int, int], None], wait: float) -> None:
        self._url = url
        self._path = path
        self._wanted = wanted
        self._show = show
        self._wait = wait
        self._size = 0
        self._digest = self._new_digest()

    def run(self) -> None:
        """Complete the file. Raises OSError if the server fails, and `ImageUnacceptable` if the sum is another one."""
        with open(self._path, "r+b") as file:
            while chunk := file.read(store.CHUNK):
                self._note(chunk)
            breaks, most = 0, self._size
            while not self._is_whole():
                try:
                    self._receive(file.fileno())
                    break
                except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
                    breaks, most = (1, self._size) if self._size > most else (breaks + 1, most)
                    if breaks > _MAX_BREAKS:
                        text = f"{_shown(self._url)} cannot be fetched: {_reason(error)}. The next try continues."
                        raise OSError(text) from error
                time.sleep(self._wait * 2 ** (breaks - 1))
        if not self._is_whole():
            os.remove(self._path)
            reason = f"it does not have the checksum {self._wanted}. If a new build has just been published, try again"
            raise exceptions.ImageUnacceptable(image_id=_shown(self._url), reason=reason)

    def _receive(self, descriptor: int) -> None:
        """Receive the rest, or all bytes if the server does not continue. Raises `RequestException` for a break."""
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={self._size}-"} if self._size else {})
        with requests.get(self._url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            total = self._begin(descriptor, response)
            while chunk := response.raw.read1(store.CHUNK):
                os.pwrite(descriptor, chunk, self._size)
                self._note(chunk)
                self._show(self._size, total)

    def _begin(self, descriptor: int, response: requests.Response) -> int:
        """Prepare for a response's bytes. Return the size of the whole file, 0 if it is unknown."""
        status = response.status_code
        if status == 200:
            self._restart(descriptor)
            return int(response.headers.get("Content-Length", "0"))
        if status in (206, 416):
            place = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if status == 206 and place is not None and int(place[1]) == self._size:
                return 0 if place[2] == "*" else int(place[2])
            self._restart(descriptor)  # The next request has no range.
        elif status != 429 and status < 500:
            raise OSError(f"{_shown(self._url)} responds with status {status}")
        raise requests.ConnectionError(f"status {status}")

    def _restart(self, descriptor: int) -> None:
        os.ftruncate(descriptor, 0)
        self._size, self._digest = 0, self._new_digest()

    def _note(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._digest.update(chunk)

    def _is_whole(self) -> bool:
        return self._digest.hexdigest() == self._wanted.value

    def _new_digest(self) -> hashlib._Hash:
        return hashlib.new(self._wanted.algorithm, usedforsecurity=False)


def _shown(url: str) -> str:
    """Return a URL without user, password and query."""
    parts = urllib.parse.urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _reason(error: BaseException) -> str:
    """Return the first cause of an error. The later ones name objects of libraries."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return str(error) or type(error).__name__
