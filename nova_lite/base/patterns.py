"""Regular expressions that users give us."""

from __future__ import annotations

import re

from nova_lite.base import exceptions

MAX_LENGTH = 255

#: A repeat multiplies the work by the length of the text, a choice by two. A pattern beyond the maximum is refused.
REPEAT_COST, CHOICE_COST, MAX_COST = 4, 1, 8
#: Maxima for texts of a thousand characters. A pattern that does not begin with ``^`` is tried at each place.
MAX_LONG_COST, MAX_LONG_ANCHORED_COST = 7, 11


def check_syntax(pattern: str) -> None:
    """Raise `InvalidInput` for a text that is no regular expression. A long one may compile for minutes: it is none."""
    shown = repr(pattern[:MAX_LENGTH])
    if len(pattern) > MAX_LENGTH:
        raise exceptions.InvalidInput(reason=f"the regular expression {shown}… has more than {MAX_LENGTH} characters")
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise exceptions.InvalidInput(reason=f"{shown} is not a regular expression: {error}") from error


def checked(pattern: str, is_for_long: bool = False) -> str:
    """Return an equivalent pattern that cannot keep a program busy; raise `InvalidInput` for an expensive one.

    Searching backtracks, and on SQLite it blocks the whole conductor. Repeated groups, and many choices and repeats,
    explode. A pattern may not begin with ``(?``, whose flags change its meaning. ``.*`` at either end is redundant and
    dropped before counting. ``is_for_long``: texts have up to a thousand characters, and not just 255.
    """
    check_syntax(pattern)
    kept = re.sub(r"\A\^?\.\*(?![?+*{])", "", pattern)
    kept = re.sub(r"(?<!\\)\.\*\$?\Z", "", kept)
    maximum = MAX_COST
    if is_for_long:
        maximum = MAX_LONG_ANCHORED_COST if _is_anchored(kept) else MAX_LONG_COST
    if "\0" in kept or _cost(kept) > maximum:
        raise exceptions.InvalidInput(reason=f"the regular expression {pattern!r} is too complex")
    return kept


def _is_anchored(pattern: str) -> bool:
    """Return whether the pattern begins with ``^``, and has no other choice outside of groups."""
    return pattern.startswith("^") and "|" not in re.sub(r"\([^()]*\)", "", pattern)


def _cost(pattern: str) -> int:
    plain = re.sub(r"\\.", "x", pattern, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "x", plain)
    if "(?" in plain or re.search(r"\)[*+{]", plain):
        return MAX_LONG_ANCHORED_COST + 1
    return REPEAT_COST * len(re.findall(r"[*+{]", plain)) + CHOICE_COST * len(re.findall(r"[?|]", plain))
