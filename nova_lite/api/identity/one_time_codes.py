"""One-time codes of six digits for a second factor: TOTP of RFC 6238, with SHA-1 and steps of 30 seconds."""

from __future__ import annotations

import base64
import binascii
import hmac
import re

from nova_lite.base import exceptions

STEP, DIGITS = 30, 6
#: Bytes of the shortest key that RFC 4226 allows.
MIN_BYTES = 16
MAX_TEXT = 256


def key_of(text: str) -> bytes:
    """Return the key that ``text`` has in base32, as apps show it. Raises `ValidationError`."""
    plain = re.sub(r"[\s=-]", "", text).upper()
    try:
        key = base64.b32decode(plain + "=" * (-len(plain) % 8))
    except (binascii.Error, ValueError):
        key = b""
    if not MIN_BYTES <= len(key) <= MAX_TEXT:
        raise exceptions.ValidationError(
            detail=f"The blob of a credential of type totp is a key of at least {MIN_BYTES} bytes in base32."
        )
    return key


def code(key: bytes, step: int) -> str:
    digest = hmac.digest(key, step.to_bytes(8, "big"), "sha1")
    start = digest[-1] & 15
    number = int.from_bytes(digest[start : start + 4], "big") & 0x7FFFFFFF
    return f"{number % 10**DIGITS:0{DIGITS}d}"


def step_of(key: bytes, given: str, now: float) -> int | None:
    """Return the step that a code is of, the present or the previous one, or None if it is wrong."""
    present = int(now // STEP)
    found = None
    for step in (present - 1, present):
        if hmac.compare_digest(code(key, step).encode(), given.encode(errors="replace")):
            found = step
    return found
