"""Sessions: the key of one connection over the conductor's socket, in place of a signature of each call and reply.

1. The first call of a connection, `OPEN_SESSION`, is signed as every call is. It carries the public part of an X25519
   key pair that the caller makes for this connection. The signed reply carries the conductor's.
2. Both sides derive the session's key from the two pairs and from the ids of the two signing keys.
3. Each later frame has a MAC of its direction, its number on the connection and its content. A reply has the number of
   its call.

No other daemon or user can forge, alter, repeat, swap or omit a frame, or use it on another connection. A call keeps
its id and time, and is checked by the same replay caches and access rules as a signed one. So a call that is sent again
by the broker, with a signature, runs once at most. Both sides look up the other's signing key at each call, so a
revocation counts at once.

A conductor of an earlier version does not know `OPEN_SESSION`. Then, as after any other failure of it, each call is
signed: whoever prevents a session gains nothing.
"""

from __future__ import annotations

import dataclasses
import hmac
import json
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

#: The method of the first call of a connection.
OPEN_SESSION = "open_session"

#: Directions of frames.
CALL, REPLY = b"c", b"r"

_PURPOSE = b"nova_lite session 1\n"
_MAC_BYTES = 32


@dataclasses.dataclass(frozen=True)
class Session:
    """The key of a connection. ``own``, ``peer``: ids of the signing keys of this side and of the other."""

    own: str
    peer: str
    key: bytes

    def sealed(self, direction: bytes, number: int, content: bytes) -> bytes:
        """Return the frame of a call or reply."""
        return self._mac(direction, number, content) + content

    def opened(self, direction: bytes, number: int, frame: bytes) -> bytes:
        """Return the content of a frame. Raises `ValueError` if it is not the other side's frame of this number."""
        mac, content = frame[:_MAC_BYTES], frame[_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(direction, number, content)):
            raise ValueError("a frame of a session is not the other side's")
        return content

    def _mac(self, direction: bytes, number: int, content: bytes) -> bytes:
        return hmac.digest(self.key, direction + number.to_bytes(8, "big") + content, "sha256")


class KeyPair:
    """An X25519 key pair for one connection."""

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw().hex()

    def as_caller(self, own: str, peer: str, public: str) -> Session:
        """Return the session of a caller. ``public``: the conductor's part. Raises `ValueError` if it is none."""
        return Session(own, peer, self._derived(public, [own, peer, self.public, public]))

    def as_conductor(self, own: str, peer: str, public: str) -> Session:
        """Return the session of a conductor. ``public``: the caller's part. Raises `ValueError` if it is none."""
        return Session(own, peer, self._derived(public, [peer, own, public, self.public]))

    def _derived(self, public: str, parts: list[str]) -> bytes:
        secret = self._private.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(public)))
        return HKDF(SHA256(), 32, salt=None, info=_PURPOSE + json.dumps(parts).encode()).derive(secret)


#: Forms of a reply: the result as msgspec encodes it, the result as json does, an error as oslo.messaging does.
ENCODED, PLAIN, FAILURE = b"e", b"p", b"f"


class SessionReply(NamedTuple):
    """The content of a reply to a call of a session. ``form``: one of the above."""

    form: bytes
    content: bytes
