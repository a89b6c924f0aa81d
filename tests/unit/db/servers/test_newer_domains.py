"""Servers whose guest is newer than their row, and what an adoption changes."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, Service
from nova_lite.db.hosts import hosts, unknown_domains
from nova_lite.db.servers import newer_domains
from nova_lite.db.upkeep import invariants
from tests.support import make

RUNNING = 1


@pytest.fixture
def uuid(db: Database) -> str:
    """Return a server of host h1 at generation 3, of which h1 has a guest of generation 4, and h2 one of 6."""
    conf = make.conf(str(db.engine.url))
    for host in ("h1", "h2", "h3"):
        inventory = make.inventory(host)
        db.write(hosts.record, conf, make.report(host, inventories=[inventory]))
    made: str = db.write(make.instance, host="h1", node="h1", generation=3, last_generation=3)
    claim(db, made)
    db.write(unknown_domains.record, "h1", [], [], [(made, 4, RUNNING)], None)
    db.write(unknown_domains.record, "h2", [], [], [(made, 6, RUNNING)], None)
    return made


def claim(db: Database, uuid: str) -> None:
    def insert(uow: Any) -> None:
        node = uow.session.scalars(sa.select(ComputeNode).where(ComputeNode.host == "h1")).one()
        row = uow.session.scalars(sa.select(Instance).where(Instance.uuid == uuid)).one()
        amounts = {"vcpus": row.vcpus, "memory_mb": row.memory_mb, "disk_gb": row.disk_gb}
        uow.session.add(
            Allocation(instance_uuid=uuid, compute_node_id=node.id, generation=3, created_at=uow.now, **amounts)
        )
        node.vcpus_used, node.memory_mb_used, node.disk_gb_used = row.vcpus, row.memory_mb, row.disk_gb

    db.write(insert)


def allocations(db: Database) -> list[tuple[str, int]]:
    query = sa.select(ComputeNode.host, Allocation.generation).join(Allocation)
    return db.read(lambda uow: [tuple(row) for row in uow.session.execute(query)])


def change(db: Database, model: Any, **values: Any) -> None:
    db.write(lambda uow: uow.change(sa.update(model).values(**values)))


def usage(db: Database) -> list[str]:
    return [
        f"{item.subject}: {item.found}" for item in db.read(invariants.find) if item.check not in ("domain", "quota")
    ]


def test_newest_guest_of_all_hosts_is_listed_and_adopted_with_its_claim(db: Database, uuid: str) -> None:
    (found,) = db.read(newer_domains.all_newer)
    assert (found.host, found.generation, found.row_host, found.row_generation) == ("h2", 6, "h1", 3)
    db.write(newer_domains.adopt, uuid, False)
    row = db.read(lambda uow: uow.session.scalars(sa.select(Instance).where(Instance.uuid == uuid)).one())
    assert (row.host, row.node, row.generation, row.last_generation, row.vm_state) == ("h2", "h2", 6, 6, "active")
    assert allocations(db) == [("h2", 6)]
    assert db.read(newer_domains.all_newer) == []
    assert usage(db) == []


def test_guest_at_the_host_of_the_row_keeps_the_claim(db: Database, uuid: str) -> None:
    db.write(unknown_domains.record, "h2", [], [], [], None)
    db.write(unknown_domains.record, "h1", [], [], [(uuid, 5, 4)], None)
    db.write(newer_domains.adopt, uuid, False)
    row = db.read(lambda uow: uow.session.scalars(sa.select(Instance).where(Instance.uuid == uuid)).one())
    assert (row.host, row.generation, row.vm_state) == ("h1", 5, "stopped")
    assert allocations(db) == [("h1", 5)]
    assert usage(db) == []


def test_guest_is_not_adopted_while_a_silent_host_may_have_a_newer_one(db: Database, uuid: str) -> None:
    db.write(lambda uow: uow.change(sa.update(Service).where(Service.host == "h3").values(up=False)))
    with pytest.raises(exceptions.InvalidInput, match="hosts h3 are silent"):
        db.write(newer_domains.adopt, uuid, False)
    db.write(newer_domains.adopt, uuid, True)
    assert allocations(db) == [("h2", 6)]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"task_state": "rebuilding"}, "is in progress"),
        ({"site_role": "primary"}, "replication adopt"),
        ({"vm_state": "soft-delete"}, "soft-deleted"),
        ({"last_generation": 6}, "no host has reported"),
        ({"numa": {"cells": []}}, "NUMA"),
    ],
)
def test_server_that_cannot_be_adopted_is_explained(db: Database, uuid: str, values: dict[str, Any], text: str) -> None:
    change(db, Instance, **values)
    with pytest.raises(exceptions.InvalidInput, match=text):
        db.write(newer_domains.adopt, uuid, False)
    assert allocations(db) == [("h1", 3)]


def test_guest_of_a_host_that_is_down_is_not_adopted(db: Database, uuid: str) -> None:
    db.write(lambda uow: uow.change(sa.update(Service).where(Service.host == "h2").values(up=False)))
    with pytest.raises(exceptions.InvalidInput, match="host h2, which has the guest, is down"):
        db.write(newer_domains.adopt, uuid, True)
