"""Clouds from seeds: each settles without a fault of the product, and a seed gives the same run again, bit by bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.model.unguarded import GUARDS
from tests.simulation.undone import FOUND

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 13), reason="Python 3.13 makes threads in another way")

TOP = Path(__file__).resolve().parents[2]
IS_LONG = os.environ.get("NOVA_LITE_LONG") == "1"
#: Seed to replay. Its plan is shrunk if it fails.
SEED = os.environ.get("NOVA_LITE_SEED")
LAST = 10_000 if IS_LONG else 40
#: Seeds within which the long command finds each missing protection of `FOUND`.
WITHIN = 1000


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
    results = simulate("1", str(LAST), must_pass=False)
    failed = [f"seed {one['seed']}: {problem}" for one in results for problem in one["problems"]]
    assert not failed, "\n".join([*failed, "To replay: NOVA_LITE_SEED=N pytest tests/simulation/test_simulation.py"])
    assert len(results) == LAST
    assert sum(one["unjudged"] for one in results) <= LAST // 20


@pytest.mark.timeout(24 * 3600)
@pytest.mark.parametrize("rule", sorted(FOUND) if IS_LONG else sorted(FOUND, key=lambda rule: FOUND[rule])[:2])
def test_seeds_find_a_protection_that_is_missing(rule: str) -> None:
    last = WITHIN if IS_LONG else 4 * FOUND[rule]
    (found,) = simulate("1", str(last), "--without", rule)
    assert found["result"] is not None, f"no seed up to {last} finds that the code is without: {rule}"


def test_protections_of_the_table_are_guards() -> None:
    assert FOUND.keys() <= GUARDS.keys()
