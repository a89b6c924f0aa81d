"""Password hashes by scrypt: ``scrypt$<n>$<r>$<p>$<salt>$<key>``, with salt and key in base64.

The cost of a hash is the logarithm of ``n`` to the base 2. A hash with a lower cost than ``[identity]
password_hash_cost`` is replaced when its user logs in, because only then the password is known.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from nova_lite.base import concurrency

#: The lowest cost, which is the default.
COST = 14
_R, _P = 8, 1
_SALT_BYTES, _KEY_BYTES = 16, 32
#: A check takes 16 MiB and some 50 ms of a CPU at the lowest cost, so clients that guess must not run too many.
_RUNNING = threading.BoundedSemaphore(4)


def hashed(password: str, cost: int = COST) -> str:
    salt, n = os.urandom(_SALT_BYTES), 2**cost
    with _RUNNING:
        key = concurrency.call_blocking(_kdf(salt, n, _R, _P).derive, password.encode())
    return "$".join(("scrypt", str(n), str(_R), str(_P), _encode(salt), _encode(key)))


def matches(password: str, stored: str | None, cost: int = COST) -> bool:
    """Check a password in constant time. ``stored`` None (an unknown user) takes as long and returns False.

    ``cost``: of the hashes of known users. A wrong password takes as long with a cheaper hash, so that guessers do not
    see which users exist.
    """
    scheme = _parse(stored) if stored else None
    n, r, p, salt, key = scheme or (2**cost, _R, _P, bytes(_SALT_BYTES), bytes(_KEY_BYTES))
    with _RUNNING:
        is_right = concurrency.call_blocking(_verify, _kdf(salt, n, r, p), password, key)
        if not is_right:
            # The missing costs are 2**cost - n together.
            for missing in range(n.bit_length() - 1, cost):
                concurrency.call_blocking(_verify, _kdf(salt, 2**missing, r, p), password, key)
        return is_right and scheme is not None


def is_weaker(stored: str, cost: int) -> bool:
    """Check whether a hash costs less than a new one would."""
    scheme = _parse(stored)
    return scheme is not None and (scheme[0] < 2**cost or scheme[1] < _R or scheme[2] < _P)


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
