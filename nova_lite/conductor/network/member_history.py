"""Recent members of large security groups, and names on large networks, so that hosts get what changed.

A host sends a digest of the members that it knows on each network. If this conductor has sent them lately, its reply
has the members that were added and removed since. Otherwise the reply has all of them. So a lost history costs time
only.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nova_lite.objects import PortFilters, SecurityGroup
from nova_lite.objects.security_group import LARGE, NAMES, NetworkMembers, members_digest

#: Lists of members of a group on a network, and changes of each, that are remembered. 100,000 members need about 7 MB.
MAX_LISTS, MAX_CHANGES = 16, 64


class _Change(NamedTuple):
    """Members that joined and left. ``before``: digest of the members before."""

    before: str
    added: frozenset[str]
    removed: frozenset[str]


class _List:
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
        #: Lists by group and network.
        self._lists: OrderedDict[tuple[str, str], _List] = OrderedDict()
        self._lock = threading.Lock()

    def reduced(self, results: Sequence[tuple[PortFilters, Mapping[str, Mapping[str, str]]]]) -> list[PortFilters]:
        """Return the filters of several hosts. Large lists of members have only changes since what each host knows.

        Each result is with the host's digests by group and network. Names of guests are the group `NAMES`. Results of
        one transaction share their lists. So each list, and each host's difference, is computed once.
        """
        recorded: set[tuple[str, str]] = set()
        found: dict[tuple[tuple[str, str], str], NetworkMembers] = {}

        def reduced(key: tuple[str, str], members: NetworkMembers, known: str | None) -> NetworkMembers:
            if len(members.members) < LARGE:
                return members
            if key not in recorded:
                self._record(key, members.members)
                recorded.add(key)
            if known is None:
                return members
            if (key, known) not in found:
                found[key, known] = self._reduced(key, members, known)
            return found[key, known]

        def all_reduced(
            group_id: str, lists: Mapping[str, NetworkMembers], known: Mapping[str, Mapping[str, str]]
        ) -> dict[str, NetworkMembers]:
            digests = known.get(group_id, {})
            return {
                network_id: reduced((group_id, network_id), members, digests.get(network_id))
                for network_id, members in lists.items()
            }

        def group_reduced(group: SecurityGroup, known: Mapping[str, Mapping[str, str]]) -> SecurityGroup:
            if not group.members_by_network:
                return group
            return msgspec.structs.replace(
                group, members_by_network=all_reduced(group.id, group.members_by_network, known)
            )

        with self._lock:
            made = [
                msgspec.structs.replace(
                    filters,
                    groups={key: group_reduced(group, known) for key, group in filters.groups.items()},
                    names=all_reduced(NAMES, filters.names or {}, known),
                )
                for filters, known in results
            ]
            while len(self._lists) > MAX_LISTS:
                self._lists.popitem(last=False)
        return made

    def _reduced(self, key: tuple[str, str], members: NetworkMembers, known: str) -> NetworkMembers:
        changes = self._lists[key].since(known)
        if changes is None:
            return members
        added, removed = changes
        return NetworkMembers(members=sorted(added), removed=sorted(removed), base=known)

    def _record(self, key: tuple[str, str], source: list[str]) -> None:
        if key not in self._lists:
            self._lists[key] = _List(source)
        self._lists[key].record(source)
        self._lists.move_to_end(key)
