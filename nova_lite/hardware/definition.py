"""What a row of the table is."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from oslo_utils import strutils


class Outcome(enum.Enum):
    #: It changes the guest, or where it goes.
    HONOURED = "honoured"
    #: A 400 with a sentence.
    REFUSED = "refused"
    #: It is for other hypervisors, or no matter of the guest's hardware; it is kept and shown, and has no effect.
    ELSEWHERE = "not for this hypervisor"


class Precedence(enum.Enum):
    """Whose word counts where flavor and image both say something. The value is the page's."""

    SAME = "flavor and image have to say the same"
    IMAGE = "the image's word goes first"
    FLAVOR = "the flavor's word goes first"
    EITHER = "either of them is enough"
    #: `nova_lite.hardware.numa` reads what both say.
    OPEN = "an image may say it only where its flavor says `large` or `any`"
    ONE = "only one of them may say it"
    LIMIT = "the flavor's word is the image's limit"


class Values(NamedTuple):
    """``says``: in words, for the page and for refusals."""

    says: str
    takes: Callable[[str], bool]


def one_of(*words: str) -> Values:
    return Values(", ".join(f"`{word}`" for word in words), frozenset(words).__contains__)


def matching(says: str, pattern: str) -> Values:
    compiled = functools.cache(lambda: re.compile(pattern, re.ASCII))  # by the first value: most are never given
    return Values(says, lambda value: compiled().fullmatch(value) is not None)


def number(minimum: int, maximum: int | None = None) -> Values:
    def takes(value: str) -> bool:
        if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            return False
        return minimum <= int(value) and (maximum is None or int(value) <= maximum)

    says = f"a number of at least {minimum}" if maximum is None else f"a number from {minimum} to {maximum}"
    return Values(says, takes)


BOOLEAN = Values("`yes` or `no`", strutils.is_valid_boolstr)
ANYTHING = Values("anything", lambda value: True)
CPUS = matching("CPUs, as `0-3,^2`", r"\^?\d+(-\d+)?(,\^?\d+(-\d+)?)*")

#: The parts of a key that are the user's own.
_PARTS = {
    "id": r"\d+",
    "group": r"(?:\d+|_[A-Za-z0-9_-]{1,64})",
    "trait": r"[A-Z0-9_]{1,255}",
    "class": r"[A-Z0-9_]{1,255}",
    "key": r".+",
}


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """``flavor``, ``image``: the key of the extra spec, of the image property; empty where there is none. Parts of it
    in braces are `_PARTS`. ``older``: names from before that mean the same.

    ``says``: what it does, or why it is refused or is not for this hypervisor: the end of a sentence. ``harmless``:
    values of a refused row that ask for nothing. ``kept``: a flavor may have it; refused are its servers, as hosts to
    come may have what it takes, and as ``openstack flavor set`` is used to plan.

    ``specs``, ``properties``: an example, of a flavor and an image, that the page and its test run. ``changes``: of an
    honoured row that does not change the domain, where it has its effect.
    """

    name: str
    flavor: str = ""
    image: str = ""
    older: tuple[str, ...] = ()
    values: Values
    outcome: Outcome
    says: str
    wins: Precedence = Precedence.SAME
    harmless: tuple[str, ...] = ()
    kept: bool = False
    specs: Mapping[str, str] = msgspec.field(default_factory=dict)
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)
    changes: str = ""

    def name_of(self, key: str) -> str:
        """What this key says is kept under: where there is one for each of several, with the number at its end."""
        number = key.rpartition(".")[2]
        return f"{self.name}.{int(number)}" if self.flavor.endswith(".{id}") else self.name

    def asks_nothing(self, value: str) -> bool:
        return value.lower() in self.harmless


def key_pattern(key: str) -> str:
    """The regular expression of a key with parts in braces."""
    pieces = re.split(r"\{(\w+)\}", key)
    return "".join(_PARTS[piece] if index % 2 else re.escape(piece) for index, piece in enumerate(pieces))


def honoured(name: str, values: Values, says: str, **more: Any) -> Definition:
    return Definition(name=name, values=values, outcome=Outcome.HONOURED, says=says, **more)


def refused(name: str, values: Values, says: str, **more: Any) -> Definition:
    return Definition(name=name, values=values, outcome=Outcome.REFUSED, says=says, **more)


def elsewhere(name: str, says: str, values: Values = ANYTHING, **more: Any) -> Definition:
    return Definition(name=name, values=values, outcome=Outcome.ELSEWHERE, says=says, **more)
