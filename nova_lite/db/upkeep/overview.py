"""The cloud at a glance: hosts, open operations, and the slowest of them."""

from __future__ import annotations

import datetime
from typing import NamedTuple

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode, InstanceAction, Service
from nova_lite.db.hosts.services import COMPUTE
from nova_lite.db.upkeep import backlog

_OPEN = InstanceAction.finish_time.is_(None)


class Host(NamedTuple):
    """A compute host: state, capacity in use, servers, open operations, and seconds since its last heartbeat."""

    name: str
    state: str
    vcpus: int
    vcpus_used: int
    memory_mb: int
    memory_mb_used: int
    servers: int
    operations: int
    silent: float | None


class Operation(NamedTuple):
    """An operation on a server. ``seconds``: its age, or what it took. ``finished``: it has ended."""

    server: str
    action: str
    step: str
    host: str | None
    seconds: float
    attempts: int
    finished: bool
    result: str


class Overview(NamedTuple):
    """The state of the cloud at one moment. ``slowest``: open operations, the oldest first, then recently ended
    ones, the slowest first.
    """

    time: datetime.datetime
    backlog: backlog.Backlog
    hosts: list[Host]
    slowest: list[Operation]


def read(uow: UnitOfWork, hosts: int, operations: int, lately: datetime.timedelta) -> Overview:
    """Return the first ``hosts`` hosts, unavailable ones first, and the first ``operations`` operations."""
    return Overview(uow.now, backlog.read(uow), _hosts(uow, hosts), _slowest(uow, operations, lately))


def _hosts(uow: UnitOfWork, limit: int) -> list[Host]:
    servers = (
        sa.select(sa.func.count(sa.distinct(Allocation.instance_uuid)))
        .where(Allocation.compute_node_id == ComputeNode.id)
        .scalar_subquery()
    )
    working = sa.select(sa.func.count()).where(InstanceAction.host == Service.host, _OPEN)
    query = (
        sa.select(
            Service.host,
            Service.up,
            Service.disabled,
            Service.forced_down,
            Service.last_seen_up,
            ComputeNode.vcpus,
            ComputeNode.vcpus_used,
            ComputeNode.memory_mb,
            ComputeNode.memory_mb_used,
            servers,
            working.correlate(Service).scalar_subquery(),
        )
        .join(ComputeNode, ComputeNode.service_id == Service.id)
        .where(Service.binary == COMPUTE)
        .order_by(Service.up, Service.host)
        .limit(limit)
    )
    found = []
    for host, up, disabled, forced_down, seen, vcpus, vcpus_used, memory, memory_used, count, jobs in uow.rows(query):
        state = "forced down" if forced_down else ("up" if up else "down") + (", disabled" if disabled else "")
        silent = None if seen is None else round((uow.now - seen).total_seconds(), 1)
        found.append(Host(host, state, vcpus, vcpus_used, memory, memory_used, count, jobs, silent))
    return found


def _slowest(uow: UnitOfWork, limit: int, lately: datetime.timedelta) -> list[Operation]:
    opened = sa.select(InstanceAction).where(_OPEN).order_by(InstanceAction.start_time).limit(limit)
    found = list(uow.session.scalars(opened))
    ended = sa.select(InstanceAction).where(InstanceAction.finish_time >= uow.now - lately)
    rows = uow.session.scalars(ended.order_by(InstanceAction.finish_time.desc()).limit(_RECENT))
    by_time = sorted(rows, key=lambda row: row.start_time - (row.finish_time or row.start_time))
    return [_operation(row, uow.now) for row in [*found, *by_time][:limit]]


#: Ended operations that are looked at.
_RECENT = 1000


def _operation(row: InstanceAction, now: datetime.datetime) -> Operation:
    seconds = round(((row.finish_time or now) - row.start_time).total_seconds(), 1)
    finished = row.finish_time is not None
    late = "past its deadline" if not finished and row.deadline <= now else ""
    result = (row.message or "Success") if finished else late
    return Operation(
        row.instance_uuid, row.action, "" if finished else row.step, row.host, seconds, row.attempts, finished, result
    )
