"""Regular expressions of users' searches."""

from __future__ import annotations

import re

from nova_lite.base import exceptions

MAX_LENGTH = 255

#: A repeat multiplies the work by the length of the text, a choice by two. A pattern beyond the maximum is refused.
REPEAT_COST, CHOICE_COST, MAX_COST = 4, 1, 8


def checked(pattern: str) -> str:
    """Return an equivalent pattern that cannot keep the database busy; raise `InvalidInput` for an expensive one.

    Searching backtracks, and on SQLite it blocks the whole conductor. Repeated groups, and many choices and repeats,
    explode. A pattern may not begin with ``(?``, whose flags change its meaning. ``.*`` at either end is redundant and
    dropped before counting.
    """
    shown = repr(pattern[:MAX_LENGTH])
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise exceptions.InvalidInput(reason=f"{shown} is not a regular expression: {error}") from error
    pattern = re.sub(r"\A\^?\.\*(?![?+*{])", "", pattern)
    pattern = re.sub(r"(?<!\\)\.\*\$?\Z", "", pattern)
    if "\0" in pattern or len(pattern) > MAX_LENGTH or _cost(pattern) > MAX_COST:
        raise exceptions.InvalidInput(reason=f"the regular expression {shown} is too complex")
    return pattern


def _cost(pattern: str) -> int:
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    if "(?" in plain or re.search(r"\)[*+{]", plain):
        return MAX_COST + 1
    return REPEAT_COST * len(re.findall(r"[*+{]", plain)) + CHOICE_COST * len(re.findall(r"[?|]", plain))
