"""Clouds from seeds: each settles without a fault of the product, and a seed gives the same run again, bit by bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.model.unguarded import GUARDS
from tests.simulation import runs, undone

TOP = Path(__file__).resolve().parents[2]
IS_LONG = os.environ.get("NOVA_LITE_LONG") == "1"
#: Seed to replay. Its plan is shrunk if it fails.
SEED = os.environ.get("NOVA_LITE_SEED")
LAST = 10_000 if IS_LONG else 120
#: Seeds of one process.
CHUNK = 500
#: The page's seeds, and seeds within which the long command finds each.
FOUND = undone.found()
WITHIN = 4000


def simulate(*arguments: str, hash_seed: str = "0", must_pass: bool = True) -> list[dict[str, Any]]:
    """Return the results of simulations in a process of their own, as the primitives of this one are real."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.simulation", *arguments],
        cwd=TOP,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"{done.stdout[-20_000:]}{done.stderr[-5_000:]}"
    assert done.returncode == 0 or not must_pass, said
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert results, said
    return results


def simulate_all(last: int) -> list[dict[str, Any]]:
    """Return the results of all seeds up to the last one, with as many processes as there are CPUs."""
    firsts = range(1, last + 1, CHUNK)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = pool.map(lambda first: simulate(str(first), str(min(first + CHUNK - 1, last)), must_pass=False), firsts)
        return [result for part in parts for result in part]


def test_seed_gives_the_same_run_in_two_processes() -> None:
    first, second = (simulate("1", "4", hash_seed=number) for number in ("1", "2"))
    assert [result["trace"] for result in first] == [result["trace"] for result in second]
    assert len({result["trace"] for result in first}) == len(first)


@pytest.mark.timeout(24 * 3600)
def test_cloud_of_each_seed_settles_and_keeps_its_promises() -> None:
    """A failure shows the seed's plan, and the smallest part of it that fails. NOVA_LITE_SEED=N replays one seed."""
    if SEED is not None:
        simulate(SEED, "--plan", "--shrink")
        return
    results = simulate_all(LAST)
    failed = [f"seed {one['seed']}: {problem}" for one in results for problem in one["problems"]]
    assert not failed, "\n".join(
        [*failed, "To replay: python -m tests.simulation N --plan --shrink --log FILE (docs/contributing/replay.md)"]
    )
    assert len(results) == LAST
    assert sum(one["unjudged"] for one in results) <= LAST // 20


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("name", sorted(FOUND) if IS_LONG else sorted(FOUND, key=lambda name: FOUND[name])[:2])
def test_seeds_find_what_is_taken_out_of_the_code(name: str) -> None:
    last = WITHIN if IS_LONG else max(40, 4 * FOUND[name])
    (result,) = simulate("1", str(last), "--without", name)
    assert result["result"] is not None, f"no seed up to {last} finds that the code is without: {name}"


def test_tables_of_the_page_have_a_seed_for_each_protection_of_a_trace() -> None:
    assert GUARDS.keys() <= FOUND.keys() <= undone.UNDONE.keys()


def test_seeds_that_are_written_into_the_page_are_read_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("| Protection | Seed | Fails |\n|---|---|---|\n| cleanup | not yet | |\n| one driver | 3 | x |\n")
    monkeypatch.setattr(undone, "PAGE", page)
    assert undone.found() == {"one driver": 3}
    problem = "the trace of c0000000-0000-4000-8000-000000000001 is no path of the model:\n  no step makes it"
    undone.write({"cleanup": runs.Result(7, "", [problem], 0, 0.0, 0, 0.0), "one driver": None})
    assert undone.found() == {"cleanup": 7}
    assert page.read_text().endswith("| cleanup | 7 | no step makes it |\n| one driver | not yet |  |\n")
