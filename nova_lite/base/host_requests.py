"""Requests of compute hosts to the join API, signed with the key by which a host signs its messages.

The signature is in the header ``Authorization``. It covers method, path, length of the body and time. TLS protects the
rest, and keeps others from repeating a request.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import NamedTuple

SCHEME = "nova-lite-host"
#: Seconds by which the clocks of host and controller may differ.
SKEW = 300.0

_DOMAIN = b"nova_lite host request 1\0"
_HEADER = re.compile(rf"{SCHEME} ([0-9a-f]{{16}}) ([0-9]{{1,12}}) ([A-Za-z0-9+/=]{{88}})")


class Signature(NamedTuple):
    """A request's signature. ``key_id``: of the host's key. ``sent``: seconds since 1970."""

    key_id: str
    sent: int
    value: bytes

    def header(self) -> str:
        return f"{SCHEME} {self.key_id} {self.sent} {base64.b64encode(self.value).decode()}"


def parse(header: str) -> Signature | None:
    """Return the signature in a header, or None if there is none."""
    found = _HEADER.fullmatch(header)
    if found is None:
        return None
    try:
        return Signature(found[1], int(found[2]), base64.b64decode(found[3], validate=True))
    except binascii.Error:
        return None


def signed_text(method: str, path: str, length: int, sent: int) -> bytes:
    """Return the bytes that a host signs. ``length``: of the body in bytes."""
    return _DOMAIN + json.dumps([method, path, length, sent]).encode()


def image_path(image_id: str) -> str:
    return f"/v1/images/{image_id}"
