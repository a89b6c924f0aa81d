"""Ed25519 keys of daemons: one private key file for each daemon, and the list of trusted public keys.

Both are in ``[rpc] keys_directory``. ``ROLE.HOST.key`` (PEM, mode 0600) belongs to its daemon. ``trusted.json`` is the
same on every host and no secret: public keys, their daemons, and their validity. A change of either file is noticed
within `LOOK_INTERVAL`. An unknown key makes the list be read again at once.
"""

from __future__ import annotations

import base64
import datetime
import errno
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from nacl.exceptions import CryptoError
from nacl.signing import SigningKey, VerifyKey

from nova_lite.base import exceptions, files, key_files
from nova_lite.base.context import DaemonIdentity, is_host_name

API, CONDUCTOR, SCHEDULER, COMPUTE = "api", "conductor", "scheduler", "compute"
#: The console proxies.
CONSOLE = "console"
#: An API of a compute host that serves only metadata.
METADATA = "metadata"
#: An operator's ``nova-lite-manage``.
MANAGE = "manage"

ROLES = (API, CONDUCTOR, SCHEDULER, COMPUTE, CONSOLE, METADATA, MANAGE)

TRUSTED = "trusted.json"
_OPTION = "[rpc] keys_directory"

#: Hints for a private key file that cannot be read.
_HINTS = {
    errno.ENOENT: " (nova-lite-manage keys create makes it)",
    errno.EACCES: " (only its daemon's user may read it)",
}

#: Seconds between two checks whether a file has changed.
LOOK_INTERVAL = 1.0

#: Bytes up to which libsodium is faster than OpenSSL at signing and verifying. OpenSSL hashes faster.
_SIGNED_BY_SODIUM, _VERIFIED_BY_SODIUM = 4096, 16384

T = TypeVar("T")


class TrustedKey(msgspec.Struct, kw_only=True):
    """A public key. ``key``: 32 bytes in base64; ``id``: derived from it. Times are UTC; ``not_after`` None: no end."""

    id: str
    role: str
    host: str
    key: str
    not_before: datetime.datetime
    not_after: datetime.datetime | None = None

    @property
    def peer(self) -> DaemonIdentity:
        return DaemonIdentity(self.role, self.host)

    def is_valid(self, at: float, skew: float = 0.0) -> bool:
        """Check whether the key is valid. ``at``: seconds since 1970. ``skew``: how far ahead the key's maker's clock
        may be.
        """
        return self.not_before.timestamp() <= at + skew and (self.not_after is None or at < self.not_after.timestamp())


class _List(msgspec.Struct):
    keys: list[TrustedKey]


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def key_id(public: bytes) -> str:
    return hashlib.sha256(public).hexdigest()[:16]


def check_name(role: str, host: str) -> None:
    """Raise `InvalidInput` unless a daemon, and its key file, can have this name."""
    if role not in ROLES:
        raise exceptions.InvalidInput(reason=f"there is no role {role!r} (there are: {', '.join(ROLES)})")
    if not is_host_name(host):
        raise exceptions.InvalidInput(reason=f"{host!r} is not a host name")


def private_path(directory: str, role: str, host: str) -> str:
    return os.path.join(directory, f"{role}.{host}.key")


class PrivateKey:
    """A private key. ``id``: of its public key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._sodium = SigningKey(key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()))
        self.public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id = key_id(self.public)

    @classmethod
    def generate(cls) -> PrivateKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_file(cls, path: str) -> PrivateKey:
        """Read a daemon's key. Raises `ConfigurationError` if it is missing, invalid, or not the daemon's alone."""
        key = cls.read(path)
        key_files.check(path, _OPTION, hidden_from=0o077, chmod="0600")
        return key

    @classmethod
    def read(cls, path: str) -> PrivateKey:
        """Read the key of any daemon, for the operator. Raises `ConfigurationError` as `from_file` does."""
        try:
            with open(path, "rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                content = file.read()
        except OSError as error:
            raise exceptions.ConfigurationError(
                reason=f"{_OPTION}: {path}: {error.strerror}{_HINTS.get(error.errno or 0, '')}"
            ) from error
        if mode & 0o077:
            raise exceptions.ConfigurationError(reason=f"{path} can be read by others (mode {mode:04o}): chmod 0600")
        try:
            key = load_pem_private_key(content, None)
        except (ValueError, TypeError) as error:
            raise exceptions.ConfigurationError(reason=f"{path} is not a private key") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise exceptions.ConfigurationError(reason=f"{path} is not an Ed25519 key")
        return cls(key)

    def pem(self) -> bytes:
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, data: bytes) -> bytes:
        return self._sodium.sign(data).signature if len(data) <= _SIGNED_BY_SODIUM else self._key.sign(data)

    def trusted(
        self, role: str, host: str, since: datetime.datetime, until: datetime.datetime | None = None
    ) -> TrustedKey:
        """Return the entry of the key in the list of trusted keys."""
        encoded = base64.b64encode(self.public).decode()
        return TrustedKey(id=self.id, role=role, host=host, key=encoded, not_before=since, not_after=until)


class PublicKey:
    """A public key. Raises `ValueError` if it is none."""

    def __init__(self, key: bytes) -> None:
        self._key = Ed25519PublicKey.from_public_bytes(key)
        self._sodium = VerifyKey(key)

    def verifies(self, signature: bytes, data: bytes) -> bool:
        try:
            if len(data) <= _VERIFIED_BY_SODIUM:
                self._sodium.verify(data, signature)
            else:
                self._key.verify(signature, data)
        except (CryptoError, InvalidSignature):
            return False
        return True


def read_trusted(path: str) -> list[TrustedKey]:
    """Read the list. Raises `ConfigurationError` if it is corrupt, or writable by others."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read()
    except OSError as error:
        raise exceptions.ConfigurationError(reason=f"{_OPTION}: {path}: {error.strerror}") from error
    if mode & 0o022:
        raise exceptions.ConfigurationError(reason=f"{path} can be written by others (mode {mode:04o}): chmod 0644")
    try:
        trusted = msgspec.json.decode(content, type=_List).keys
        for entry in trusted:
            if key_id(base64.b64decode(entry.key, validate=True)) != entry.id:
                raise ValueError(f"the id of key {entry.id} does not match it")
            check_name(entry.role, entry.host)
    except (msgspec.DecodeError, ValueError, exceptions.InvalidInput) as error:
        raise exceptions.ConfigurationError(reason=f"{path} is not a list of trusted keys: {error}") from error
    return trusted


def write_trusted(path: str, keys: list[TrustedKey]) -> None:
    """Write the list, readable by all users."""
    content = msgspec.json.format(msgspec.json.encode(_List(sorted(keys, key=lambda key: (key.role, key.host)))))
    files.write_atomically(path, content + b"\n", mode=0o644)


class _WatchedFile(Generic[T]):
    """The content of a file that may change. A change to corrupt content is reported once, and ignored."""

    def __init__(self, path: str, read: Callable[[str], T], report: Callable[[str], None]) -> None:
        self._path = path
        self._read = read
        self._report = report
        self._lock = threading.Lock()
        self._seen = self._look()
        self._looked = time.monotonic()
        self._value = read(path)

    def get(self, at_once: bool = False) -> T:
        """Return the content. ``at_once``: check the file now, even if it was checked just before."""
        if at_once or time.monotonic() - self._looked >= LOOK_INTERVAL:
            with self._lock:
                self._looked = time.monotonic()
                seen = self._look()
                if seen != self._seen:
                    self._seen = seen
                    try:
                        self._value = self._read(self._path)
                    except exceptions.ConfigurationError as error:
                        self._report(error.message)
        return self._value

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size


class TrustedKeys:
    """The list of trusted keys in ``directory``. ``report`` receives a message when it has become unusable.

    Raises `ConfigurationError` if it is unusable at the start.
    """

    def __init__(self, directory: str, report: Callable[[str], None]) -> None:
        self._file: _WatchedFile[dict[str, tuple[TrustedKey, PublicKey]]] = _WatchedFile(
            os.path.join(directory, TRUSTED), _by_id, report
        )

    def find(self, key: str) -> tuple[TrustedKey, PublicKey] | None:
        entry = self._file.get().get(key)
        return entry if entry is not None else self._file.get(at_once=True).get(key)


class Keyring:
    """The key of one daemon and the keys that it trusts.

    ``report`` receives a message when a file has become unusable. Raises `ConfigurationError` for files that are
    unusable at the start.
    """

    def __init__(
        self, directory: str, role: str, host: str, report: Callable[[str], None], shared: Keyring | None = None
    ) -> None:
        """Read the key and the list. ``shared``: another keyring of this process, whose list is shared."""
        check_name(role, host)
        self._private = _WatchedFile(private_path(directory, role, host), PrivateKey.from_file, report)
        self._trusted: TrustedKeys = shared._trusted if shared else TrustedKeys(directory, report)

    @property
    def own(self) -> PrivateKey:
        return self._private.get()

    def find(self, key: str) -> tuple[TrustedKey, PublicKey] | None:
        return self._trusted.find(key)


def _by_id(path: str) -> dict[str, tuple[TrustedKey, PublicKey]]:
    """Read the list for a daemon."""
    trusted = read_trusted(path)
    key_files.check(path, _OPTION)
    return {entry.id: (entry, PublicKey(base64.b64decode(entry.key))) for entry in trusted}
