"""SQLite in a simulation: transactions lose as those of MariaDB and PostgreSQL do; disks may be slow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

from nova_lite.db.core import engine
from tests.simulation import primitives
from tests.simulation.scheduler import Process, Scheduler


class Choices:
    """Random numbers that a test has chosen."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = iter(numbers)

    def random(self) -> float:
        return next(self._numbers)


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    made = Scheduler(1)
    monkeypatch.setattr(primitives.WORLD, "sim", made)
    return made


@pytest.fixture
def connection(sim: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Iterator[primitives.Connection]:
    """Provide a connection with a table whose row is in an open transaction."""
    made: primitives.Connection = sqlite3.connect(":memory:", factory=primitives.Connection)  # type: ignore[assignment]
    made.execute("CREATE TABLE t (n)")
    made.execute("INSERT INTO t VALUES (1)")
    monkeypatch.setattr(primitives.WORLD, "conflicts", 0.1)
    yield made
    made.close()


def rows(connection: primitives.Connection, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(primitives.WORLD, "conflicts", 0.0)
    connection.rollback()
    (number,) = connection.execute("SELECT count(*) FROM t").fetchone()
    return int(number)


@pytest.mark.parametrize(("second", "code"), [(0.1, 1205), (0.3, "55P03"), (0.5, "40001"), (0.7, "40P01"), (0.9, 1213)])
def test_statement_that_loses_has_a_code_that_a_transaction_is_run_again_for(
    connection: primitives.Connection, sim: Scheduler, second: float, code: int | str
) -> None:
    sim.choices = Choices(0.0, second)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.cursor()
    assert caught.value.args[0] == code
    assert code in engine._RETRY_CODES


def test_commit_that_cannot_be_serialized_is_not_done(
    connection: primitives.Connection, sim: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.choices = Choices(0.4, 0.1)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError, match="40001"):
        connection.commit()
    assert rows(connection, monkeypatch) == 0


def test_commit_whose_connection_breaks_is_done(
    connection: primitives.Connection, sim: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.choices = Choices(0.4, 0.9)  # type: ignore[assignment]
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.commit()
    assert rows(connection, monkeypatch) == 1


def test_write_to_a_slow_disk_takes_virtual_seconds(sim: Scheduler) -> None:
    slow, quick, took = Process("slow"), Process("quick"), {}
    slow.slow_disk = 1.0

    def write(process: Process) -> None:
        primitives._written(lambda source, target: None)("a", "/state/instances/b")
        took[process.name] = sim.now
        if len(took) == 2:
            sim.finish()

    for process in (slow, quick):
        sim.spawn(process, lambda process=process: write(process), "main")  # type: ignore[misc]
    sim.run(10.0)
    assert took["quick"] < 0.01 < took["slow"]


def test_strftime_after_the_clock_has_moved_returns_the_new_time(sim: Scheduler) -> None:
    form = "%Y-%m-%d %H:%M:%f"
    before = primitives.strftime(form, "now")
    assert primitives.strftime(form, "now") == before
    sim.now += 1.5
    after = primitives.strftime(form, "now", "-1 seconds")
    assert (before[-6:], after[-6:]) == ("40.000", "40.500")
