"""Ids that follow from other values, so that a repeated request finds what its first try made."""

from __future__ import annotations

import uuid


def derived_id(namespace: uuid.UUID, text: str) -> str:
    """Return the id that follows from a text: a UUID of version 4, since clients refuse other versions."""
    return str(uuid.UUID(bytes=uuid.uuid5(namespace, text).bytes, version=4))


def new_id() -> str:
    """Return a new id, which no other object has."""
    return str(uuid.uuid4())
