"""Administrators' passwords of servers."""

from __future__ import annotations

import secrets
import string
from typing import Any

_LENGTH = 12
#: Letters and digits that no font confuses.
_SYMBOLS = "".join(sorted(set(string.ascii_letters + string.digits) - set("0O1lI")))


def of_body(body: dict[str, Any]) -> str:
    """The ``adminPass`` of a request, or a new one."""
    given: str | None = body.get("adminPass")
    return given or "".join(secrets.choice(_SYMBOLS) for _ in range(_LENGTH))
