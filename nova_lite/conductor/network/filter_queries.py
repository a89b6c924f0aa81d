"""Answers hosts' queries for their packet filter rules, in batches.

A change notification (`nova_lite.conductor.network.filter_publisher`) reaches many hosts at once, so their queries
arrive together. They read the same tables and often the same projects, so one transaction answers all of them. A single
query does not wait.

Build commands carry the rules of their guests, so that their hosts send no query (`rules_for_builds`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from nova_lite.base import clock
from nova_lite.base.batching import Batcher, send_isolated
from nova_lite.base.context import RequestContext
from nova_lite.base.futures import ResponseFuture
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.network.filter_publisher import FilterPublisher
from nova_lite.conductor.network.member_history import MemberHistory
from nova_lite.db.core.engine import Database, is_isolated
from nova_lite.db.network import security_groups
from nova_lite.db.network.member_versions import MemberCache
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.objects import PortFilters
from nova_lite.objects.security_group import LARGE, UNKNOWN, NetworkMembers

LOG = logging.getLogger(__name__)

#: Seconds after its last query for which a host is assumed to filter packets.
ACTIVE_SECONDS = 600.0


#: Digests of large lists of members, by group and network. None: of a host that knows no networks of members.
_Known = Mapping[str, Mapping[str, str]] | None


class _Query(NamedTuple):
    """Query of a host. ``known``: the members that it knows."""

    query: FilterQuery
    known: _Known


class FilterQueries:
    """The RPC method `port_filters_get`. The endpoint has checked that a host queries only its own filters.

    ``publisher`` does not notify hosts of what build commands carry.
    """

    def __init__(
        self, db: Database, timing: ConductorTiming = TIMING.conductor, publisher: FilterPublisher | None = None
    ) -> None:
        self._db = db
        self._publisher = publisher
        self._cache, self._names = MemberCache(), MemberCache()
        self._history = MemberHistory()
        self._batcher: Batcher[_Query, PortFilters] = Batcher(self._read, timing.filter_query_batches, is_isolated)
        #: Monotonic time of each host's last query, and whether the host knows networks of members.
        self._last_queries: dict[str, tuple[float, bool]] = {}
        #: Monotonic time of the last single build in each project with large groups.
        self._large: dict[str, float] = {}

    def port_filters_get(
        self,
        context: RequestContext,
        host: str,
        instance_uuids: list[str],
        known: dict[str, str] | None = None,
        known_members: dict[str, dict[str, str]] | None = None,
    ) -> PortFilters | ResponseFuture[PortFilters]:
        self._last_queries[host] = clock.monotonic(), known_members is not None
        return self._batcher.submit_later(_Query(FilterQuery(host, instance_uuids), known_members))

    def rules_for_builds(self, builds: Mapping[str, Mapping[str, str]]) -> dict[str, PortFilters]:
        """Return the rules, by host, for hosts that are about to build servers. ``builds``: projects by instance, by
        host.

        To be called once the placements are committed: the hosts are notified of later changes. Hosts without a recent
        query are left out, since perhaps they do not filter at all. Hosts whose rules cannot be read are left out, too.
        So is the host of a single build in a project with large groups: a query returns only what changed in them.
        """
        since = clock.monotonic() - ACTIVE_SECONDS
        projects = [project for instances in builds.values() for project in instances.values()]
        is_single = len(projects) == 1
        if is_single and self._large.get(projects[0], since) > since:
            return {}
        changes = self._publisher.changes if self._publisher is not None else 0
        last = {host: self._last_queries.get(host, (since, False)) for host in builds}
        queries = [
            _Query(FilterQuery(host, [], frozenset(builds[host].values())), {} if knows_networks else None)
            for host, (queried_at, knows_networks) in last.items()
            if queried_at > since
        ]
        try:
            results = send_isolated(self._read, queries, is_isolated)
        except Exception as error:  # the database is away
            LOG.info("%d hosts have to send a query for their packet filter rules: %s", len(queries), error)
            return {}
        read = zip(queries, results, strict=True)
        rules = {item.query.host: _for_build(result) for item, result in read if not isinstance(result, Exception)}
        if is_single and any(map(_is_large, rules.values())):
            self._large[projects[0]] = clock.monotonic()
            return {}
        if self._publisher is not None:
            for host in rules:
                self._publisher.sent(host, builds[host].keys(), changes)
        return rules

    def _read(self, queries: list[_Query]) -> Sequence[PortFilters]:
        asked = [item.query for item in queries]
        results = self._db.read(security_groups.filters_together, asked, self._cache, self._names)
        pairs = [
            (_without_networks(result) if item.known is None else result, item.known or {})
            for item, result in zip(queries, results, strict=True)
        ]
        return self._history.reduced(pairs)


def _is_large(filters: PortFilters) -> bool:
    lists = (item for group in filters.groups.values() for item in (group.members_by_network or {}).values())
    return any(len(item.members) >= LARGE for item in lists)


def _for_build(filters: PortFilters) -> PortFilters:
    """Leave out large lists of names. A host that lacks one sends a query, and others get what changed."""
    names = {
        network_id: item if len(item.members) < LARGE else NetworkMembers(members=[], base=UNKNOWN)
        for network_id, item in (filters.names or {}).items()
    }
    return msgspec.structs.replace(filters, names=names)


def _without_networks(filters: PortFilters) -> PortFilters:
    """Return filters for a host of an older version."""
    groups = {
        key: msgspec.structs.replace(
            group,
            members=sorted(address for item in group.members_by_network.values() for address in item.members),
            members_by_network=None,
        )
        if group.members_by_network is not None
        else group
        for key, group in filters.groups.items()
    }
    return msgspec.structs.replace(filters, groups=groups, names=None)
