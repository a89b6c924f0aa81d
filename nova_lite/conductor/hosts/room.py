"""Room for the servers of hosts that are lost or drained: a count of what fits, without taking any place."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.base import metrics, threads
from nova_lite.base.context import get_admin_context
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.engine.placement_request import HAS_NO_DISKS, request_spec
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import evacuations, host_storage, hosts, leases, services
from nova_lite.db.servers import instances
from nova_lite.objects import HostState, RequestSpec
from nova_lite.operations import states
from nova_lite.rpcapi.scheduler import SchedulerRPC

LOG = logging.getLogger(__name__)

#: Most sets of lost hosts that are tried.
MAX_SETS = 5000

#: Servers in one message to the scheduler.
_PAGE = 50


class Protected(NamedTuple):
    """A protected server that runs. ``waits``: no other host sees its disk, so it would wait for its host."""

    host: str
    priority: int
    spec: RequestSpec
    waits: bool


def read_protected(uow: UnitOfWork, conf: cfg.ConfigOpts) -> tuple[list[HostState], list[Protected]]:
    """Return all hosts, and all protected servers that run."""
    found = hosts.states(uow)
    zones = {state.host: state.availability_zone for state in found}
    servers = []
    for row in instances.movable(uow, leases.may_be_protected(conf)):
        protection = leases.protection_of(conf, row)
        if not protection.restart or row.vm_state != states.ACTIVE or row.host is None:
            continue
        sharing = set(host_storage.sharing(uow, row.host))
        stays = evacuations.has_local_disk(row) and not protection.rebuild
        others = host_storage.others_than(uow, sharing) if stays and sharing else []
        spec = request_spec(uow, row, [], dict.fromkeys(others, HAS_NO_DISKS))
        spec.current_zone = zones.get(row.host)
        servers.append(Protected(row.host, protection.priority, spec, stays and not sharing))
    return found, servers


def hosts_passing(scheduler: SchedulerRPC, specs: Sequence[RequestSpec]) -> dict[str, list[str]]:
    """Return the hosts that pass the scheduler's filters, by server."""
    found: dict[str, list[str]] = {}
    for start in range(0, len(specs), _PAGE):
        page = list(specs[start : start + _PAGE])
        names = scheduler.fitting_hosts(get_admin_context(), page)
        found |= {spec.instance_uuids[0]: passing for spec, passing in zip(page, names, strict=True)}
    return found


def without_room(
    specs: Iterable[RequestSpec], passing: Mapping[str, list[str]], states: Iterable[HostState], lost: Iterable[str]
) -> int:
    """Return the number of servers that find no place at the hosts that are not ``lost``, in the order of ``specs``.

    Each server takes memory, vCPUs and disk of the host that passes the filters and has most memory.
    """
    free = {state.host: _free(state) for state in states if state.up and not state.disabled and state.host not in lost}
    return sum(not _place(spec, passing[spec.instance_uuids[0]], free) for spec in specs)


def _free(state: HostState) -> list[int]:
    memory_mb, disk_gb = state.memory_mb - state.memory_mb_used, state.disk_gb - state.disk_gb_used
    return [memory_mb, state.vcpus - state.vcpus_used, disk_gb]


def _place(spec: RequestSpec, passing: Iterable[str], free: dict[str, list[int]]) -> bool:
    size = (spec.flavor.memory_mb, spec.flavor.vcpus, spec.flavor.disk_gb)
    rest = {
        name: [has - needs for has, needs in zip(free[name], size, strict=True)] for name in passing if name in free
    }
    able = [name for name, values in rest.items() if min(values) >= 0]
    if not able:
        return False
    target = max(able, key=lambda name: (free[name][0], name))
    free[target] = rest[target]
    return True


class SurvivalCheck:
    """Counts the protected servers that would find no room if any ``[conductor] survive_hosts`` hosts were lost."""

    def __init__(self, engine: ActionEngine, scheduler: SchedulerRPC) -> None:
        self._db = engine.db
        self._conf = engine.conf
        self._scheduler = scheduler
        self._lock = threads.Lock()
        self._worst: int | None = None

    def samples(self) -> Iterator[tuple[str, metrics.Sample]]:
        """Yield the largest number of servers without room, if it is known."""
        with self._lock:
            worst = self._worst
        if worst is not None:
            yield metrics.sample(metrics.SURVIVE_NO_ROOM, worst)

    def run_if_first(self) -> None:
        """Count again, if this is the oldest conductor that is up. Call it every few minutes."""
        number = self._conf.conductor.survive_hosts
        is_first = number and self._db.read(services.is_first, services.CONDUCTOR, self._conf.host)
        worst = self._count(number) if is_first else None
        with self._lock:
            self._worst = worst

    def _count(self, number: int) -> int | None:
        found, servers = self._db.read(read_protected, self._conf)
        servers = sorted((server for server in servers if not server.waits), key=lambda server: -server.priority)
        up = {state.host for state in found if state.up and not state.disabled}
        used = sorted({server.host for server in servers} & up)
        if math.comb(len(used), min(number, len(used))) > MAX_SETS:
            LOG.warning("[conductor] survive_hosts = %d: there are too many sets of %d hosts", number, number)
            return None
        passing = hosts_passing(self._scheduler, [server.spec for server in servers])
        worst = 0
        for lost in itertools.combinations(used, min(number, len(used))):
            specs = [server.spec for server in servers if server.host in lost]
            worst = max(worst, without_room(specs, passing, found, lost))
        return worst
