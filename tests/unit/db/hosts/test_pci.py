"""PCI devices of hosts: claimed once, released, and missed when they vanish."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from oslo_config import cfg

from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import compute_nodes, hosts, numa_claims, pci_claims
from nova_lite.db.servers import claims, instances
from nova_lite.db.upkeep import invariants
from nova_lite.hardware.numa import NUMACellRequest, NUMARequest
from nova_lite.objects import NUMACell, PCIDevice, PCIKind, PCIRequest, Selection
from nova_lite.objects.numa import NUMACellUsage
from tests.support import make
from tests.support.races import overlap

HOST = Selection(host="h1", node="n1")
DEVICES = [
    PCIDevice(address=f"0000:0{number}:00.0", vendor_id="10de", product_id="1eb8", numa_cell=number % 2)
    for number in range(1, 5)
]
ADDRESSES = [device.address for device in DEVICES]
CELLS = [NUMACell(id=number, memory_mb=512, dedicated_cpus=cpus) for number, cpus in enumerate(("0-1", "2-3"))]
PINNED = NUMARequest(cells=(NUMACellRequest(0, (0,), 64),), dedicated=frozenset({0}))


def want(count: int = 1, alias: str = "gpu", policy: str = "legacy") -> PCIRequest:
    kinds = [PCIKind(vendor_id="10de", product_id="1eb8")]
    return PCIRequest(alias=alias, count=count, kinds=kinds, numa_policy=policy)


def report(db: Database, conf: cfg.ConfigOpts, devices: list[PCIDevice] = DEVICES, **values: Any) -> None:
    db.write(hosts.record, conf, make.report(inventories=[make.inventory(pci=devices, numa=CELLS, **values)]))


@pytest.fixture
def host(db: Database, conf: cfg.ConfigOpts) -> Selection:
    report(db, conf, vcpus=64)
    return HOST


def claim(
    uow: UnitOfWork, uuid: str, host: Selection, *wanted: PCIRequest, numa: NUMARequest | None = None
) -> list[str] | None:
    """Return the addresses that it got; None without a place."""
    row = instances.lock(uow, uuid)
    assert row is not None
    if not claims.claim(uow, row, host, numa, wanted or (want(),)):
        return None
    uow.session.flush()
    return [device.address for device in instances.to_object(uow, row).pci or ()]


def used(db: Database) -> list[str]:
    (state,) = db.read(hosts.states)
    return state.pci_used


def rows(db: Database) -> list[tuple[str, str, str, str]]:
    columns = (models.PCIClaim.address, models.PCIClaim.instance_uuid, models.PCIClaim.alias, models.PCIClaim.state)
    return db.read(lambda uow: sorted(tuple(row) for row in uow.session.execute(sa.select(*columns))))


def problems(db: Database) -> list[invariants.Problem]:
    """But for quota, which nothing here counts."""
    return [problem for problem in db.read(invariants.find) if problem.check != "quota"]


def test_pci_inventory_reaches_the_scheduler(db: Database, host: Selection) -> None:
    (state,) = db.read(hosts.states)
    assert (state.pci, state.pci_used) == (DEVICES, [])
    (node,) = db.read(compute_nodes.list_)
    assert node.inventory.pci == DEVICES


def test_devices_are_claimed_and_given_back(db: Database, host: Selection) -> None:
    first, second, late = (db.write(make.instance) for _ in range(3))
    assert db.write(claim, first, host) == ADDRESSES[:1]
    assert db.write(claim, second, host, want(2), want(1, "other")) == ADDRESSES[1:]
    assert db.write(claim, late, host) is None
    assert used(db) == ADDRESSES
    owners = [(first, "gpu"), (second, "gpu"), (second, "gpu"), (second, "other")]
    assert rows(db) == [(ADDRESSES[n], uuid, alias, "claimed") for n, (uuid, alias) in enumerate(owners)]
    assert problems(db) == []
    (before,) = db.read(hosts.states)
    db.write(claims.release, second)
    (after,) = db.read(hosts.states)
    assert (after.pci_used, after.generation > before.generation) == (ADDRESSES[:1], True)
    assert db.write(claim, late, host) == ADDRESSES[1:2]
    for uuid in (first, late):
        db.write(claims.release, uuid)
    assert (used(db), rows(db)) == ([], [])


def test_places_for_vgpus_are_claimed_and_given_back(db: Database, conf: cfg.ConfigOpts) -> None:
    """A place's address is as long as the column allows."""
    places = [f"ffff:ff:1f.7#25{number}" for number in range(2)]
    report(
        db,
        conf,
        [
            PCIDevice(address=place, vendor_id="", product_id="", parent="ffff:ff:1f.7", resource_class="VGPU")
            for place in places
        ],
    )
    kinds = [PCIKind(vendor_id="", product_id="", resource_class="VGPU")]
    one = PCIRequest(alias="resources:VGPU", count=1, kinds=kinds)
    servers = [db.write(make.instance) for _ in range(3)]
    assert [db.write(claim, server, HOST, one) for server in servers] == [places[:1], places[1:], None]
    assert problems(db) == []
    db.write(claims.release, servers[0])
    assert db.write(claim, servers[2], HOST, one) == places[:1]
    assert rows(db) == [
        (place, server, "resources:VGPU", "claimed") for place, server in zip(places, servers[:0:-1], strict=True)
    ]


def test_claim_that_lacks_another_resource_takes_no_device(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance, memory_mb=4096)
    assert db.write(claim, uuid, host) is None
    assert (used(db), rows(db)) == ([], [])


def test_device_and_cpus_are_of_one_cell(db: Database, host: Selection) -> None:
    got = [db.write(claim, db.write(make.instance), host, want(1, "gpu", "required"), numa=PINNED) for _ in range(4)]
    assert sorted(address for addresses in got for address in addresses or ()) == ADDRESSES
    (state,) = db.read(hosts.states)
    for uuid in {uuid for _, uuid, *_ in rows(db)}:
        instance = db.read(instances.get, make.ADMIN, uuid)
        assert instance.numa is not None and instance.pci is not None
        assert instance.numa.cells[0].cell == instance.pci[0].numa_cell
    assert state.numa_used == {
        "0": NUMACellUsage(memory_mb=128, cpus=[0, 1]),
        "1": NUMACellUsage(memory_mb=128, cpus=[2, 3]),
    }
    assert problems(db) == []


def test_two_ends_are_given_back_one_by_one(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance)
    db.write(claim, uuid, host)

    def other_end(uow: UnitOfWork) -> claims.Place | None:
        row = instances.lock(uow, uuid)
        assert row is not None
        return claims.take(uow, row, host, dict.fromkeys(claims.RESOURCES, 1), None, [want()])

    place = db.write(other_end)
    assert place is not None and place.pci is not None
    assert [device["address"] for device in place.described()["pci"]] == ADDRESSES[1:2]
    assert problems(db) == []
    db.write(claims.release, uuid, claims.HeldHost("h1", 1))
    assert used(db) == ADDRESSES[1:2]


def test_place_without_devices_is_described_as_older_conductors_know_it() -> None:
    assert "pci" not in claims.Place("h1", "n1", 1, "nova").described()


# --- no device is given twice


def test_claim_that_waited_gets_another_device(db: Database, host: Selection) -> None:
    first, second = (db.write(make.instance) for _ in range(2))
    got = overlap(db, lambda uow: claim(uow, first, host), lambda uow: claim(uow, second, host))
    assert got == ADDRESSES[1:2]


def test_claim_that_waited_for_the_last_device_gets_none(db: Database, host: Selection) -> None:
    first, second, late = (db.write(make.instance) for _ in range(3))
    db.write(claim, first, host, want(3))
    got = overlap(db, lambda uow: claim(uow, second, host), lambda uow: claim(uow, late, host))
    assert got is None


def test_many_claims_at_a_time_get_each_device_once(db: Database, host: Selection) -> None:
    uuids = [db.write(make.instance) for _ in range(12)]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda uuid: db.write(claim, uuid, host), uuids))
    assert sorted(address for addresses in got for address in addresses or ()) == ADDRESSES
    assert problems(db) == []
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda uuid: db.write(claims.release, uuid), uuids))
    assert (used(db), rows(db)) == ([], [])


def test_claim_that_overlooks_another_fails_as_a_whole(
    db: Database, host: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of the table holds, even if the choice of devices were wrong."""
    first, second = (db.write(make.instance) for _ in range(2))
    db.write(claim, first, host)
    monkeypatch.setattr(pci_claims, "used", lambda uow, node_id: [])
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        db.write(claim, second, host)
    monkeypatch.undo()
    assert rows(db) == [(ADDRESSES[0], first, "gpu", "claimed")]
    assert problems(db) == []


STEPS = st.lists(
    st.tuples(st.sampled_from(["claim", "release", "vanish", "return"]), st.integers(0, 5), st.integers(1, 3)),
    max_size=25,
)


@given(STEPS)
@settings(max_examples=25, deadline=None)
def test_claims_agree_with_a_model_in_any_order(steps: list[tuple[str, int, int]]) -> None:
    """A model of sets: who has which device, and which devices are there."""
    conf = make.conf("sqlite://")
    db = Database(conf)
    with db.engine.begin() as connection:
        models.Base.metadata.create_all(connection)
    report(db, conf, vcpus=64)
    uuids = [db.write(make.instance) for _ in range(6)]
    held: dict[str, set[str]] = {}
    there = list(DEVICES)
    for kind, number, count in steps:
        uuid = uuids[number]
        if kind == "claim" and uuid not in held:
            free = [item.address for item in there if item.address not in set().union(*held.values())]
            got = db.write(claim, uuid, HOST, want(count))
            assert got == (None if len(free) < count else free[:count])
            if got:
                held[uuid] = set(got)
        elif kind == "release":
            db.write(claims.release, uuid)
            held.pop(uuid, None)
        elif kind in ("vanish", "return"):
            device = DEVICES[number % len(DEVICES)]
            there = [
                item for item in DEVICES if (item in there or item == device) and (kind, item) != ("vanish", device)
            ]
            report(db, conf, there, vcpus=64)
        lost = {address for addresses in held.values() for address in addresses} - {item.address for item in there}
        claimed = {(address, uuid) for uuid, addresses in held.items() for address in addresses}
        assert {(address, uuid) for address, uuid, *_ in rows(db)} == claimed
        assert {address for address, *_, state in rows(db) if state != "claimed"} == lost
        assert used(db) == sorted(address for address, _ in claimed)


# --- devices that vanish


def test_device_that_vanishes_leaves_the_pool(db: Database, host: Selection, conf: cfg.ConfigOpts) -> None:
    report(db, conf, DEVICES[1:], vcpus=64)
    first, late = (db.write(make.instance) for _ in range(2))
    assert db.write(claim, first, host, want(3)) == ADDRESSES[1:]
    assert db.write(claim, late, host) is None
    assert db.read(pci_claims.lost) == []


def test_device_that_vanishes_from_a_guest_is_reported_once(
    db: Database, host: Selection, conf: cfg.ConfigOpts
) -> None:
    uuid = db.write(make.instance)
    db.write(claim, uuid, host, want(2))
    for _ in range(2):
        report(db, conf, DEVICES[1:], vcpus=64)
    assert db.read(pci_claims.lost) == [uuid]
    assert db.write(pci_claims.take_lost, uuid) == ["gpu"]
    assert (db.read(pci_claims.lost), db.write(pci_claims.take_lost, uuid)) == ([], [])
    report(db, conf, DEVICES[2:], vcpus=64)
    assert db.read(pci_claims.lost) == [uuid], "the other one has vanished, too"
    report(db, conf, vcpus=64)
    assert (db.read(pci_claims.lost), {state for *_, state in rows(db)}) == ([], {"claimed"})
    assert used(db) == ADDRESSES[:2]


# --- the audit


def test_audit_finds_and_repairs_claims_that_differ_from_allocations(db: Database, host: Selection) -> None:
    uuid = db.write(make.instance)
    db.write(claim, uuid, host)

    def break_it(uow: UnitOfWork) -> None:
        uow.change(sa.delete(models.PCIClaim))
        uow.change(sa.update(models.ComputeNode).values(pci_used=[ADDRESSES[3]]))

    db.write(break_it)
    (problem,) = problems(db)
    assert (problem.check, problem.subject, problem.found) == ("pci", "host h1", f"no claims; in use: {ADDRESSES[3]}")
    assert problem.repair is not None
    db.write(problem.repair)
    assert problems(db) == []
    assert (used(db), [row[:2] for row in rows(db)]) == (ADDRESSES[:1], [(ADDRESSES[0], uuid)])


def test_audit_names_servers_that_have_one_device(db: Database, host: Selection) -> None:
    uuids = [db.write(make.instance) for _ in range(2)]
    for uuid in uuids:
        db.write(claim, uuid, host)
    same = [{"address": ADDRESSES[0], "vendor_id": "10de", "product_id": "1eb8"}]
    db.write(lambda uow: uow.change(sa.update(models.Allocation).values(pci=same)))
    (problem,) = [problem for problem in problems(db) if problem.check == "pci"]
    assert problem.repair is None
    assert f"PCI device {ADDRESSES[0]} of host h1" in problem.found


def test_claim_without_devices_leaves_them_alone(db: Database, host: Selection) -> None:
    """The claim reads no devices either: their addresses would be in the columns."""
    (state,) = db.read(hosts.states)
    pinned, plain = (db.write(numa_claims.choose, state.id, numa, ()) for numa in (PINNED, None))
    assert pinned is not None and plain is not None
    assert (set(pinned.columns), plain.columns) == ({"numa_used"}, {})
