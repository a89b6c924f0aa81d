"""The witness of a run notices each broken promise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_lite.db.core.engine import Database
from nova_lite.db.hosts import hosts
from tests.simulation import witness as witnesses
from tests.simulation.witness import Witness
from tests.support import make
from tests.support.migrated import migrate

UUID = "c0000000-0000-4000-8000-000000000001"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """Provide the database of a cloud with one host and no server."""
    conf = make.conf(f"sqlite:///{tmp_path}/db.sqlite", tmp_path)
    migrate(conf)
    made = Database(conf)
    made.write(hosts.register_host, conf, make.report())
    yield made
    made.close()


@pytest.fixture
def witness(database: Database, tmp_path: Path) -> Witness:
    return Witness(f"{tmp_path}/db.sqlite")


def judged(witness: Witness, **domains: list[str]) -> str:
    """Return the problems at the end of a run. ``domains``: hosts by server."""
    witness.judge(domains, 2, 0)
    return "\n".join(witness.problems)


def test_settled_cloud_without_a_mistake_has_no_problem(witness: Witness) -> None:
    assert judged(witness) == ""
    assert witness.open_work() == []


def test_domain_without_a_row_is_a_problem(witness: Witness) -> None:
    assert judged(witness, **{UUID: ["host1"]}) == f"{UUID} on ['host1'] has no row"


def test_server_with_an_open_task_is_not_settled(witness: Witness, database: Database) -> None:
    server = database.write(make.instance, task_state="deleting")
    assert witness.open_work() == [f"{server} deleting"]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE compute_nodes SET vcpus_used = 1", "h1 has 1 vcpus in use, and its claims are 0"),
        (
            "INSERT INTO quota_usages (project_id, resource, used) VALUES ('p', 'cores', 2)",
            "the quota counts 2 cores, and there are 0",
        ),
    ],
)
def test_sum_that_differs_from_its_rows_is_a_problem(witness: Witness, statement: str, problem: str) -> None:
    witness.database.execute(statement)
    assert judged(witness) == problem


def test_guest_that_runs_on_two_hosts_is_a_problem(witness: Witness) -> None:
    for host, power in (("a", 2), ("b", 1), ("b", 2)):
        assert not witness.problems
        witness._add(witnesses.traces._Note(UUID, "domain", host, (1, power), 0.0, 0.0))
    assert witness.problems == [f"{UUID} runs on a and b"]


def test_error_with_a_traceback_is_a_problem_unless_it_is_a_conflict(caplog: pytest.LogCaptureFixture) -> None:
    problems: list[str] = []
    with witnesses._handling(witnesses._Errors(problems)):
        for text in ("(1213, 'another transaction was faster')", "a mistake"):
            try:
                raise ValueError(text)
            except ValueError:
                logging.getLogger("nova_lite").exception("it failed")
    assert len(problems) == 1
    assert problems[0].startswith("an error was logged: it failed") and problems[0].endswith("a mistake")
