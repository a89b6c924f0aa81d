"""Keeping this host's filters as the conductor has them: it is asked for all of them, whenever something may have
changed, and after a while in any case. So a message that is lost, or a host that was away, only takes longer.

For new interfaces alone it is not asked for all: a host that fills would ask for more with each of its guests, and be
told all addresses of all their projects each time. Groups, and what their rules name, are one project's. So what is
asked for is all of the project on this host, and what was told of other projects stays as it was.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from nova_lite import exception
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.context import get_admin_context
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
        self._told = PortFilters()
        self._wanted.set()
        self._next = self._not_before = 0.0

    def refresh_soon(self) -> None:
        with self._lock:
            self._plugged = None
            self._wanted.set()

    def plugged(self, instance: Instance) -> None:
        """It has interfaces here, of which nothing was said yet."""
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
            self._wanted.clear()
        try:
            if due or not plugged or not self._ask_for(driver, plugged):
                self._ask_for_all(driver)
        except exception.ServiceTooOld as error:
            LOG.info("Guests are reached by nobody until the conductor is upgraded: %s", error.message)
            self.refresh_soon()
            self._not_before = now + TOO_OLD_PAUSE
        except Exception:
            self.refresh_soon()
            self._not_before = now + RETRY_PAUSE
            raise

    def _ask_for_all(self, driver: PortFiltering) -> None:
        self._next = time.monotonic() + self._interval
        instances = driver.filtered_instances()
        if instances:
            self._told = self._conductor.port_filters_get(get_admin_context(), self._host, instances)
            driver.set_port_filters(self._told)

    def _ask_for(self, driver: PortFiltering, plugged: Mapping[str, str | None]) -> bool:
        """For ``plugged``, and what else is here of their projects, or of no group, so that it may be theirs. No: there
        are others of which nothing was said."""
        here, told, projects = driver.filtered_instances(), self._told, set(plugged.values())
        if any(uuid not in told.instances and uuid not in plugged for uuid in here):
            return False
        theirs = {group.id for group in told.groups.values() if group.project_id in projects}
        apart = {uuid for uuid, groups in told.instances.items() if groups and theirs.isdisjoint(groups)}
        asked = [uuid for uuid in here if uuid in plugged or uuid not in apart]
        if asked:
            said = self._conductor.port_filters_get(get_admin_context(), self._host, asked)
            others = {uuid: told.instances[uuid] for uuid in here if uuid not in said.instances}
            self._told = PortFilters(
                groups={key: group for key, group in told.groups.items() if key not in theirs} | said.groups,
                instances=others | said.instances,
                ports=told.ports | said.ports,
                floating=said.floating,
                peers=said.peers,
            )
            driver.set_port_filters(self._told)
        return True
