"""Rows of compute hosts: their age and their state."""

from __future__ import annotations

import datetime

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.objects import HostState


def state(db: Database) -> HostState:
    (found,) = db.read(hosts.states)
    return found


def age(uow: UnitOfWork, seconds: float) -> None:
    for service in uow.session.query(models.Service):
        assert service.last_seen_up is not None
        service.last_seen_up -= datetime.timedelta(seconds=seconds)
