"""Telling hosts that what their security groups let through has changed, or where the networks end that they are on.

What is committed is the truth, and hosts ask for it by themselves after a while; the news only makes that soon. It is
told twice a second at most, however many servers of a project come and go meanwhile; a host that does not answer keeps
no other waiting.
"""

from __future__ import annotations

import logging
import threading
from concurrent import futures

from nova_lite import exception
from nova_lite.compute.rpcapi import ComputeRPC
from nova_lite.conductor.db import security_groups, spanning
from nova_lite.conductor.db.engine import Database, UnitOfWork
from nova_lite.context import get_admin_context

LOG = logging.getLogger(__name__)

#: Hosts that are told at the same time.
PARALLEL = 4


class FilterNews:
    def __init__(self, db: Database, compute: ComputeRPC) -> None:
        self._db = db
        self._compute = compute
        self._lock = threading.Lock()
        self._projects: set[str] = set()
        self._instances: set[str] = set()
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
        if not projects and not instances:
            return []
        try:
            hosts = self._db.read(_concerned, projects, instances)
        except Exception:
            self.add(projects, instances)
            raise
        with self._lock:
            new = [host for host in hosts if host not in self._waiting]
            self._waiting |= set(new)
        return [self._pool.submit(self._tell, host) for host in new]

    def _tell(self, host: str) -> None:
        with self._lock:
            self._waiting.discard(host)
        try:
            self._compute.refresh_security_groups(get_admin_context(), host)
        except exception.NovaLiteException as error:
            LOG.info("Host %s hears of changed security groups when it asks: %s", host, error.message)


def _concerned(uow: UnitOfWork, projects: set[str], instances: set[str]) -> list[str]:
    filtering = security_groups.hosts(uow, projects, instances)
    return sorted({*filtering, *spanning.hosts(uow, projects, instances)})
