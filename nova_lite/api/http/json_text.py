"""JSON of request bodies, within the limits of what databases and other programs can take.

JSON can express more: texts with NUL, numbers of any size, any depth. The first program that cannot store such a value
would fail with an internal error, so none gets in.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

import msgspec

from nova_lite.base import exceptions

MALFORMED = "Malformed request body"

#: Deepest nesting of arrays and objects. The deepest body of the APIs has seven levels.
MAX_DEPTH = 32
#: Integers of 64 bits.
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1

#: Parts of every body beyond the limits, except of deep ones: an escaped NUL, or an integer of 19 digits.
_SUSPECT = re.compile(rb"\\u0000|[0-9]{19}")


def parse(body: bytes) -> Any:
    """Return the value of a body. Raises `ValidationError` (400) if it is malformed or beyond the limits."""
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant, parse_float=_finite)
        if body.count(b"[") + body.count(b"{") > MAX_DEPTH or _SUSPECT.search(body):
            _check(value, MAX_DEPTH)
        msgspec.json.encode(value)  # refuses lone surrogates
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise exceptions.ValidationError(detail=MALFORMED) from error
    return value


def _check(value: Any, depth: int) -> None:
    if isinstance(value, str) and "\0" in value:
        raise exceptions.ValidationError(detail="The request body has a text with the character NUL.")
    if isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise exceptions.ValidationError(detail="The request body has a number of more than 64 bits.")
    if not isinstance(value, dict | list):
        return
    if depth == 0:
        raise exceptions.ValidationError(detail=f"The request body has more than {MAX_DEPTH} levels.")
    for item in value:
        _check(item, depth - 1)
    for item in value.values() if isinstance(value, dict) else ():
        _check(item, depth - 1)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:32]} is too large")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")
