"""Password hashes by scrypt: ``scrypt$<n>$<r>$<p>$<salt>$<key>``, with salt and key in base64."""

from __future__ import annotations

import base64
import binascii
import os
import threading

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from nova_lite.base import concurrency

_N, _R, _P = 2**14, 8, 1
_SALT_BYTES, _KEY_BYTES = 16, 32
#: A check takes 16 MiB and some 50 ms of a CPU, so clients that guess must not run too many.
_RUNNING = threading.BoundedSemaphore(4)


def hashed(password: str) -> str:
    salt = os.urandom(_SALT_BYTES)
    key = _kdf(salt, _N, _R, _P).derive(password.encode())
    return "$".join(("scrypt", str(_N), str(_R), str(_P), _encode(salt), _encode(key)))


def matches(password: str, stored: str | None) -> bool:
    """Check a password in constant time. ``stored`` None (an unknown user) takes as long and returns False."""
    scheme = _parse(stored) if stored else None
    n, r, p, salt, key = scheme or (_N, _R, _P, bytes(_SALT_BYTES), bytes(_KEY_BYTES))
    with _RUNNING:
        return concurrency.call_blocking(_verify, _kdf(salt, n, r, p), password, key) and scheme is not None


def is_hash(stored: object) -> bool:
    return isinstance(stored, str) and _parse(stored) is not None


def _verify(kdf: Scrypt, password: str, key: bytes) -> bool:
    try:
        kdf.verify(password.encode(errors="surrogatepass"), key)
    except InvalidKey:
        return False
    return True


def _kdf(salt: bytes, n: int, r: int, p: int) -> Scrypt:
    return Scrypt(salt=salt, length=_KEY_BYTES, n=n, r=r, p=p)


def _parse(stored: str) -> tuple[int, int, int, bytes, bytes] | None:
    try:
        name, n, r, p, salt, key = stored.split("$")
        parsed = int(n), int(r), int(p), base64.b64decode(salt, validate=True), base64.b64decode(key, validate=True)
    except (ValueError, binascii.Error):
        return None
    return parsed if name == "scrypt" and len(parsed[4]) == _KEY_BYTES else None


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()
