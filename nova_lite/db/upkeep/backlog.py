"""Counts open work and reporting daemons for metrics. Each query is one statement over an index."""

from __future__ import annotations

import datetime
from typing import NamedTuple

import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import InstanceAction, Service
from nova_lite.db.hosts import services

_OPEN = InstanceAction.finish_time.is_(None)


class Backlog(NamedTuple):
    """Open work in numbers. ``open``: actions by kind and step. ``oldest_due``: seconds since the first due action
    became due. ``hosts``: compute hosts by state. ``down``: names of the hosts in that state. ``heartbeats``: by
    daemon, seconds since the oldest heartbeat.
    """

    open: dict[tuple[str, str], int]
    oldest_due: float
    past_deadline: int
    hosts: dict[str, int]
    down: list[str]
    heartbeats: dict[str, float]


def read(uow: UnitOfWork) -> Backlog:
    now = uow.now
    connection = uow.session.connection()
    by_step = sa.select(InstanceAction.action, InstanceAction.step, sa.func.count()).where(_OPEN)
    counted = connection.execute(by_step.group_by(InstanceAction.action, InstanceAction.step))
    late = sa.func.sum(sa.case((InstanceAction.deadline <= now, 1), else_=0))
    first, past = connection.execute(sa.select(sa.func.min(InstanceAction.lease_expires_at), late).where(_OPEN)).one()
    hosts = dict.fromkeys(("up", "down", "disabled", "forced_down"), 0)
    down: list[str] = []
    heartbeats: dict[str, float] = {}
    query = sa.select(
        Service.host, Service.binary, Service.up, Service.disabled, Service.forced_down, Service.last_seen_up
    )
    for host, binary, up, disabled, forced_down, seen in connection.execute(query):
        if binary == services.COMPUTE:
            state = "forced_down" if forced_down else "disabled" if disabled else "up" if up else "down"
            hosts[state] += 1
            if state == "down":
                down.append(host)
        if up and not forced_down and seen is not None:
            heartbeats[binary] = max(heartbeats.get(binary, 0.0), _seconds(now - seen))
    due = 0.0 if first is None else _seconds(now - first)
    opened = {(kind, step): count for kind, step, count in counted}
    return Backlog(opened, due, int(past or 0), hosts, down, heartbeats)


def _seconds(difference: datetime.timedelta) -> float:
    return max(0.0, difference.total_seconds())
