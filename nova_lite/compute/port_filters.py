"""Keeps packet filters, routers and tunnels of this host equal to the conductor's groups, ports and addresses.

The host queries the conductor whenever something may have changed, and periodically. So a lost message, or an absence
of the host, only causes a delay.

For new interfaces the host queries only the filters of their projects, not those of all guests. Security groups, and
what their rules refer to, belong to one project, so the filters of other projects stay valid. Build commands carry the
filters of their instances; then no query is necessary.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection, Iterable, Mapping

import msgspec

from nova_lite.base.context import get_admin_context
from nova_lite.objects import Instance, PortFilters
from nova_lite.objects.security_group import LARGE, NAMES, NetworkMembers, members_digest
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

#: Seconds until the next attempt after a failure.
RETRY_PAUSE = 2.0


class PortFilterSync:
    """Synchronizes port filters. ``interval``: seconds after which it queries all filters without any notification."""

    def __init__(self, host: str, driver: ComputeDriver, conductor: ConductorRPC, interval: float) -> None:
        self._host = host
        self._filters = driver.filters
        self._conductor = conductor
        self._interval = interval
        self._wake_up = threading.Event()
        self._lock = threading.Lock()
        #: Project by uuid of instances with new interfaces. None: query all filters.
        self._plugged: dict[str, str | None] | None = None
        #: Contents of received build commands: instance uuids, and their filters if the command had them.
        self._received: list[tuple[Collection[str], PortFilters | None]] = []
        self._current = PortFilters()
        #: Instances whose filters came with their build commands, and whose interfaces do not exist yet.
        self._prefetched: set[str] = set()
        self._wake_up.set()
        self._next = self._not_before = 0.0
        #: Interval before the first periodic query. It is random, so that hosts that start together do not query
        #: together.
        self._first = random.uniform(0, interval)

    def refresh_soon(self) -> None:
        with self._lock:
            self._plugged = None
            self._wake_up.set()

    def commands_received(self, instance_uuids: Collection[str], filters: PortFilters | None) -> None:
        """Store the filters that came with a build command. None: they have to be queried."""
        if not self._filters:
            return
        with self._lock:
            self._received.append((instance_uuids, filters))
            if filters is not None:
                self._wake_up.set()

    def interfaces_plugged(self, instance: Instance) -> None:
        """Note that an instance has new interfaces here. Their filters may have come with its build command already."""
        with self._lock:
            if self._plugged is not None:
                self._plugged[instance.uuid] = instance.project_id
            self._wake_up.set()

    def tick(self, timeout: float = 0.0) -> None:
        """Wait up to ``timeout`` seconds for a wake-up, then query the conductor if necessary.

        A failure is raised, and the next tick after a short pause tries again.
        """
        self._wake_up.wait(timeout)
        now = time.monotonic()
        if not self._filters or now < self._not_before:
            return
        is_woken, due = self._wake_up.is_set(), now >= self._next
        if not (is_woken or due or self._filters.are_missing()):
            return
        with self._lock:
            plugged, self._plugged = self._plugged, {}
            received, self._received = self._received, []
            self._wake_up.clear()
        try:
            applied = self._apply_received(received) if plugged is not None else False
            if due or plugged is None or not (applied or plugged) or not self._refresh_projects(plugged):
                self._refresh_all()
        except Exception:
            self.refresh_soon()
            self._not_before = now + RETRY_PAUSE
            raise

    def _refresh_all(self) -> None:
        self._prefetched.clear()
        instances = self._filters.instances()
        self._next = time.monotonic() + (self._first or self._interval)
        if instances:
            self._first = 0.0
            self._current = self._query(instances)
            self._apply()

    def _query(self, instances: list[str]) -> PortFilters:
        """Query the filters of these instances. Of large groups the conductor sends what changed, if it can."""
        lists = {key: group.members_by_network for key, group in self._current.groups.items()}
        known: dict[str, dict[str, str]] = {}
        for key, by_network in (lists | {NAMES: self._current.names}).items():
            for network_id, item in (by_network or {}).items():
                if len(item.members) >= LARGE:
                    known.setdefault(key, {})[network_id] = members_digest(item.members)
        update = self._conductor.port_filters_get(get_admin_context(), self._host, instances, known_members=known)
        return _complete(update, self._current)

    def _apply_received(self, received: Iterable[tuple[Collection[str], PortFilters | None]]) -> bool:
        """Apply filters that came with build commands, unless newer ones are applied already. Return whether there were
        any."""
        here, applied = set(self._filters.instances()), False
        for instance_uuids, update in received:
            self._prefetched.difference_update(instance_uuids)
            if update is not None and _is_later(update, self._current):
                projects = {group.project_id for group in update.groups.values()}
                self._current = _merged(self._current, update, projects, here | self._prefetched)
                self._prefetched |= update.instances.keys()
                if any(item.base is not None for item in (self._current.names or {}).values()):
                    self.refresh_soon()
                applied = True
        if applied:
            self._apply()
        return applied

    def _refresh_projects(self, plugged: Mapping[str, str | None]) -> bool:
        """Query the filters of ``plugged`` and of all instances here that may belong to their projects.

        Instances without a group are included, because their project is unknown. Instances whose filters came with
        their build commands are left out. Returns False if there are other instances without filters, so that all have
        to be queried.
        """
        here, current = self._filters.instances(), self._current
        if any(uuid not in current.instances and uuid not in plugged for uuid in here):
            return False
        unknown = {uuid: project for uuid, project in plugged.items() if uuid not in self._prefetched}
        self._prefetched -= plugged.keys()
        if not unknown:
            return True
        projects = set(unknown.values())
        theirs = {group.id for group in current.groups.values() if group.project_id in projects}
        apart = {uuid for uuid, groups in current.instances.items() if groups and theirs.isdisjoint(groups)}
        queried = [uuid for uuid in here if uuid in unknown or uuid not in apart]
        if queried:
            update = self._query(queried)
            self._current = _merged(current, update, projects, {*here, *self._prefetched})
            self._apply()
        return True

    def _apply(self) -> None:
        """Pass the filters to the driver, without their time, so that unchanged filters are equal."""
        self._filters.apply(msgspec.structs.replace(self._current, read_at=None))


def _is_later(update: PortFilters, current: PortFilters) -> bool:
    """Check whether ``update`` is newer than ``current``, which has no time before the first query."""
    return update.read_at is not None and current.read_at is not None and update.read_at > current.read_at


def _complete(update: PortFilters, current: PortFilters) -> PortFilters:
    """Return filters with whole lists of members and names. ``current``: the filters that the digests were made of."""
    groups = dict(update.groups)
    for key, group in update.groups.items():
        if key in current.groups:
            lists = _complete_lists(group.members_by_network, current.groups[key].members_by_network)
            groups[key] = msgspec.structs.replace(group, members_by_network=lists)
    return msgspec.structs.replace(update, groups=groups, names=_complete_lists(update.names, current.names))


def _complete_lists(
    update: dict[str, NetworkMembers] | None, known: Mapping[str, NetworkMembers] | None
) -> dict[str, NetworkMembers] | None:
    """Return whole lists by network. A list that the host lacks stays as it is."""
    return update and {
        network_id: _complete_list(item, known[network_id]) if item.base and known and network_id in known else item
        for network_id, item in update.items()
    }


def _complete_list(update: NetworkMembers, known: NetworkMembers) -> NetworkMembers:
    return NetworkMembers(members=sorted({*known.members} - {*update.removed} | {*update.members}))


def _merged(
    current: PortFilters, update: PortFilters, projects: Collection[str | None], known: Collection[str]
) -> PortFilters:
    """Replace everything of ``projects`` in ``current`` by ``update``. Drop instances that are not ``known``."""
    groups = {key: group for key, group in current.groups.items() if group.project_id not in projects}
    others = {uuid: ids for uuid, ids in current.instances.items() if uuid in known and uuid not in update.instances}
    return PortFilters(
        groups=groups | update.groups,
        instances=others | update.instances,
        ports=current.ports | update.ports,
        floating=update.floating,
        peers=update.peers,
        routers=update.routers,
        networks=update.networks,
        pairs=update.pairs,
        unfiltered=update.unfiltered,
        qos=update.qos,
        floating_qos=update.floating_qos,
        forwardings=update.forwardings,
        dhcp_options=update.dhcp_options,
        names=(current.names or {}) | (_complete_lists(update.names, current.names) or {}),
        read_at=update.read_at,
    )
