"""Sealed boxes: data that only the owner of a private key can read.

The message broker reads what it carries. Secrets with which it could act as a user are sealed to their receiver. The
message that names the receiver's public key is signed, so the broker cannot replace the key by its own.

Each box has a key pair of its own (X25519), and so a cipher key of its own (HKDF, ChaCha20-Poly1305).
"""

from __future__ import annotations

import base64
import binascii

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_KEY_BYTES = 32
#: The cipher key is used once, so its nonce is constant.
_NONCE = bytes(12)
_RAW = serialization.Encoding.Raw, serialization.PublicFormat.Raw


class Unreadable(ValueError):
    """A box that was not sealed to this key, or that was changed."""


def new_private_key() -> str:
    raw = X25519PrivateKey.generate().private_bytes(
        serialization.Encoding.Raw, serialization.PrivateFormat.Raw, serialization.NoEncryption()
    )
    return base64.b64encode(raw).decode()


def public_key(private_key: str) -> str:
    return base64.b64encode(_private(private_key).public_key().public_bytes(*_RAW)).decode()


def seal(receiver: str, data: bytes) -> str:
    """Return a box that the owner of the public key ``receiver`` can open. Raises `Unreadable` if it is no key."""
    own = X25519PrivateKey.generate()
    public = own.public_key().public_bytes(*_RAW)
    raw = _decoded(receiver)
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(raw))
    except ValueError as error:
        raise Unreadable("not a public key") from error
    return base64.b64encode(public + _cipher(shared, public, raw).encrypt(_NONCE, data, None)).decode()


def unseal(private_key: str, box: str) -> bytes:
    """Return the data of a box. Raises `Unreadable` if it was sealed to another key, or changed."""
    raw, own = _decoded(box), _private(private_key)
    public, text = raw[:_KEY_BYTES], raw[_KEY_BYTES:]
    try:
        shared = own.exchange(X25519PublicKey.from_public_bytes(public))
        return _cipher(shared, public, own.public_key().public_bytes(*_RAW)).decrypt(_NONCE, text, None)
    except (ValueError, InvalidTag) as error:
        raise Unreadable("sealed to another key") from error


def _cipher(shared: bytes, sender: bytes, receiver: bytes) -> ChaCha20Poly1305:
    derivation = HKDF(hashes.SHA256(), _KEY_BYTES, salt=None, info=b"nova-lite sealed box" + sender + receiver)
    return ChaCha20Poly1305(derivation.derive(shared))


def _private(private_key: str) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(base64.b64decode(private_key))


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unreadable("not base64") from error
