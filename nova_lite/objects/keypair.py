"""Key pairs."""

from __future__ import annotations

import datetime

import msgspec

SSH = "ssh"
X509 = "x509"

#: First line of the public half of a key pair of type x509.
CERTIFICATE_START = "-----BEGIN CERTIFICATE-----"


def type_of(public_key: str) -> str:
    """Return the type of the key pair with this public half."""
    return X509 if public_key.startswith(CERTIFICATE_START) else SSH


class KeyPair(msgspec.Struct, kw_only=True):
    """Public key of a user, or certificate (``type`` x509). ``private_key`` is set only in the reply that generated it,
    and never stored."""

    id: int = 0
    name: str
    user_id: str
    type: str = SSH
    public_key: str
    fingerprint: str
    private_key: str | None = None
    created_at: datetime.datetime | None = None
