"""Fernet tokens: user, project and expiry, encrypted and signed with a key that only the API daemon has.

``<tokens_path>/keys/<number>``: the key with the highest number encrypts new tokens, the others decrypt older ones.
``<tokens_path>/revoked/<audit id>``: an empty file for each revoked token. Its modification time is the token's expiry.
The clock of all API daemons decides whether a token is valid. So the file outlives the expiry by a token's lifetime,
measured by a clock that does not jump: the token is then expired, whatever the clock says later.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import threading
import time

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from nova_lite.base import exceptions, files, key_files

#: Seconds by which another API daemon's clock may be ahead. A token from later is of a clock that was wrong.
CLOCK_SKEW = 300.0


class Token(msgspec.Struct, array_like=True):
    """Content of a token. Times are Unix times.

    ``audit_ids``: the token's own, and that of the token that a password made, from which this one was derived.
    """

    user_id: str
    project_id: str | None
    methods: list[str]
    issued_at: float
    expires_at: float
    audit_ids: list[str]


def new_token(user_id: str, project_id: str | None, lifetime: int, parent: Token | None = None) -> Token:
    """Make a token. With a ``parent``, it expires when the parent expires."""
    now = time.time()
    audit_id = secrets.token_urlsafe(16)
    if parent is None:
        return Token(user_id, project_id, ["password"], now, now + lifetime, [audit_id])
    methods = sorted({*parent.methods, "token"})
    return Token(user_id, project_id, methods, now, parent.expires_at, [audit_id, parent.audit_ids[-1]])


class Keys:
    """Directory of keys."""

    def __init__(self, tokens_path: str) -> None:
        self.path = os.path.join(tokens_path, "keys")
        self._lock = threading.Lock()
        self._numbers: list[int] = []
        self._fernet: MultiFernet | None = None

    def numbers(self) -> list[int]:
        """Return the numbers of the keys, the newest first."""
        try:
            return sorted((int(name) for name in os.listdir(self.path) if name.isdecimal()), reverse=True)
        except OSError as error:
            raise self._error(error.strerror or str(error)) from error

    def fernet(self) -> MultiFernet:
        """Return a cipher with the current keys. Raises `ConfigurationError` if there are none."""
        with self._lock:
            names = self.numbers()
            if not names:
                raise self._error("there is no key; run nova-lite-manage user init")
            if names != self._numbers or self._fernet is None:
                self._fernet = MultiFernet([self._key(number) for number in names])
                self._numbers = names
            return self._fernet

    def _key(self, number: int) -> Fernet:
        path = os.path.join(self.path, str(number))
        try:
            with open(path, "rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise self._error(f"key {number} is accessible to others than its owner; run chmod 0600")
                content = file.read()
            key_files.check(path, "[identity] tokens_path", owners=key_files.owners_of(self.path))
            return Fernet(content.strip())
        except OSError as error:
            raise self._error(f"key {number}: {error.strerror}") from error
        except ValueError as error:
            raise self._error(f"key {number} is not a Fernet key") from error

    def rotate(self, keep: int) -> int:
        """Make a new key for new tokens, delete all but the ``keep`` newest keys, and return its number.

        Keys that root makes belong to the owner of their directory.
        """
        files.private_directory(self.path)
        owner = os.stat(self.path)
        numbers = self.numbers()
        number = numbers[0] + 1 if numbers else 1
        path = os.path.join(self.path, str(number))
        files.write_atomically(path, Fernet.generate_key(), owner=(owner.st_uid, owner.st_gid))
        for old in [number, *numbers][keep:]:
            os.unlink(os.path.join(self.path, str(old)))
        files.sync_directory(self.path)
        return number

    def _error(self, why: str) -> exceptions.ConfigurationError:
        return exceptions.ConfigurationError(reason=f"[identity] tokens_path: {self.path}: {why}.")


class Tokens:
    """Makes, reads and revokes tokens."""

    def __init__(self, tokens_path: str, lifetime: float = 3600.0) -> None:
        """Use the keys and revocations in ``tokens_path``. Tokens are valid for at most ``lifetime`` seconds."""
        self.keys = Keys(tokens_path)
        self._lifetime = lifetime
        self._revoked = os.path.join(tokens_path, "revoked")
        self._lock = threading.Lock()
        #: Files of expired tokens, and when this process found that they are expired.
        self._expired: dict[str, float] = {}

    def seal(self, token: Token) -> str:
        return self.keys.fernet().encrypt(msgspec.msgpack.encode(token)).rstrip(b"=").decode()

    def open(self, text: str) -> Token | None:
        """Return the token, or None if it is invalid, expired or revoked."""
        try:
            raw = text.encode("ascii")
            base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
            data = self.keys.fernet().decrypt(raw + b"=" * (-len(raw) % 4))
            token = msgspec.msgpack.decode(data, type=Token)
        except (InvalidToken, UnicodeEncodeError, binascii.Error, msgspec.DecodeError):
            return None
        if not token.issued_at - CLOCK_SKEW <= time.time() < token.expires_at:
            return None
        return None if os.path.exists(self._revocation(token)) else token

    def revoke(self, token: Token) -> None:
        """Revoke a token for all workers, also after a restart. The file is deleted long after the token expired."""
        files.private_directory(self._revoked)
        path = self._revocation(token)
        with open(path, "ab"):
            os.utime(path, (token.expires_at, token.expires_at))
        self._forget_expired()

    def _revocation(self, token: Token) -> str:
        return os.path.join(self._revoked, token.audit_ids[0])

    def _forget_expired(self) -> None:
        """Delete the files whose tokens this process has known to be expired for a token's lifetime."""
        now, uptime = time.time(), time.monotonic()
        with self._lock, os.scandir(self._revoked) as entries:
            expired = {entry.path for entry in entries if entry.stat().st_mtime < now}
            self._expired = {path: self._expired.get(path, uptime) for path in expired}
            for path in [path for path, since in self._expired.items() if uptime - since >= self._lifetime]:
                files.remove(path)
                del self._expired[path]
