"""Regular expressions that users send to search with."""

from __future__ import annotations

import re

from nova_lite import exception

MAX_LENGTH = 255
MAX_REPEATS = 3


def checked(pattern: str) -> str:
    """The pattern, if it is one and cannot make a search run for ever; raises `InvalidInput`.

    Searching backtracks on all our databases. What makes it explode is a repeated group; and each repeat multiplies
    the work by the length of the text, so that only a few are let through.
    """
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise exception.InvalidInput(reason=f"{pattern[:MAX_LENGTH]!r} is not a regular expression: {error}") from error
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    if "\0" in pattern or len(pattern) > MAX_LENGTH or re.search(r"\)[*+{]", plain):
        raise exception.InvalidInput(reason=f"the regular expression {pattern[:MAX_LENGTH]!r} is too complex")
    if len(re.findall(r"[*+{]", plain)) > MAX_REPEATS:
        raise exception.InvalidInput(
            reason=f"the regular expression {pattern!r} is too complex: it repeats more than {MAX_REPEATS} times"
        )
    return pattern
