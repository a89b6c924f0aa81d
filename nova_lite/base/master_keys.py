"""Master keys: they encrypt the keys of volumes in the database, and are in a file that only the conductor reads.

A line of the file has an id and a key (256 bits in base64). The first key wraps new secrets (AES-256-GCM); the others
unwrap older ones. A wrapped secret is bound to its name, so it cannot take the place of another one.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from nova_lite.base import exceptions, files, key_files

OPTION = "[volume] encryption_key_file"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_ID_BYTES = 8
_COMMENT = "#"
_HEADING = "# Master keys of encrypted volumes. Without them no host can read the volumes: docs/howto/volumes.md\n"


class Unwrappable(ValueError):
    """A secret whose master key is missing, or that was changed."""


class MasterKeys:
    """Master keys by id, the newest first."""

    def __init__(self, keys: dict[str, bytes]) -> None:
        self._keys = keys

    @property
    def ids(self) -> list[str]:
        return list(self._keys)

    def wrap(self, name: str, secret: bytes) -> tuple[str, str]:
        """Return the id of the newest master key, and the secret that it has encrypted."""
        key_id, key = next(iter(self._keys.items()))
        nonce = os.urandom(_NONCE_BYTES)
        wrapped = nonce + AESGCM(key).encrypt(nonce, secret, name.encode())
        return key_id, base64.b64encode(wrapped).decode()

    def unwrap(self, name: str, key_id: str, wrapped: str) -> bytes:
        """Return the secret of this name. Raises `Unwrappable`."""
        key = self._keys.get(key_id)
        if key is None:
            raise Unwrappable(f"master key {key_id} is not in the file that {OPTION} names")
        try:
            data = base64.b64decode(wrapped, validate=True)
            return AESGCM(key).decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError) as error:
            raise Unwrappable(f"master key {key_id} does not fit it") from error

    def followed_by(self, others: MasterKeys) -> MasterKeys:
        return MasterKeys({**self._keys, **others._keys})

    def beginning_with(self, key_id: str) -> MasterKeys:
        """Return the same keys, of which ``key_id`` wraps new secrets."""
        return MasterKeys({key_id: self._keys[key_id]}).followed_by(self.without(key_id))

    def without(self, key_id: str) -> MasterKeys:
        return MasterKeys({known: key for known, key in self._keys.items() if known != key_id})

    def write(self, path: str, owner: tuple[int, int] | None = None) -> None:
        """Write the file, which only its owner can read."""
        lines = (f"{key_id} {base64.b64encode(key).decode()}\n" for key_id, key in self._keys.items())
        files.write_atomically(path, (_HEADING + "".join(lines)).encode(), mode=0o600, owner=owner)


def read(path: str, owners: Iterable[int] | None = None) -> MasterKeys:
    """Read the file. Raises `ConfigurationError` if it is missing or corrupt, or if others can read or replace it.

    ``owners``: accepted owners besides root; default: the user of this process.
    """
    key_files.check(path, OPTION, hidden_from=0o077, chmod="0600", owners=None if owners is None else set(owners))
    try:
        with open(path, encoding="ascii") as file:
            lines = [line.split() for line in file if line.strip() and not line.startswith(_COMMENT)]
        keys = {key_id: base64.b64decode(key, validate=True) for key_id, key in lines}
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{OPTION}: {path}: {error.strerror}") from error
    except (ValueError, binascii.Error) as error:
        raise exceptions.ConfigurationError(reason=f"{OPTION}: {path} is not a file of master keys") from error
    if not keys or len(keys) != len(lines) or any(len(key) != _KEY_BYTES for key in keys.values()):
        raise exceptions.ConfigurationError(reason=f"{OPTION}: {path} is not a file of master keys")
    return MasterKeys(keys)


def new() -> MasterKeys:
    """Return one new random key."""
    return MasterKeys({os.urandom(_ID_BYTES).hex(): os.urandom(_KEY_BYTES)})


def provide(path: str, owner: tuple[int, int] | None = None) -> bool:
    """Create the file with a first key, unless it exists. Returns whether that was necessary."""
    if os.path.lexists(path):
        return False
    new().write(path, owner)
    return True


_lock = threading.Lock()
_cached: dict[str, tuple[tuple[int, int, int], MasterKeys]] = {}


def of_daemon(path: str) -> MasterKeys:
    """Return the keys for a daemon, from memory while the file is unchanged. Raises as `read` does."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{OPTION}: {path}: {error.strerror}") from error
    seen = (status.st_mtime_ns, status.st_ino, status.st_size)
    with _lock:
        known = _cached.get(path)
        if known is None or known[0] != seen:
            known = _cached[path] = (seen, read(path))
        return known[1]
