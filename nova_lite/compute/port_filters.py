"""Keeping this host's filters as the conductor has them: it is asked for all of them, whenever something may have
changed, and after a while in any case. So a message that is lost, or a host that was away, only takes longer.

For new interfaces alone it is not asked for all: a host that fills would ask for more with each of its guests, and be
told all addresses of all their projects each time. Groups, and what their rules name, are one project's. So what is
asked for is all of the project on this host, and what was told of other projects stays as it was. Orders of several
builds bring the same along, so that it need not be asked for.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Collection, Iterable, Mapping

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.objects import Instance, PortFilters
from nova_lite.virt.driver import ComputeDriver, PortFiltering

LOG = logging.getLogger(__name__)

#: Seconds between two tries, where one has failed; and where the conductor is one of before, which does not know.
RETRY_PAUSE = 2.0
TOO_OLD_PAUSE = 60.0


class PortFilterKeeper:
    """``interval``: seconds after which it asks even if nobody told it to."""

    def __init__(self, host: str, driver: ComputeDriver, conductor: ConductorRPC, interval: float) -> None:
        self._host = host
        self._driver = driver
        self._conductor = conductor
        self._interval = interval
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        #: Project by uuid, of those whose interfaces are new; None: all is to be asked for.
        self._plugged: dict[str, str | None] | None = None
        #: What has come with orders: for which instances, and what there is to filter, if that was told.
        self._ordered: list[tuple[Collection[str], PortFilters | None]] = []
        self._told = PortFilters()
        #: Instances of which orders have said what to filter since all was asked for, before their interfaces came.
        self._ahead: set[str] = set()
        self._wanted.set()
        self._next = self._not_before = 0.0
        #: Between the first two times that it asks for all: hosts that were started together do not go on together.
        self._first = random.uniform(0, interval)

    def refresh_soon(self) -> None:
        with self._lock:
            self._plugged = None
            self._wanted.set()

    def ordered(self, instance_uuids: Collection[str], filters: PortFilters | None) -> None:
        """They are about to be built, and this is what there will be to filter. None: it is asked for."""
        if not isinstance(self._driver, PortFiltering):
            return
        with self._lock:
            self._ordered.append((instance_uuids, filters))
            if filters is not None:
                self._wanted.set()

    def plugged(self, instance: Instance) -> None:
        """It has interfaces here, of which nothing was said yet, but perhaps by its order."""
        with self._lock:
            if self._plugged is not None:
                self._plugged[instance.uuid] = instance.project_id
            self._wanted.set()

    def tick(self, patience: float = 0.0) -> None:
        """Ask if there is a reason to, as soon as somebody says so, which is waited for, or after ``patience`` seconds.
        A failure is raised, and it is tried again soon."""
        self._wanted.wait(patience)
        driver, now = self._driver, time.monotonic()
        if not isinstance(driver, PortFiltering) or now < self._not_before:
            return
        wanted, due = self._wanted.is_set(), now >= self._next
        if not (wanted or due or driver.lacks_port_filters()):
            return
        with self._lock:
            plugged, self._plugged = self._plugged, {}
            ordered, self._ordered = self._ordered, []
            self._wanted.clear()
        try:
            took = self._take(driver, ordered) if plugged is not None else False
            if due or plugged is None or not (took or plugged) or not self._ask_for(driver, plugged):
                self._ask_for_all(driver)
        except exceptions.ServiceTooOld as error:
            LOG.info("Guests are reached by nobody until the conductor is upgraded: %s", error.message)
            self.refresh_soon()
            self._not_before = now + TOO_OLD_PAUSE
        except Exception:
            self.refresh_soon()
            self._not_before = now + RETRY_PAUSE
            raise

    def _ask_for_all(self, driver: PortFiltering) -> None:
        self._ahead.clear()
        instances = driver.filtered_instances()
        self._next = time.monotonic() + (self._first or self._interval)
        if instances:
            self._first = 0.0
            self._told = self._conductor.port_filters_get(get_admin_context(), self._host, instances)
            self._tell(driver)

    def _take(self, driver: PortFiltering, ordered: Iterable[tuple[Collection[str], PortFilters | None]]) -> bool:
        """What has come with orders, unless something was told that was read later; whether there was any."""
        here, took = set(driver.filtered_instances()), False
        for instance_uuids, said in ordered:
            self._ahead.difference_update(instance_uuids)
            if said is not None and _is_later(said, self._told):
                projects = {group.project_id for group in said.groups.values()}
                self._told = _merged(self._told, said, projects, here | self._ahead)
                self._ahead |= said.instances.keys()
                took = True
        if took:
            self._tell(driver)
        return took

    def _ask_for(self, driver: PortFiltering, plugged: Mapping[str, str | None]) -> bool:
        """For ``plugged``, and what else is here of their projects, or of no group, so that it may be theirs; not for
        those of which their orders have said it. No: there are others of which nothing was said."""
        here, told = driver.filtered_instances(), self._told
        if any(uuid not in told.instances and uuid not in plugged for uuid in here):
            return False
        unknown = {uuid: project for uuid, project in plugged.items() if uuid not in self._ahead}
        self._ahead -= plugged.keys()
        if not unknown:
            return True
        projects = set(unknown.values())
        theirs = {group.id for group in told.groups.values() if group.project_id in projects}
        apart = {uuid for uuid, groups in told.instances.items() if groups and theirs.isdisjoint(groups)}
        asked = [uuid for uuid in here if uuid in unknown or uuid not in apart]
        if asked:
            said = self._conductor.port_filters_get(get_admin_context(), self._host, asked)
            self._told = _merged(told, said, projects, {*here, *self._ahead})
            self._tell(driver)
        return True

    def _tell(self, driver: PortFiltering) -> None:
        """Without the time, so that what has not changed is seen to be the same."""
        driver.set_port_filters(msgspec.structs.replace(self._told, read_at=None))


def _is_later(said: PortFilters, told: PortFilters) -> bool:
    """Whether it was read after ``told`` was. Both are None of an old conductor, and the latter before the first."""
    return said.read_at is not None and told.read_at is not None and said.read_at > told.read_at


def _merged(
    told: PortFilters, said: PortFilters, projects: Collection[str | None], known: Collection[str]
) -> PortFilters:
    """``told``, of those that are ``known``, with what was said later of all that is here of these projects."""
    groups = {key: group for key, group in told.groups.items() if group.project_id not in projects}
    others = {uuid: ids for uuid, ids in told.instances.items() if uuid in known and uuid not in said.instances}
    return PortFilters(
        groups=groups | said.groups,
        instances=others | said.instances,
        ports=told.ports | said.ports,
        floating=said.floating,
        peers=said.peers,
        read_at=said.read_at,
    )
