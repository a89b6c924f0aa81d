"""Keeping this host's filters as the conductor has them: it is asked for all of them, whenever something may have
changed, and after a while in any case. So a message that is lost, or a host that was away, only takes longer."""

from __future__ import annotations

import logging
import threading
import time

from nova_lite import exception
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.context import get_admin_context
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
        self._wanted.set()
        self._next = self._not_before = 0.0

    def refresh_soon(self) -> None:
        self._wanted.set()

    def tick(self, patience: float = 0.0) -> None:
        """Ask if there is a reason to, as soon as somebody says so, which is waited for, or after ``patience`` seconds.
        A failure is raised, and it is tried again soon."""
        self._wanted.wait(patience)
        driver, now = self._driver, time.monotonic()
        if not isinstance(driver, PortFiltering) or now < self._not_before:
            return
        if not (self._wanted.is_set() or now >= self._next or driver.lacks_port_filters()):
            return
        self._wanted.clear()
        try:
            self._refresh(driver)
        except exception.ServiceTooOld as error:
            LOG.info("Guests are reached by nobody until the conductor is upgraded: %s", error.message)
            self._wanted.set()
            self._not_before = now + TOO_OLD_PAUSE
        except Exception:
            self._wanted.set()
            self._not_before = now + RETRY_PAUSE
            raise

    def _refresh(self, driver: PortFiltering) -> None:
        self._next = time.monotonic() + self._interval
        instances = driver.filtered_instances()
        if instances:
            driver.set_port_filters(self._conductor.port_filters_get(get_admin_context(), self._host, instances))
