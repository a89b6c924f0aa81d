"""Promises of hosts in each kind of database: none counts after they were forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts, leases
from tests.support import make


def test_no_host_counts_as_armed_or_lost_after_promises_are_forgotten(db: Database, conf: cfg.ConfigOpts) -> None:
    names = {"armed": "", "lost": leases.LEASE, "left": leases.LEFT}

    def promise(uow: UnitOfWork) -> None:
        for host, fenced in names.items():
            hosts.record(uow, conf, make.report(host))
            row = {"host": host, "seconds": 50.0, "number": 1, "guests": ["u"], "fenced": fenced, "checks": []}
            uow.session.add(models.HostLease(**row, boot_id=uow.session.scalar(sa.select(models.Service.boot_id))))
            plan = {"instance_uuid": host, "host": host, "priority": 1, "attempts": 1, "cause": ""}
            uow.session.add(models.Restart(**plan, due_at=uow.now))

    db.write(promise)
    assert len(db.read(leases.watched)) == 1
    db.write(leases.forget, 0)
    assert (db.read(leases.watched), db.read(leases.fenced_hosts)) == ([], [])
    states = db.read(leases.all_hosts)
    assert [(state.host, state.armed, state.guests, state.fenced) for state in states] == [
        ("armed", 0, [], ""),
        ("left", 0, [], leases.LEFT),
        ("lost", 0, [], ""),
    ]
    assert db.read(lambda uow: uow.session.scalar(sa.select(sa.func.count()).select_from(models.Restart))) == 0
