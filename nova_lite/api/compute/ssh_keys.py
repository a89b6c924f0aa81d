"""SSH keys of key pairs: generation, checks, and fingerprints."""

from __future__ import annotations

import base64
import binascii
import hashlib

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from nova_lite.base import exceptions

MAX_LENGTH = 16 * 1024


def generate() -> tuple[str, str]:
    """Return a new private key (OpenSSH format, no passphrase) and its public key in one line without a comment."""
    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), public.decode()


def checked(public_key: str) -> str:
    """Return the key unchanged. Raise `InvalidKeypair` unless it is a single OpenSSH public key on one line."""
    text = public_key.strip()
    if not text or len(text) > MAX_LENGTH or not text.isprintable():
        raise exceptions.InvalidKeypair(reason="failed to generate fingerprint: it is not one line of text")
    try:
        serialization.load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm, UnicodeEncodeError):
        # The library lacks some of OpenSSH's key types, such as hardware-backed keys. Their own header identifies them.
        if not _is_consistent(text):
            raise exceptions.InvalidKeypair(reason="failed to generate fingerprint") from None
    return public_key


def fingerprint(public_key: str) -> str:
    """Return the MD5 of the key's blob as pairs of hex digits, as OpenSSH's ``-E md5`` prints it.

    It is a name, not a protection.
    """
    digest = hashlib.md5(_blob(public_key), usedforsecurity=False).hexdigest()
    return ":".join(digest[index : index + 2] for index in range(0, len(digest), 2))


def _blob(public_key: str) -> bytes:
    try:
        return base64.b64decode(public_key.split()[1], validate=True)
    except (IndexError, ValueError, binascii.Error) as error:
        raise exceptions.InvalidKeypair(reason="failed to generate fingerprint") from error


def _is_consistent(text: str) -> bool:
    """Check whether the blob begins with the algorithm that the line names."""
    name = text.split()[0]
    blob = _blob(text)
    length = int.from_bytes(blob[:4], "big")
    return (
        name.startswith(("ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"))
        and 0 < length < 128
        and blob[4 : 4 + length] == name.encode()
    )
