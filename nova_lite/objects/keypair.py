"""Key pairs."""

from __future__ import annotations

import datetime

import msgspec


class KeyPair(msgspec.Struct, kw_only=True):
    """A user's public key. ``private_key`` is set only in the answer that generated it; it is never stored."""

    id: int = 0
    name: str
    user_id: str
    type: str = "ssh"
    public_key: str
    fingerprint: str
    private_key: str | None = None
    created_at: datetime.datetime | None = None
