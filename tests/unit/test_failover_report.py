"""Report of losses of hosts with real guests."""

from __future__ import annotations

from pathlib import Path

from tests.faults.failover_report import Outcome, Report, read, table

WAYS = ("power", "cut")


def test_report_with_results_of_an_earlier_run_plans_only_what_is_missing(tmp_path: Path) -> None:
    kept = tmp_path / "results"
    report = Report(kept)
    assert report.missing(WAYS, 5) == ["power", "cut", "power", "cut", "power"]
    for how, failure in (("power", ""), ("cut", "AssertionError: it is not back"), ("power", "")):
        report.add(Outcome(how, guests=1, back=1, failure=failure))
    again = Report(kept)
    assert again.outcomes == report.outcomes == read(kept)
    assert again.missing(WAYS, 5) == ["cut", "cut", "power"]
    assert again.missing(WAYS, 2) == ["cut"]
    assert not again.is_good, "one run has ended early"


def test_table_has_median_and_worst_of_the_runs_whose_guests_came_back() -> None:
    outcomes = [Outcome("cut", 1, 1, running, running + 10) for running in (50.0, 52.0, 61.0)]
    outcomes += [Outcome("cut", guests=1, wrong=1), Outcome("power", failure="AssertionError: no cloud")]
    rows = table(outcomes).splitlines()[2:]
    assert rows == [
        "| cut | 4 | 4 | 3 | 52, 61 | 62, 71 | 0 | 1 |",
        "| power | 1 | 0 | 0 | - | - | 0 | 0 |",
        "",
        "1 of 5 runs ended early.",
    ]


def test_summary_counts_guests_and_wrong_counters() -> None:
    report = Report()
    report.add(Outcome("power", 2, 2, 58.4, 70.0))
    assert report.is_good
    report.add(Outcome("cut", 1, 1, 61.0, 70.0, twice=1, wrong=1))
    assert not report.is_good
    assert report.summary().splitlines() == [
        "3 of 3 guests came back with their disks, the last after 61 s",
        "1 ran twice, 1 counters are wrong, 0 runs ended early",
    ]
