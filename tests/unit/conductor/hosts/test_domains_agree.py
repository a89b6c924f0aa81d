"""The short check of idle hosts. If it agrees, the full comparison would find nothing either."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.objects import DomainReport, Verdict, digest_of_domains
from nova_lite.operations import states
from nova_lite.operations.states import PowerState
from tests.support.server_moves import Live
from tests.support.statements import counting

OTHER = "22222222-2222-4222-8222-222222222222"

#: States of an instance, and domains that its host may have.
ROWS = itertools.product(
    (*states.HAS_DOMAIN, states.ERROR, states.RESIZED, states.SHELVED, states.BUILDING),
    (None, states.POWERING_OFF),
    (PowerState.RUNNING, PowerState.SHUTDOWN, PowerState.PAUSED),
    (("host1", 1), ("host1", 2), ("host2", 1)),
    (False, True),
)
DOMAINS = [[], *([("uuid", generation, power)] for generation in (1, 2) for power in (1, 3, 4))]


class World(Live):
    def put(self, **values: Any) -> None:
        def write(uow: UnitOfWork) -> None:
            uow.session.execute(sa.update(models.Instance).values(values))

        self.db.write(write)

    def agrees(self, domains: list[tuple[str, int, int]], host: str = "host1") -> bool:
        return self.db.read(instances.agree, {host: digest_of_domains(domains)})[host]

    def is_settled(self, domains: list[tuple[str, int, int]]) -> bool:
        """Run the full comparison, and check that it has nothing to destroy, to change or to look for."""
        reports = [DomainReport(uuid=uuid, generation=number, power_state=power) for uuid, number, power in domains]
        before = self.db.read(lambda uow: uow.session.execute(sa.select(models.Instance.__table__)).all())
        verdicts = self.reports.reconcile_domains(self.context(), "host1", reports, [])
        after = self.db.read(lambda uow: uow.session.execute(sa.select(models.Instance.__table__)).all())
        expected = {item.uuid for item in self.reports.domains_expected(self.context(), "host1")}
        kept = {verdict.uuid for verdict in verdicts if verdict.verdict == Verdict.KEEP}
        return before == after and kept == {uuid for uuid, _, _ in domains} and expected <= kept


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return a world with one server that runs at host1."""
    return World(tmp_path)


def test_agreement_implies_an_empty_comparison(world: World) -> None:
    agreed = set()
    for vm_state, task_state, power_state, (host, generation), deleted in ROWS:
        for shape in DOMAINS:
            values = {"vm_state": vm_state, "task_state": task_state, "power_state": int(power_state), "host": host}
            world.put(**values, generation=generation, last_generation=generation, deleted=deleted)
            domains = [(world.uuid, number, int(power)) for _, number, power in shape]
            if world.agrees(domains):
                assert world.is_settled(domains), (values, generation, deleted, domains)
                agreed.add((vm_state, len(domains)))
    assert {(item, 1) for item in states.HAS_DOMAIN} == {(item, count) for item, count in agreed if count}
    assert (states.ACTIVE, 0) in agreed, "what is elsewhere"


def test_agreement_of_several_domains_is_independent_of_order(world: World) -> None:
    world.create(name="second")
    uuids = world.db.read(lambda uow: uow.session.scalars(sa.select(models.Instance.uuid)).all())
    world.put(host="host1", vm_state=states.ACTIVE, task_state=None, power_state=1, generation=1)
    domains = [(uuid, 1, 1) for uuid in uuids]
    assert len(domains) == 2
    assert world.agrees(domains)
    assert world.agrees(domains[::-1])
    assert not world.agrees(domains[:1])
    assert not world.agrees([*domains, (OTHER, 1, 1)])
    assert not world.agrees(domains, "host2")
    assert world.agrees([], "host2")


def test_unknown_domain_is_recorded_and_prevents_agreement_until_it_is_gone(world: World) -> None:
    mine = DomainReport(uuid=world.uuid, generation=1, power_state=1)
    foreign = DomainReport(uuid=OTHER, generation=1, power_state=1)

    def compare(*domains: DomainReport) -> tuple[list[str], int]:
        """Compare, and return the recorded uuids and how many statements wrote."""
        with counting() as counted:
            world.reports.reconcile_domains(world.context(), "host1", list(domains), [])
        writes = [item for item in counted.statements if item.lower().startswith(("insert", "update", "delete"))]
        rows = world.db.read(lambda uow: uow.session.scalars(sa.select(models.UnknownDomains)).all())
        return [uuid for row in rows for uuid in row.uuids], len(writes)

    assert compare(mine) == ([], 0)
    assert world.agrees([(world.uuid, 1, 1)])
    assert compare(mine, foreign) == ([OTHER], 2)
    assert compare(mine, foreign) == ([OTHER], 0)
    assert not world.agrees([(world.uuid, 1, 1)]), "the host has to compare once more"
    assert world.agrees([], "host2")
    assert compare(mine) == ([], 1)
    assert world.agrees([(world.uuid, 1, 1)])


def test_missing_disks_are_recorded_and_prevent_agreement_until_they_are_back(world: World) -> None:
    def compare(**values: Any) -> list[str]:
        report = DomainReport(uuid=world.uuid, generation=1, power_state=1, **values)
        world.reports.reconcile_domains(world.context(), "host1", [report], [])
        rows = world.db.read(lambda uow: uow.session.scalars(sa.select(models.UnknownDomains)).all())
        return [uuid for row in rows for uuid in row.without_disks or ()]

    assert compare(lacks_disks=True) == [world.uuid]
    assert not world.agrees([(world.uuid, 1, 1)])
    assert compare() == []
    assert world.agrees([(world.uuid, 1, 1)])
    world.put(host="host2")
    assert compare(lacks_disks=True) == [], "they are not those of this host"


def test_agreement_reads_by_one_statement(world: World) -> None:
    with counting() as counted:
        assert world.agrees([(world.uuid, 1, 1)])
    assert len(counted.statements) == 1, counted.statements
