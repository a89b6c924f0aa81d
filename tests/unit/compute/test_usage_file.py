"""Ring buffers of use in a file: spans, columns, restarts, and damage."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from nova_lite.compute import usage_file
from nova_lite.compute.usage_file import HOST, UsageFile
from nova_lite.objects import UsageSample

#: First step of a week's step, of a day's step and of an hour's step.
WEEKS_STEP = 15_000_000 // 120 * 120
SERVERS = [str(uuid.UUID(int=number)) for number in range(1, 2000)]
WEEK = 7 * 24 * 120


def used(cpu: float | None) -> UsageSample:
    return UsageSample(cpu=cpu, memory_mb=64.0)


def cpu(file: UsageFile, owner: str, span: str, number: int) -> list[float | None]:
    return [None if sample is None else sample.cpu for sample in file.read(owner, span, number).samples]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "usage" / "host-a")


def test_samples_of_an_hour_are_returned_in_their_order(path: str) -> None:
    file = UsageFile(path)
    for number in range(125):
        if number != 123:
            file.write(WEEKS_STEP + number, {HOST: used(number)})
    found = file.read(HOST, "hour", WEEKS_STEP + 124)
    assert (found.start, found.step) == ((WEEKS_STEP + 5) * 30, 30)
    assert found.samples == [None if number == 123 else used(number) for number in range(5, 125)]


def test_steps_of_day_and_week_are_means_of_what_was_measured(path: str) -> None:
    file = UsageFile(path)
    for number in range(40):
        if number % 20 < 10:
            file.write(WEEKS_STEP + number, {HOST: used(number % 20), SERVERS[0]: used(None if number < 25 else 8.0)})
    assert cpu(file, HOST, "day", WEEKS_STEP + 29)[-3:] == [None, 4.5, 4.5]
    assert cpu(file, HOST, "week", WEEKS_STEP + 29)[-2:] == [None, 4.5]
    assert cpu(file, SERVERS[0], "day", WEEKS_STEP + 29)[-2:] == [None, 8.0], "unknown values do not count"
    assert file.read(SERVERS[0], "day", WEEKS_STEP + 29).samples[-2] == used(None), "memory alone was measured"


def test_history_outlives_the_daemon(path: str) -> None:
    UsageFile(path).write(WEEKS_STEP, {HOST: used(1.0), SERVERS[0]: used(2.0)})
    again = UsageFile(path)
    again.write(WEEKS_STEP + 1, {SERVERS[0]: used(3.0)})
    assert cpu(again, SERVERS[0], "hour", WEEKS_STEP + 1)[-2:] == [2.0, 3.0]
    assert cpu(again, SERVERS[0], "day", WEEKS_STEP + 1)[-1] == 2.5
    assert cpu(again, HOST, "hour", WEEKS_STEP + 1)[-2:] == [1.0, None]


def test_step_of_the_last_turn_of_the_ring_is_none_of_this_turn(path: str) -> None:
    file = UsageFile(path)
    file.write(WEEKS_STEP, {HOST: used(1.0)})
    assert cpu(file, HOST, "hour", WEEKS_STEP + 120) == [None] * 120


def test_damaged_records_are_gaps_and_a_lost_file_begins_anew(path: str) -> None:
    file = UsageFile(path)
    for number in range(3):
        file.write(WEEKS_STEP + number, {HOST: used(1.0), SERVERS[0]: used(2.0)})
    with open(path, "r+b") as raw:
        raw.seek(usage_file._place("hour", WEEKS_STEP + 1) + usage_file.RECORD + 8)
        raw.write(b"\xff")
    assert cpu(file, SERVERS[0], "hour", WEEKS_STEP + 2)[-3:] == [2.0, None, 2.0]
    assert cpu(file, HOST, "hour", WEEKS_STEP + 2)[-3:] == [1.0, 1.0, 1.0]
    os.truncate(path, 100)
    assert cpu(UsageFile(path), HOST, "hour", WEEKS_STEP + 2) == [None] * 120


def test_server_never_sees_the_history_of_another_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_file, "COLUMNS", 2)
    file = UsageFile(path)
    file.write(WEEKS_STEP, {HOST: used(1.0), SERVERS[0]: used(2.0)})
    file.write(WEEKS_STEP + 1, {HOST: used(1.0), SERVERS[1]: used(3.0)})
    assert cpu(file, SERVERS[1], "hour", WEEKS_STEP + 1)[-2:] == [None, 3.0]
    assert cpu(file, SERVERS[1], "week", WEEKS_STEP + 1)[-1] == 3.0
    assert cpu(file, SERVERS[0], "hour", WEEKS_STEP + 1) == [None] * 120


def test_file_has_a_bound_and_keeps_the_servers_that_were_measured_last(path: str) -> None:
    file = UsageFile(path)
    first, second = SERVERS[: usage_file.COLUMNS - 1], SERVERS[500 : 500 + usage_file.COLUMNS - 1]
    file.write(WEEKS_STEP, dict.fromkeys([HOST, *first], used(1.0)))
    file.write(WEEKS_STEP + 1, dict.fromkeys([HOST, *second], used(2.0)))
    file.write(WEEKS_STEP + 2, dict.fromkeys([HOST, *SERVERS], used(3.0)))
    assert all(cpu(file, owner, "hour", WEEKS_STEP + 2)[-1] == 3.0 for owner in (HOST, second[0], second[-1]))
    assert cpu(file, first[0], "hour", WEEKS_STEP + 2)[-1] is None, "there are more servers than columns"
    assert os.path.getsize(path) <= (1 + 120 + 144 + 168) * 1024 * 32
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_full_table_gives_up_the_server_that_was_measured_longest_ago(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_file, "COLUMNS", 3)
    file = UsageFile(path)
    for number, owner in enumerate(SERVERS[:3]):
        file.write(WEEKS_STEP + number, {HOST: used(1.0), owner: used(2.0)})
    kept = [any(cpu(file, owner, "hour", WEEKS_STEP + 2)) for owner in SERVERS[:3]]
    assert kept == [False, True, True]


def test_column_is_used_again_a_week_after_its_last_sample(path: str) -> None:
    file = UsageFile(path)
    file.write(WEEKS_STEP, {HOST: used(1.0), SERVERS[0]: used(1.0)})
    file.write(WEEKS_STEP + WEEK - 1, {HOST: used(1.0), SERVERS[1]: used(1.0)})
    assert len(file._owners) == 3
    file.write(WEEKS_STEP + WEEK, {HOST: used(1.0), SERVERS[2]: used(4.0)})
    assert len(file._owners) == 3
    assert cpu(file, SERVERS[2], "hour", WEEKS_STEP + WEEK)[-1] == 4.0
