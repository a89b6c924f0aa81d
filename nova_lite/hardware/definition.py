"""Definition of an extra spec or image property."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from oslo_utils import strutils


class Outcome(enum.Enum):
    """Effect of an extra spec or image property. ``docs/reference/hardware.md`` shows the values."""

    #: Changes the guest or the choice of its host.
    HONOURED = "honoured"
    #: The API refuses it with a 400 that states the reason.
    REFUSED = "refused"
    #: Stored and shown, without effect: the setting is for other hypervisors, or does not concern the hardware.
    NOT_APPLICABLE = "not for this hypervisor"


class Precedence(enum.Enum):
    """Rule for a setting that both the flavor and the image have. ``docs/reference/hardware.md`` shows the values."""

    SAME = "flavor and image must have the same value"
    IMAGE = "the image takes precedence"
    FLAVOR = "the flavor takes precedence"
    EITHER = "one of them is enough"
    #: `nova_lite.hardware.numa` checks this.
    IF_FLAVOR_ALLOWS = "an image may have it only if its flavor has `large` or `any`"
    ONLY_ONE = "only one of them may have it"
    LIMIT = "the flavor's value is the limit for the image"


class Values(NamedTuple):
    """Values that a definition accepts. ``description`` is for the reference page and for refusals."""

    description: str
    accepts: Callable[[str], bool]


def one_of(*words: str) -> Values:
    return Values(", ".join(f"`{word}`" for word in words), frozenset(words).__contains__)


def matching(description: str, pattern: str) -> Values:
    # Compiled with the first value, since most definitions are never used.
    compiled = functools.cache(lambda: re.compile(pattern, re.ASCII))
    return Values(description, lambda value: compiled().fullmatch(value) is not None)


def number(minimum: int, maximum: int | None = None) -> Values:
    def accepts(value: str) -> bool:
        if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            return False
        return minimum <= int(value) and (maximum is None or int(value) <= maximum)

    description = f"a number of at least {minimum}" if maximum is None else f"a number from {minimum} to {maximum}"
    return Values(description, accepts)


BOOLEAN = Values("`yes` or `no`", strutils.is_valid_boolstr)
ANYTHING = Values("anything", lambda value: True)
CPUS = matching("CPUs, as `0-3,^2`", r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*")

#: Patterns of the parts of a key that users choose.
_PARTS = {
    "id": r"\d+",
    "group": r"(?:\d+|_[A-Za-z0-9_-]{1,64})",
    "trait": r"[A-Z0-9_]{1,255}",
    "class": r"[A-Z0-9_]{1,255}",
    "key": r".+",
}


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """Setting of a guest's hardware: an extra spec, an image property, or both.

    ``flavor``, ``image``: key of the extra spec and of the image property, empty if there is none. Words in braces are
    keys of `_PARTS`. ``old_keys``: older keys with the same meaning.

    ``description``: its effect, or the reason for the refusal, as the end of a sentence. ``harmless``: values of a
    refused setting that request nothing.

    ``specs``, ``properties``: the flavor and image of an example, which the page shows and a test runs.
    ``other_effect``: the effect of an honoured setting that does not change the domain.
    """

    name: str
    flavor: str = ""
    image: str = ""
    old_keys: tuple[str, ...] = ()
    values: Values
    outcome: Outcome
    description: str
    precedence: Precedence = Precedence.SAME
    harmless: tuple[str, ...] = ()
    specs: Mapping[str, str] = msgspec.field(default_factory=dict)
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    other_effect: str = ""

    def stored_name(self, key: str) -> str:
        """Return the name under which `HardwareRequest` stores the value of ``key``. It ends in the key's number."""
        number = key.rpartition(".")[2]
        return f"{self.name}.{int(number)}" if self.flavor.endswith(".{id}") else self.name

    def is_harmless(self, value: str) -> bool:
        return value.lower() in self.harmless


def key_pattern(key: str) -> str:
    """Return the regular expression of a key with parts in braces."""
    pieces = re.split(r"\{(\w+)\}", key)
    return "".join(_PARTS[piece] if index % 2 else re.escape(piece) for index, piece in enumerate(pieces))


def honoured(name: str, values: Values, description: str, **more: Any) -> Definition:
    return Definition(name=name, values=values, outcome=Outcome.HONOURED, description=description, **more)


def refused(name: str, values: Values, description: str, **more: Any) -> Definition:
    return Definition(name=name, values=values, outcome=Outcome.REFUSED, description=description, **more)


def not_applicable(name: str, description: str, values: Values = ANYTHING, **more: Any) -> Definition:
    return Definition(name=name, values=values, outcome=Outcome.NOT_APPLICABLE, description=description, **more)
