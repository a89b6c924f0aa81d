"""Looks after the health of this host's machine, and reports changes with heartbeats. See docs/howto/host-health.md."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from nova_lite.base import exceptions
from nova_lite.objects import HostProblem
from nova_lite.virt.driver import ComputeDriver

LOG = logging.getLogger(__name__)

#: Most problems of one report.
MAX_PROBLEMS = 50


class HealthReports:
    """The host's problems. A problem lasts until it has not been seen for ``clear_after`` seconds.

    ``report`` sends the problems with the next heartbeat.
    """

    def __init__(
        self,
        driver: ComputeDriver,
        report: Callable[[list[HostProblem]], None],
        clear_after: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver = driver
        self._report = report
        self._clear_after = clear_after
        self._clock = clock
        self._problems: dict[str, HostProblem] = {}
        self._seen: dict[str, float] = {}

    def tick(self) -> None:
        """Check the machine. Call it every minute or so, from one thread."""
        if not self._driver.health:
            return
        try:
            found = self._driver.health.check()
        except exceptions.VirtDriverError as error:
            LOG.warning("The health of this host is unknown: %s", error.message)
            return
        now = self._clock()
        for problem in found[:MAX_PROBLEMS]:
            self._seen[problem.key] = now
            if problem.key not in self._problems:
                LOG.warning("Health of this host: %s", problem.text)
                # The first text stays: figures that grow are no change to report.
                self._problems[problem.key] = problem
        for key in [key for key, seen in self._seen.items() if now - seen >= self._clear_after]:
            LOG.info("Health of this host: solved for %.0f s: %s", self._clear_after, self._problems.pop(key).text)
            del self._seen[key]
        self._report([self._problems[key] for key in sorted(self._problems)])
