"""A sample of the fault matrix (`devstack/faults.sh` runs all of it), and proof that its judges can fail."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.faults import judges, matrix, scenarios, services
from tests.faults.arena import Arena, Site
from tests.faults.outages import TARGET
from tests.model.daemons import MOST_UNJUDGED
from tests.support.waiting import wait_for

#: Sampling interval of the cases with a fault, besides one of each kind and one for each daemon.
EVERY = 400
#: The sample's parts, which may run beside each other, each in a cloud of its own.
PARTS = 6


def daemons(cases: list[matrix.Case]) -> set[str]:
    """Return the daemons that the cases' faults hit."""
    return {fault.daemon for case in cases for fault in case.faults}


@functools.cache
def sample() -> list[matrix.Case]:
    """Return every short scenario without faults, every `EVERY`-th case with a fault, and the first of each kind of
    fault and daemon among the rest. Cases with the same cloud are neighbours.
    """
    everything = [case for case in matrix.singles() if not case.scenario.long]
    faulty = [case for case in everything if case.faults]
    cases = [case for case in everything if not case.faults] + faulty[::EVERY]
    for case in faulty:
        if case.fault not in {chosen.fault for chosen in cases} or daemons([case]) - daemons(cases):
            cases.append(case)
    return sorted(cases, key=lambda case: repr(case.site))


def part_of_sample(number: int) -> list[matrix.Case]:
    cases = sample()
    return cases[len(cases) * number // PARTS : len(cases) * (number + 1) // PARTS]


def test_every_scenario_and_kind_of_fault_is_in_the_sample() -> None:
    cases = [case for number in range(PARTS) for case in part_of_sample(number)]
    assert cases == sample()
    short = [scenario for scenario in matrix.SCENARIOS if not scenario.long]
    assert {case.scenario.name for case in cases if not case.faults} == {scenario.name for scenario in short}
    assert {case.fault for case in cases} == {case.fault for case in matrix.singles()} - {TARGET}
    assert daemons(cases) == {"api", "conductor*", "scheduler*", "compute-*"}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(PARTS))
def test_a_sample_of_the_matrix(tmp_path: Path, number: int) -> None:
    cases = part_of_sample(number)
    table = matrix.Table(len(cases))
    matrix.run_cases(cases, 1, tmp_path, table.add)
    table.print()
    assert not table.failures
    assert len(table.results) == len(cases)
    judged = sum(result.paths for result in table.results)
    assert table.unjudged + judged > 0 and table.unjudged <= MOST_UNJUDGED * (table.unjudged + judged)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with matrix.arena(tmp_path_factory.mktemp("arena")) as ready:
        yield ready


MOVED = (
    "UPDATE allocations SET compute_node_id = (SELECT MIN(id) + MAX(id) FROM compute_nodes) - compute_node_id",
    "UPDATE compute_nodes SET (vcpus_used, memory_mb_used, disk_gb_used) = (SELECT COALESCE(SUM(a.vcpus), 0), "
    "COALESCE(SUM(a.memory_mb), 0), COALESCE(SUM(a.disk_gb), 0) FROM allocations a "
    "WHERE a.compute_node_id = compute_nodes.id)",
)

#: Manipulations of the state, their undo, and the expected finding of the matrix.
TAMPERED = {
    "task": (("UPDATE instances SET task_state = 'pausing'",), ("UPDATE instances SET task_state = NULL",), "audit: "),
    "power": (
        ("UPDATE instances SET power_state = 4 WHERE NOT deleted",),
        ("UPDATE instances SET power_state = 1 WHERE NOT deleted",),
        "is active, its power state is 4 in the API and 1 at the hypervisor",
    ),
    "counter": (
        ("UPDATE compute_nodes SET vcpus_used = vcpus_used + 1",),
        ("UPDATE compute_nodes SET vcpus_used = vcpus_used - 1",),
        "audit: ",
    ),
    "claim": (MOVED, MOVED, "claims are "),
    "capacity": (
        ("UPDATE compute_nodes SET vcpus = -1",),
        ("UPDATE compute_nodes SET vcpus = 64",),
        "more is used than there is",
    ),
}


def change(arena: Arena, statements: tuple[str, ...]) -> None:
    with arena.db.engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def tampered(statements: tuple[str, ...]) -> Callable[[Arena], None]:
    def run(arena: Arena) -> None:
        scenarios.one_active(arena)
        change(arena, statements)

    return run


@pytest.mark.parametrize("what", TAMPERED)
def test_the_judges_see_what_is_wrong(arena: Arena, what: str) -> None:
    break_it, mend_it, said = TAMPERED[what]
    scenario = scenarios.Scenario(what, scenarios.nothing, tampered(break_it), {})
    result = matrix.run_case(matrix.Case(scenario), arena)
    change(arena, mend_it)
    arena.cloud.delete_all()
    wait_for("nothing of it is left", lambda: not arena.cloud.domains())
    assert said in result.wrong


def test_leftovers_in_services_are_reported_by_the_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leftovers are a port at Neutron and a reservation at Cinder; missing parts of a server count as well."""
    with matrix.arena(tmp_path, Site(services=(services.NEUTRON, services.CINDER))) as arena:
        services.with_volume(arena)
        monkeypatch.setattr(services, "SETTLE_SECONDS", 1.0)
        neutron, cinder = arena.services.neutron, arena.services.cinder
        assert neutron is not None
        assert cinder is not None
        (network,) = neutron.rows["networks"].values()
        neutron.port(network, device_id="nobody")
        with pytest.raises(AssertionError, match="Neutron has each server's port"):
            arena.services.check(arena)
        del neutron.rows["ports"][next(port["id"] for port in neutron.ports if port["device_id"] == "nobody")]
        arena.services.check(arena)
        (attachment,) = cinder.attachments.values()
        for wrong in ({}, {"a": attachment, "b": attachment}, {"a": {**attachment, "host": "elsewhere"}}):
            with monkeypatch.context() as there:
                there.setattr(cinder, "attachments", wrong)
                with pytest.raises(AssertionError, match="Cinder has each server's volumes"):
                    arena.services.check(arena)
        arena.services.check(arena)
        with pytest.raises(AssertionError, match="Neutron has no port"):
            arena.services.check_nothing_left()


def test_address_of_a_load_balancer_on_two_hosts_is_seen_until_its_lease_is_over(tmp_path: Path) -> None:
    for name, seconds in (("compute-1", 60), ("compute-2", 60), ("compute-3", -1)):
        folder = tmp_path / name / "instances" / f"fake-{name}"
        folder.mkdir(parents=True)
        balancer = {"id": "one", "until": time.monotonic() + seconds}
        (folder / "load-balancers.json").write_text(json.dumps([balancer]))
    with pytest.raises(AssertionError, match="on several hosts"):
        judges.one_holder(tmp_path)
    (tmp_path / "compute-2" / "instances" / "fake-compute-2" / "load-balancers.json").unlink()
    judges.one_holder(tmp_path)


def test_a_point_that_is_not_passed_fails_its_scenario(arena: Arena) -> None:
    points = {"conductor*": ["commit/nobody_has_it/before"]}
    scenario = scenarios.Scenario("misnamed", scenarios.nothing, scenarios.one_active, points)
    result = matrix.run_case(matrix.Case(scenario), arena)
    arena.cloud.delete_all()
    assert "does not pass: ['conductor* at commit/nobody_has_it/before']" in result.wrong


@pytest.mark.parametrize("silent", ["power_off", "reboot"])
def test_a_host_that_only_says_so_is_seen(tmp_path: Path, silent: str) -> None:
    """Its driver does nothing, and the rows say that it was done."""
    name = {"power_off": "stop", "reboot": "reboot"}[silent]
    (scenario,) = [scenario for scenario in matrix.SCENARIOS if scenario.name == name]
    with matrix.arena(tmp_path, launcher=("tests.faults.without", silent)) as arena:
        result = matrix.run_case(matrix.Case(scenario), arena)
    assert {"stop": "is stopped, its power state is", "reboot": "has not booted"}[name] in result.wrong
