"""Regular expressions that users search with."""

from __future__ import annotations

import re

from nova_lite.base import exceptions

MAX_LENGTH = 255

#: A repeat multiplies the work by the length of the text, a choice by two; more than this is refused.
REPEAT_COST, CHOICE_COST, MAX_COST = 4, 1, 8


def checked(pattern: str) -> str:
    """A pattern that finds the same texts and cannot keep the database busy; raises `InvalidInput`.

    Searching backtracks, and on SQLite it holds up the whole conductor. What explodes is a repeated group, and choices
    and repeats in numbers. Nothing may begin with ``(?``, whose flags change what all of this means. ``.*`` at either
    end finds nothing more, so it is dropped before they are counted.
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
