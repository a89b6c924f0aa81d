"""The trend by which benchmarks/soak.py calls a series flat."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "flatness.py"
TIMES = [float(10 * number) for number in range(100)]


@pytest.fixture(scope="module")
def flatness() -> ModuleType:
    import sys

    spec = importlib.util.spec_from_file_location("flatness", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flatness"] = module
    spec.loader.exec_module(module)
    return module


def test_a_line_has_its_slope(flatness: ModuleType) -> None:
    found = flatness.trend(TIMES, [100 + 0.5 * time for time in TIMES])
    assert found.slope == pytest.approx(0.5) and found.low == found.high == pytest.approx(0.5)
    assert not found.flat


@pytest.mark.parametrize("seed", range(5))
def test_noise_is_flat_and_a_leak_in_it_is_not(flatness: ModuleType, seed: int) -> None:
    own = random.Random(seed)
    noise = [own.gauss(0, 3) for _ in TIMES]
    assert flatness.trend(TIMES, [100 + item for item in noise]).flat
    assert not flatness.trend(TIMES, [100 + item + time / 50 for item, time in zip(noise, TIMES, strict=True)]).flat


def test_outliers_and_the_warm_up_do_not_count(flatness: ModuleType) -> None:
    values = [100.0] * 100
    values[:20] = [float(number) for number in range(20)]
    values[95:] = [1000.0] * 5
    assert flatness.trend(TIMES, values).slope == 0.0


def test_too_few_samples_are_refused(flatness: ModuleType) -> None:
    with pytest.raises(ValueError, match="too few"):
        flatness.trend([0.0, 1.0], [1.0, 1.0])
