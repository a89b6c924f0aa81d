"""Rows of load balancers, from their creation to their end, with reports of two hosts."""

from __future__ import annotations

import datetime
import uuid

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import LoadBalancer as Row
from nova_lite.db.core.models import LoadBalancerHost, LoadBalancerPart, Port
from nova_lite.db.load_balancer import hosts, limits, trees
from nova_lite.load_balancer.objects import Assignments, HostReport, Kind, LoadBalancer, Provisioning, Report
from tests.support.spanning import host, span

CALLER = RequestContext(user_id="u", project_id="p", roles=["member"])


def sync(db: Database, name: str, known: dict[str, list[Report]]) -> Assignments:
    """Let a host report its load balancers, and run those of the reply."""
    reply = db.write(hosts.sync, name, HostReport(balancers=known.get(name, [])))
    known[name] = [
        Report(id=one.balancer.id, version=one.balancer.version, holds=one.active) for one in reply.balancers
    ]
    return reply


def settle(db: Database, known: dict[str, list[Report]]) -> None:
    for _ in range(2):
        for name in ("h1", "h2"):
            sync(db, name, known)


def states(db: Database, balancer_id: str) -> set[str]:
    (found,) = db.read(trees.list_, CALLER, [balancer_id])
    return {found.provisioning_status, *(part.provisioning_status for _, part, _ in found.parts())}


def test_load_balancer_lives_with_its_parts_and_hosts(db: Database, conf: cfg.ConfigOpts) -> None:
    known: dict[str, list[Report]] = {}
    for number, name in enumerate(("h1", "h2"), 1):
        host(db, name, f"10.9.9.{number}")
        sync(db, name, known)
    wanted = LoadBalancer(id=str(uuid.uuid4()), project_id="p", vip_network_id=span(db).id)
    made = db.write(trees.create, conf, CALLER, wanted)
    assert (made.host, made.standby_host, made.provisioning_status) == ("h1", "h2", Provisioning.PENDING_CREATE)
    settle(db, known)
    assert states(db, made.id) == {"ACTIVE"}
    ids = {kind: str(uuid.uuid4()) for kind in Kind}
    for kind, parent, values in (
        (Kind.LISTENER, (Kind.LOAD_BALANCER, made.id), {"protocol": "TCP", "protocol_port": 80}),
        (Kind.POOL, (Kind.LISTENER, ids[Kind.LISTENER]), {"protocol": "TCP", "lb_algorithm": "ROUND_ROBIN"}),
        (Kind.MEMBER, (Kind.POOL, ids[Kind.POOL]), {"address": "10.0.0.9", "protocol_port": 80}),
    ):
        db.write(trees.add, CALLER, kind, parent, values | {"id": ids[kind]})
        assert "PENDING_UPDATE" in states(db, made.id)
        settle(db, known)
        assert states(db, made.id) == {"ACTIVE"}
    db.write(limits.set_limits, "p", {Kind.POOL: 5})
    assert db.read(limits.get, "p")[Kind.POOL] == 5
    db.write(trees.update, CALLER, Kind.MEMBER, ids[Kind.MEMBER], {"weight": 7})
    settle(db, known)
    db.write(trees.remove, CALLER, Kind.MEMBER, ids[Kind.MEMBER])
    settle(db, known)
    assert db.read(trees.list_, CALLER, [ids[Kind.MEMBER]]) == []
    db.write(trees.failover, CALLER, made.id)
    settle(db, known)
    row = db.read(lambda uow: uow.session.get_one(Row, made.id))
    assert (row.host, row.standby_host, row.former_host) == ("h2", "h1", None)
    assert [one.holds for one in known["h1"]] == [False] and [one.holds for one in known["h2"]] == [True]
    late = datetime.timedelta(seconds=conf.load_balancer.lease + hosts.MARGIN + 1)
    db.write(
        lambda uow: uow.change(
            sa.update(LoadBalancerHost).where(LoadBalancerHost.host == "h2").values(seen_at=uow.now - late)
        )
    )
    assert db.write(hosts.sweep) == [made.id]
    row = db.read(lambda uow: uow.session.get_one(Row, made.id))
    assert (row.host, row.standby_host, row.former_host) == ("h1", None, None)
    settle(db, known)
    db.write(trees.remove, CALLER, Kind.LOAD_BALANCER, made.id, True)
    settle(db, known)
    for table in (Row, LoadBalancerPart, Port):
        assert db.read(lambda uow, table=table: uow.session.scalars(sa.select(table.id)).all()) == []
