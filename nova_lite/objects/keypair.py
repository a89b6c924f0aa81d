"""Key pairs."""

from __future__ import annotations

import datetime

import msgspec

SSH = "ssh"
X509 = "x509"

#: What the public half of a key pair of type x509 begins with.
CERTIFICATE_START = "-----BEGIN CERTIFICATE-----"


def type_of(public_key: str) -> str:
    """What kind of key pair this is the public half of."""
    return X509 if public_key.startswith(CERTIFICATE_START) else SSH


class KeyPair(msgspec.Struct, kw_only=True):
    """A user's public key, or certificate (``type`` x509).

    ``private_key`` is set only in the answer that generated it; it is never stored.
    """

    id: int = 0
    name: str
    user_id: str
    type: str = SSH
    public_key: str
    fingerprint: str
    private_key: str | None = None
    created_at: datetime.datetime | None = None
