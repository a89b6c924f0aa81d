"""Access rules of application credentials: the requests that their tokens may make."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable

from nova_lite.api.identity.records import AccessRule

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
METHODS_TEXT = ", ".join(METHODS)
#: Wildcards of a rule's path. The paths of the APIs have three variables at most.
MAX_WILDCARDS = 16

#: Parts of a rule's path: a variable or one star stands for a segment, two stars stand for any number of segments.
_PARTS = re.compile(r"(?P<any>\*\*)|(?P<segment>\*|\{[^}]*\})|(?P<text>[^*{]+|\{)")


def allow(rules: Iterable[AccessRule], services: Collection[str], method: str, path: str) -> bool:
    """Check whether a rule allows the request. ``services``: the types of the service in the catalog."""
    return any(rule.service in services and rule.method == method and _pattern(rule.path).fits(path) for rule in rules)


def wildcards(path: str) -> int:
    """Return the number of wildcards in a rule's path."""
    return sum(part.lastgroup != "text" for part in _PARTS.finditer(path))


class _Pattern:
    """A rule's path. It is matched in linear time, as the request's path may be made for it.

    Each bit of a set is a place in the rule's path that the request's path can have reached so far: all ways to match
    are followed at once.
    """

    def __init__(self, path: str) -> None:
        self._prefix, *_ = re.split(r"[*{]", path, maxsplit=1)
        size = 0
        #: Places at which a character is next, by character, and those of any character of a segment.
        self._characters: dict[str, int] = {}
        self._segment = 0
        #: Places at which any characters may be skipped, and those of a segment.
        self._skip_any = self._skip_segment = 0
        for part in _PARTS.finditer(path):
            if part.lastgroup == "any":
                self._skip_any |= 1 << size
            elif part.lastgroup == "segment":
                self._segment |= 1 << size
                size += 1
                self._skip_segment |= 1 << size
            else:
                for character in part.group():
                    self._characters[character] = self._characters.get(character, 0) | 1 << size
                    size += 1
        self._end = 1 << size

    def fits(self, path: str) -> bool:
        if not path.startswith(self._prefix):
            return False
        reached = 1
        for character in path:
            matching, skipping = self._characters.get(character, 0), self._skip_any
            if character != "/":
                matching |= self._segment
                skipping |= self._skip_segment
            reached = (reached & matching) << 1 | reached & skipping
            if not reached:
                return False
        return bool(reached & self._end)


_pattern = functools.lru_cache(maxsize=1000)(_Pattern)
