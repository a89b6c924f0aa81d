"""Links between a host and its realms: their numbers, and the addresses that follow from them.

A number belongs to a key: a realm, or a floating address. All daemons of a machine share one file of numbers, so that
no two keys have the same address.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import threading
from collections.abc import Iterator
from typing import Annotated

import msgspec

from nova_lite.base import exceptions, files

#: Addresses of links. The first is the host's, on all links.
RANGE = ipaddress.IPv4Network("169.254.192.0/18")
RANGE6 = ipaddress.IPv6Network("fd6e:6f76:616c::/112")
HOST, HOST6 = RANGE[1], RANGE6[1]
#: Writer of files that the daemons of a machine share. They write with the lock.
WRITER = "machine"
#: The last 256 addresses of 169.254.0.0/16 are reserved (RFC 3927).
_LAST = RANGE.num_addresses - 257


class Links:
    """Numbers of links. ``directory``: of the file."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._path = os.path.join(directory, "nova-lite-links.json")
        self._threads = threading.Lock()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other threads and daemons of this machine from changes of realms."""
        os.makedirs(self._directory, exist_ok=True)
        with self._threads:  # a green thread that waits for the file would keep the others from running
            descriptor = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def number(self, key: str) -> int:
        """Return the number of a key, a new one if it has none. Call it with the lock."""
        known = self._read()
        if key not in known:
            taken = set(known.values())
            free = next((number for number in range(2, _LAST) if number not in taken), None)
            if free is None:
                raise exceptions.VirtDriverError(reason="all addresses of links to routers are taken")
            known[key] = free
            self._write(known)
        return known[key]

    def forget(self, key: str) -> None:
        """Free the number of a key. Call it with the lock."""
        known = self._read()
        if known.pop(key, None) is not None:
            self._write(known)

    def _read(self) -> dict[str, int]:
        try:
            with open(self._path, "rb") as file:
                return msgspec.json.decode(file.read(), type=dict[str, Annotated[int, msgspec.Meta(ge=2, lt=_LAST)]])
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise exceptions.VirtDriverError(reason=f"{self._path} cannot be read: {error}") from error

    def _write(self, known: dict[str, int]) -> None:
        files.write_atomically(self._path, msgspec.json.encode(known), writer=WRITER)


def address(number: int) -> str:
    return str(RANGE[number])


def address6(number: int) -> str:
    return str(RANGE6[number])
