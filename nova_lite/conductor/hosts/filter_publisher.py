"""Telling hosts that what their security groups let through has changed, or where the networks end that they are on.

What is committed is the truth, and hosts ask for it by themselves after a while; the news only makes that soon. It is
told twice a second at most, however many servers of a project come and go meanwhile; a host that does not answer keeps
no other waiting. A change of rules is told to all that it concerns at once. That servers of a group have come or gone
is told to a few hosts each time, those first that have waited longest: in a project that has servers on a thousand
hosts, each of them would else be told, and would ask, twice a second for as long as any server comes or goes.
"""

from __future__ import annotations

import logging
import threading
from concurrent import futures

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.db import security_groups, spanning
from nova_lite.db.engine import Database, UnitOfWork

LOG = logging.getLogger(__name__)

#: Hosts that are told at the same time.
PARALLEL = 4
#: Hosts that hear of servers that came or went, each time.
MOST = 20


class FilterPublisher:
    def __init__(self, db: Database, compute: ComputeRPC) -> None:
        self._db = db
        self._compute = compute
        self._lock = threading.Lock()
        self._projects: set[str] = set()
        self._instances: set[str] = set()
        #: Hosts whose turn comes, in this order; and those that are about to be told.
        self._later: dict[str, None] = {}
        self._waiting: set[str] = set()
        self._pool = futures.ThreadPoolExecutor(PARALLEL, thread_name_prefix="filter-news")

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, projects: set[str], instances: set[str]) -> None:
        """Groups of ``projects``, or interfaces of ``instances``, were changed."""
        with self._lock:
            self._projects |= projects
            self._instances |= instances

    def tell(self) -> list[futures.Future[None]]:
        """To all whom it concerns, in the background."""
        with self._lock:
            projects, instances = self._projects, self._instances
            self._projects, self._instances = set(), set()
        try:
            at_once = self._hosts(projects, set())
            others = self._hosts(set(), instances)
        except Exception:
            self.add(projects, instances)
            raise
        with self._lock:
            self._later |= dict.fromkeys(others)
            for host in at_once:
                self._later.pop(host, None)
            turn = list(self._later)[:MOST]
            for host in turn:
                del self._later[host]
            new = [host for host in (*at_once, *turn) if host not in self._waiting]
            self._waiting |= set(new)
        return [self._pool.submit(self._tell, host) for host in new]

    def _hosts(self, projects: set[str], instances: set[str]) -> list[str]:
        return self._db.read(_concerned, projects, instances) if projects or instances else []

    def _tell(self, host: str) -> None:
        with self._lock:
            self._waiting.discard(host)
        try:
            self._compute.refresh_security_groups(get_admin_context(), host)
        except exceptions.NovaLiteException as error:
            LOG.info("Host %s hears of changed security groups when it asks: %s", host, error.message)


def _concerned(uow: UnitOfWork, projects: set[str], instances: set[str]) -> list[str]:
    filtering = security_groups.hosts(uow, projects, instances)
    return sorted({*filtering, *spanning.hosts(uow, projects, instances)})
