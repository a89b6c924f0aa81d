"""Access rules of application credentials: the requests that their tokens may make."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable

from nova_lite.api.identity.directory import AccessRule

METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
METHODS_TEXT = ", ".join(METHODS)

#: Parts of a rule's path: a variable or one star stands for a segment, two stars stand for any number of segments.
_PARTS = re.compile(r"(?P<any>\*\*)|(?P<segment>\*|\{[^}]*\})|(?P<text>[^*{]+|\{)")


def allow(rules: Iterable[AccessRule], services: Collection[str], method: str, path: str) -> bool:
    """Check whether a rule allows the request. ``services``: the types of the service in the catalog."""
    return any(
        rule.service in services and rule.method == method and _pattern(rule.path).fullmatch(path) for rule in rules
    )


@functools.lru_cache(maxsize=1000)
def _pattern(path: str) -> re.Pattern[str]:
    expressions = {"any": ".*", "segment": "[^/]+"}
    parts = (expressions.get(part.lastgroup or "", re.escape(part.group())) for part in _PARTS.finditer(path))
    return re.compile("".join(parts), re.DOTALL)
