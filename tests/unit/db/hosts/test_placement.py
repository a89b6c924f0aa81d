"""Compute nodes and allocations in the terms of the Placement API."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import aggregates, hosts, placement, services
from nova_lite.db.servers import claims, instances
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import ListQuery, NUMACell, NUMAPages, ResourceProvider, Selection
from tests.support import make

CELL = NUMACell(
    id=0, memory_mb=1024, shared_cpus="0-1", dedicated_cpus="2-7", pages=[NUMAPages(size_kb=4, total=262144)]
)
PINNED = NUMARequest(cells=(NUMACellRequest(0, (0, 1), 64),), dedicated=frozenset({0, 1}))


def report(db: Database, conf: cfg.ConfigOpts, host: str = "h1", **values: Any) -> None:
    inventory = make.inventory(f"node-{host}", **values)
    db.write(hosts.record, conf, make.report(host, inventories=[inventory], reserved_memory_mb=24))


def providers(db: Database, **filters: list[str]) -> list[ResourceProvider]:
    return db.read(placement.providers, ListQuery(filters=filters))


def claim(uow: UnitOfWork, uuid: str, host: str = "h1", numa: NUMARequest | None = None) -> None:
    row = instances.lock(uow, uuid)
    assert row is not None
    assert claims.claim(uow, row, Selection(host=host, node=f"node-{host}"), numa)


def test_provider_inventories_are_what_claims_use(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf, capabilities={"traits": ["COMPUTE_NODE"]})
    db.write(claim, db.write(make.instance, memory_mb=100))
    (provider,) = providers(db)
    shown = {
        name: (item.total, item.reserved, item.allocation_ratio, item.capacity, item.used)
        for name, item in provider.inventories.items()
    }
    assert shown == {
        "VCPU": (4, 0, 4.0, 16, 1),
        "MEMORY_MB": (1024, 24, 1.0, 1000, 100),
        "DISK_GB": (50, 0, 1.0, 50, 1),
    }
    assert (provider.name, provider.up, provider.traits) == ("node-h1", True, ["COMPUTE_NODE"])
    assert provider.aggregates == []


def test_provider_shows_ratio_and_reservation_of_aggregates(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    aggregate = db.write(aggregates.create, "one")
    metadata: dict[str, str | None] = {"cpu_allocation_ratio": "1.5", "reserved_host_memory_mb": "124"}
    db.write(aggregates.set_metadata, conf, str(aggregate.id), metadata)
    db.write(aggregates.add_host, conf, str(aggregate.id), "h1")
    (provider,) = providers(db)
    assert provider.aggregates == [aggregate.uuid]
    cpus, memory = provider.inventories["VCPU"], provider.inventories["MEMORY_MB"]
    assert (cpus.allocation_ratio, cpus.capacity, memory.reserved, memory.capacity) == (1.5, 6, 124, 900)


def test_provider_with_dedicated_cpus_has_pcpus(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf, vcpus=2, numa=[CELL])
    uuid = db.write(make.instance, vcpus=2)
    db.write(claim, uuid, numa=PINNED)
    (provider,) = providers(db)
    dedicated = provider.inventories["PCPU"]
    assert (dedicated.total, dedicated.capacity, dedicated.used) == (6, 6, 2)
    assert provider.inventories["VCPU"].used == 0
    (allocation,) = db.read(placement.allocations, ListQuery(filters={"consumer": [uuid]}))
    assert allocation.resources == {"PCPU": 2, "MEMORY_MB": 64, "DISK_GB": 1}
    mixed = db.write(make.instance, vcpus=2)
    db.write(claim, mixed, numa=msgspec.structs.replace(PINNED, dedicated=frozenset({0})))
    (allocation,) = db.read(placement.allocations, ListQuery(filters={"consumer": [mixed]}))
    assert allocation.resources == {"VCPU": 1, "PCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}


def test_node_that_is_no_longer_reported_has_no_inventories(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    db.write(hosts.record, conf, make.report(inventories=[make.inventory("another")]))
    assert {item.name: len(item.inventories) for item in providers(db)} == {"node-h1": 0, "another": 3}


def test_disabled_host_has_the_trait_and_a_host_forced_down_is_not_up(db: Database, conf: cfg.ConfigOpts) -> None:
    report(db, conf)
    (service,) = db.read(services.list_)
    db.write(services.update, service.uuid, {"disabled": True})
    (provider,) = providers(db)
    assert (provider.up, provider.traits) == (True, ["COMPUTE_STATUS_DISABLED"])
    db.write(services.update, service.uuid, {"forced_down": True})
    assert [item.up for item in providers(db)] == [False]


def test_providers_are_filtered_and_come_in_pages(db: Database, conf: cfg.ConfigOpts) -> None:
    for host in ("h1", "h2", "h3"):
        report(db, conf, host)
    every = [item.uuid for item in providers(db)]
    assert every == sorted(every)
    page = db.read(placement.providers, ListQuery(marker=every[0], limit=1))
    assert [item.uuid for item in page] == [every[1]]
    (named,) = providers(db, name=["node-h2"])
    assert providers(db, uuid=[named.uuid]) == [named]
    assert providers(db, uuid=["nobody"]) == []
    with pytest.raises(exceptions.InvalidInput, match="colour"):
        providers(db, colour=["blue"])


def test_allocations_are_filtered_and_come_in_pages(db: Database, conf: cfg.ConfigOpts) -> None:
    for host in ("h1", "h2"):
        report(db, conf, host)
    one, two = db.write(make.instance), db.write(make.instance, project_id="p2", user_id="u2")
    db.write(claim, one)
    db.write(claim, two, "h2")

    def found(**filters: list[str]) -> list[str]:
        return [item.consumer for item in db.read(placement.allocations, ListQuery(filters=filters))]

    (node,) = providers(db, name=["node-h2"])
    assert found() == [one, two]
    assert found(provider=[node.uuid]) == found(project_id=["p2"]) == found(user_id=["u2"]) == [two]
    assert found(project_id=["p2"], user_id=["u1"]) == []
    (first,) = db.read(placement.allocations, ListQuery(limit=1))
    assert (first.consumer, first.consumer_generation) == (one, 1)
    rest = db.read(placement.allocations, ListQuery(marker=str(first.id)))
    assert [(item.consumer, item.provider) for item in rest] == [(two, node.uuid)]
