"""The witness of a run notices each broken promise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from nova_lite.compute.fencing import FencingTokenStore, Record
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Instance
from nova_lite.db.hosts import hosts
from nova_lite.operations.states import PowerState
from nova_lite.virt.fake_hypervisor import Domain
from tests.simulation import primitives
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
    witness.judge({server: [(host, PowerState.RUNNING) for host in found] for server, found in domains.items()}, 0, 2)
    return "\n".join(witness.problems)


def test_settled_cloud_without_a_mistake_has_no_problem(witness: Witness) -> None:
    assert judged(witness) == ""
    assert witness.open_work() == []


def test_domain_without_a_row_is_a_problem(witness: Witness) -> None:
    assert judged(witness, **{UUID: ["host1"]}) == f"{UUID} on ['host1'] has no row"


@pytest.mark.parametrize("is_off", [False, True])
def test_server_that_stops_without_a_request_is_a_problem_only_while_its_guest_runs(
    witness: Witness, database: Database, is_off: bool
) -> None:
    server = database.write(make.instance, vm_state="active", task_state=None)
    witness.committed()
    witness._running[server].add("host1")
    if is_off:
        witness.shut_down(server)
    database.write(lambda uow: uow.change(sa.update(Instance).values(vm_state="stopped")))
    witness.committed()
    assert witness.problems == ([] if is_off else [f"{server} counts as stopped, and runs on host1"])


def test_server_with_an_open_task_is_not_settled(witness: Witness, database: Database) -> None:
    server = database.write(make.instance, task_state="deleting")
    assert witness.open_work() == [f"{server} deleting"]


def test_server_without_a_request_is_a_problem(witness: Witness, database: Database) -> None:
    server = database.write(make.instance, vm_state="error")
    assert "0 requests have made 1 servers" in judged(witness)
    assert witness.state_of(server) == "error"


def test_guest_that_is_not_as_its_row_says_differs(witness: Witness, database: Database) -> None:
    server = database.write(make.instance, vm_state="active", host="h1")
    assert witness.differences({server: [("h1", PowerState.RUNNING)]}) == []
    (off,) = witness.differences({server: [("h1", PowerState.SHUTDOWN)]})
    (gone,) = witness.differences({})
    assert off.endswith("its row says h1, active") and gone == f"{server} is [], its row says h1, active"


def test_address_of_a_deleted_server_is_a_problem(witness: Witness, database: Database) -> None:
    server = database.write(make.instance, vm_state="deleted", deleted=True)
    witness.database.execute("PRAGMA foreign_keys = OFF")
    columns = "id, network_id, instance_uuid, mac_address, position, created_at"
    witness.database.execute(f"INSERT INTO ports ({columns}) VALUES ('p1', 'n1', '{server}', 'm', 0, 0)")
    assert "port p1 is left of a deleted server" in judged(witness)


@pytest.mark.parametrize("minutes", [0, 1])
def test_create_that_is_refused_is_a_problem_if_a_host_had_room_for_long(
    witness: Witness, database: Database, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    server = database.write(make.instance, vm_state="error", fault={"message": "No valid host was found."})
    database.write(make.action, server)
    witness._watch_hosts()
    monkeypatch.setattr(type(primitives.WORLD), "clock", lambda self: 1000.0 + 60.0 * minutes)
    witness._judge_refusal(server)
    assert len(witness.problems) == minutes


def test_host_that_has_given_out_too_much_is_a_problem(witness: Witness) -> None:
    witness.database.execute("UPDATE compute_nodes SET vcpus_used = vcpus + 1")
    witness._watch_hosts()
    assert witness.problems == ["h1 has given out more CPUs than it has"]


@pytest.mark.parametrize("is_deaf", [False, True])
def test_hosts_that_are_all_down_are_a_problem_if_no_conductor_could_hear_them(
    database: Database, tmp_path: Path, is_deaf: bool
) -> None:
    witness = Witness(f"{tmp_path}/db.sqlite", lambda: is_deaf)
    witness.is_watched = True
    witness.database.execute("UPDATE services SET up = false")
    witness._watch_hosts()
    assert len(witness.problems) == is_deaf


def test_death_in_the_middle_of_a_write_is_noted_by_what_the_disk_has(witness: Witness) -> None:
    domain = Domain(uuid=UUID, generation=1, power_state=PowerState.RUNNING, hostname="one")
    witness.died("h1", [Record(uuid=UUID, revoked_generation=2)], [domain])
    witness.died("h1", [], [])
    values = [(note.stream, note.value) for note in witness._notes]
    assert values == [
        ("domain", (1, 1)),
        ("domain", (1, 2)),
        ("tokens", (2, 0)),
        ("domain", (0, 0)),
        ("tokens", (0, 0)),
    ]


@pytest.mark.parametrize("is_settled", [False, True])
def test_record_that_is_gone_is_lost_unless_its_host_has_removed_it(
    witness: Witness, tmp_path: Path, is_settled: bool
) -> None:
    with witness.recording():
        store = FencingTokenStore(str(tmp_path / "h1"))
        store.revoke(UUID, 1)
        if is_settled:
            assert store.prune([store.get(UUID)], 5) == 1
    witness.died("h1", [], [])
    tokens = [note.value for note in witness._notes if note.stream == "tokens"]
    assert tokens == ([(1, 0)] if is_settled else [(1, 0), (0, 0)])


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


def test_server_that_no_user_has_stopped_is_a_problem_where_hosts_start_guests_again(
    witness: Witness, database: Database
) -> None:
    server = database.write(make.instance, vm_state="stopped")
    (host,) = witness.database.execute("SELECT host FROM instances").fetchone()
    off = {server: [(host, PowerState.SHUTDOWN)]}
    assert witness.differences(off) == []
    assert witness.differences(off, resumes=True) == [f"{server} has not started again on {host}"]
    witness.stopped.add(server)
    assert witness.differences(off, resumes=True) == []


def test_host_whose_service_was_deleted_has_had_no_room(witness: Witness) -> None:
    witness._watch_hosts()
    assert witness._free_since.keys() == {"h1"}
    witness.database.execute("UPDATE services SET host = 'h2'")
    witness.database.execute("UPDATE compute_nodes SET host = 'h2'")
    witness._watch_hosts()
    assert witness._free_since.keys() == {"h2"}


def test_guest_that_runs_on_two_hosts_is_a_problem(witness: Witness) -> None:
    for host, power in (("a", 2), ("b", 1), ("b", 2)):
        assert not witness.problems
        witness._add(witnesses.traces.Note(UUID, "domain", host, (1, power), 0.0, 0.0))
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
