"""Notifies hosts that their packet filter rules, or the ends of their networks' tunnels, have changed.

The database is the truth, and each host queries it from time to time; a notification only makes that soon. A conductor
notifies at most twice a second, however many servers of a project come and go meanwhile. A host that does not answer
does not delay the others.

All hosts that a change of rules concerns are notified at once. When servers join or leave a group, only a few hosts are
notified each time, the longest waiting ones first. Otherwise all hosts of a project with servers on a thousand hosts
would send a query twice a second.

A host whose build command carries rules with a change is not notified of it, so that a lone build causes no query.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from concurrent import futures

from nova_lite.base import exceptions
from nova_lite.base.context import get_admin_context
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.events import FiltersChanged, InterfacesChanged
from nova_lite.db.network import member_versions, security_groups, spanning
from nova_lite.rpcapi.compute import ComputeRPC

LOG = logging.getLogger(__name__)

#: Hosts that are notified at the same time.
PARALLEL = 4
#: Hosts that one `FilterPublisher.publish` notifies of servers that joined or left a group.
MAX_MEMBER_HOSTS = 20


class FilterPublisher:
    """Collects changes of rules and members, and notifies the hosts they concern."""

    def __init__(self, db: Database, compute: ComputeRPC) -> None:
        self._db = db
        self._compute = compute
        self._lock = threading.Lock()
        self._projects: set[str] = set()
        #: Instances whose interfaces have changed, with the number of the last change. And those of them whose last
        #: change a host knows.
        self._instances: dict[str, int] = {}
        self._known: dict[str, set[str]] = {}
        #: Number of changes so far.
        self.changes = 0
        #: Hosts to notify of changed members, longest waiting first.
        self._queued: dict[str, None] = {}
        #: Hosts whose notification waits for a thread.
        self._submitted: set[str] = set()
        self._pool = futures.ThreadPoolExecutor(PARALLEL, thread_name_prefix="filter-publisher")

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def add(self, projects: set[str], instances: set[str]) -> None:
        """Add projects whose groups have changed, and instances whose interfaces have changed."""
        with self._lock:
            self.changes += 1
            self._projects |= projects
            self._instances |= dict.fromkeys(instances, self.changes)
            for known in self._known.values():
                known -= instances

    def sent(self, host: str, instances: Collection[str], changes: int) -> None:
        """Note that a host gets rules with these instances. ``changes``: their number before the rules were read."""
        with self._lock:
            known = {uuid for uuid in instances if self._instances.get(uuid, changes + 1) <= changes}
            self._known.setdefault(host, set()).update(known)

    def announce(self, uow: UnitOfWork) -> None:
        """Raise the versions of the members that a transaction changes, and add its changes after the commit."""
        member_versions.raise_versions(uow)
        projects = {event.project_id for event in uow.published(FiltersChanged)}
        instances = {event.instance_uuid for event in uow.published(InterfacesChanged)}
        uow.after_commit(lambda: self.add(projects, instances))

    def publish(self) -> list[futures.Future[None]]:
        """Notify the hosts that the changes concern, in the background."""
        with self._lock:
            projects, instances, known = self._projects, set(self._instances), self._known
            self._projects, self._instances, self._known = set(), {}, {}
        try:
            rule_hosts = self._hosts(projects, set())
            member_hosts = [host for host in self._hosts(set(), instances) if instances - known.get(host, set())]
        except Exception:
            self.add(projects, instances)
            raise
        with self._lock:
            self._queued |= dict.fromkeys(member_hosts)
            for host in rule_hosts:
                self._queued.pop(host, None)
            next_hosts = list(self._queued)[:MAX_MEMBER_HOSTS]
            for host in next_hosts:
                del self._queued[host]
            new = [host for host in (*rule_hosts, *next_hosts) if host not in self._submitted]
            self._submitted |= set(new)
        return [self._pool.submit(self._notify, host) for host in new]

    def _hosts(self, projects: set[str], instances: set[str]) -> list[str]:
        return self._db.read(_concerned_hosts, projects, instances) if projects or instances else []

    def _notify(self, host: str) -> None:
        with self._lock:
            self._submitted.discard(host)
        try:
            self._compute.refresh_security_groups(get_admin_context(), host)
        except exceptions.NovaLiteException as error:
            LOG.info("Host %s is not notified of changed rules and sends a query later: %s", host, error.message)


def _concerned_hosts(uow: UnitOfWork, projects: set[str], instances: set[str]) -> list[str]:
    filtering = security_groups.hosts(uow, projects, instances)
    return sorted({*filtering, *spanning.hosts(uow, projects, instances)})
