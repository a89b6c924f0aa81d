"""Operators that values of flavor extra specs may start with.

- ``= N``: at least N, as a number (not equal, for historical reasons)
- ``== != >= <= N``: as numbers
- ``s== s!= s< s<= s> s>=``: as strings
- ``<in> X``: X is part of the value
- ``<all-in> X Y``: each is part of (an element of) the value
- ``<or> X <or> Y``: the value is one of these
- no operator: the value is exactly this
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

_NUMERIC: dict[str, Callable[[float, float], bool]] = {
    "=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
}
_STRING: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
}


def match(value: Any, requirement: str) -> bool:
    """Return whether ``value`` (a capability: string, number, bool or list) meets ``requirement``.

    A value that is not a number meets no numeric requirement.
    """
    words = requirement.split()
    operation, operands = (words[0], words[1:]) if words else ("", [])
    operand = operands[0] if operands else ""
    if operation in _NUMERIC:
        try:
            return _NUMERIC[operation](float(value), float(operand))
        except (TypeError, ValueError):
            return False
    if operation in _STRING:
        return _STRING[operation](str(value), operand)
    if operation == "<in>":
        return operand in _container(value)
    if operation == "<all-in>":
        return all(part in _container(value) for part in operands)
    if operation == "<or>":
        return str(value) in [alternative.strip() for alternative in requirement.split("<or>")[1:]]
    return str(value) == requirement


def _container(value: Any) -> list[str] | str:
    """Return the elements of a list, else the value's text."""
    return [str(element) for element in value] if isinstance(value, (list, tuple)) else str(value)
