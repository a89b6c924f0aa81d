"""Recent members of large security groups, and names on large networks, so that hosts get what changed.

A host sends a digest of the members that it knows. If this conductor has sent them lately, its reply has the members
that were added and removed since. Otherwise the reply has all of them. So a lost history costs time only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar, cast

import msgspec

from nova_lite.objects import PortFilters
from nova_lite.objects.security_group import LARGE, MemberList, members_digest

L = TypeVar("L", bound=MemberList)

#: Groups, and changes of each, that are remembered. A group's members need about 7 MB for each 100,000.
MAX_GROUPS, MAX_CHANGES = 16, 64


class _Change(NamedTuple):
    """Members that joined and left. ``before``: digest of the members before."""

    before: str
    added: frozenset[str]
    removed: frozenset[str]


class _Group:
    """``source``: the list of the members, to recognise it without a look at each."""

    def __init__(self, source: list[str]) -> None:
        self.source = source
        self.members = frozenset(source)
        self.digest = members_digest(source)
        self.changes: deque[_Change] = deque(maxlen=MAX_CHANGES)

    def record(self, source: list[str]) -> None:
        if source is self.source:
            return
        members, digest = frozenset(source), members_digest(source)
        if digest != self.digest:
            self.changes.append(_Change(self.digest, members - self.members, self.members - members))
            self.members, self.digest = members, digest
        self.source = source

    def since(self, digest: str) -> tuple[set[str], set[str]] | None:
        """Return the members that joined and left since the digest, None if it is unknown."""
        if digest == self.digest:
            return set(), set()
        then = set(self.members)
        for change in reversed(self.changes):
            then = (then - change.added) | change.removed
            if change.before == digest:
                return set(self.members) - then, then - self.members
        return None


class MemberHistory:
    def __init__(self) -> None:
        self._groups: OrderedDict[str, _Group] = OrderedDict()
        self._lock = threading.Lock()

    def reduced(self, results: Sequence[tuple[PortFilters, Mapping[str, str]]]) -> list[PortFilters]:
        """Return the filters of several hosts, whose large groups have only changes since what each host knows.

        Each result is with the host's digests by group id. Results of one transaction share their groups. So each
        group, and each host's difference, is computed once.
        """
        recorded: set[str] = set()
        found: dict[tuple[str, str], MemberList] = {}

        def reduced(group: L, known: str | None) -> L:
            if len(group.members) < LARGE:
                return group
            if group.id not in recorded:
                self._record(group)
                recorded.add(group.id)
            if known is None:
                return group
            if (group.id, known) not in found:
                found[group.id, known] = self._reduced(group, known)
            return cast("L", found[group.id, known])

        with self._lock:
            made = [
                msgspec.structs.replace(
                    filters,
                    groups={key: reduced(group, known.get(key)) for key, group in filters.groups.items()},
                    names={key: reduced(names, known.get(key)) for key, names in (filters.names or {}).items()},
                )
                for filters, known in results
            ]
            while len(self._groups) > MAX_GROUPS:
                self._groups.popitem(last=False)
        return made

    def _reduced(self, group: L, known: str) -> L:
        changes = self._groups[group.id].since(known)
        if changes is None:
            return group
        added, removed = changes
        return msgspec.structs.replace(group, members=sorted(added), removed=sorted(removed), base=known)

    def _record(self, group: MemberList) -> None:
        if group.id not in self._groups:
            self._groups[group.id] = _Group(group.members)
        self._groups[group.id].record(group.members)
        self._groups.move_to_end(group.id)
