"""Test whether a series of samples is flat: a robust slope.

The slope is the median of the slopes between all pairs of samples, ``(y_j - y_i) / (t_j - t_i)``. Up to 29 % of the
samples may be outliers. Sources: H. Theil, 1950; P. K. Sen, "Estimates of the regression coefficient based on
Kendall's tau", JASA 63, 1968, 1379-1389.

The 95 % interval is Sen's. Its bounds are the ordered slopes at ``(N ± C) / 2``, for N slopes of n samples, with
``C = 1.96 * sqrt(n (n - 1) (2 n + 5) / 18)``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence

#: Share of the time at the beginning that is ignored, while caches and pools fill.
WARM_UP = 0.2

#: Allowed growth over the judged time, as a share of the median.
GROWTH = 0.05


@dataclasses.dataclass(frozen=True)
class Trend:
    """``slope``: per second; ``low``, ``high``: its interval; ``growth``: of the median, over the time judged.
    ``flat``: it grows by no more than `GROWTH`, or may as well not grow at all."""

    median: float
    slope: float
    low: float
    high: float
    growth: float
    flat: bool


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Return the trend of samples in the order of time. Raises `ValueError` for fewer than four judged samples."""
    since = times[0] + WARM_UP * (times[-1] - times[0]) if times else 0.0
    samples = [(time, value) for time, value in zip(times, values, strict=True) if time >= since]
    count = len(samples)
    if count < 4:
        raise ValueError(f"{count} samples are too few for a trend")
    slopes = sorted((y - x) / (u - t) for (t, x), (u, y) in itertools.combinations(samples, 2) if u > t)
    spread = 1.96 * math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    low = slopes[max(0, math.floor((len(slopes) - spread) / 2))]
    high = slopes[min(len(slopes) - 1, math.ceil((len(slopes) + spread) / 2))]
    median = statistics.median(value for _, value in samples)
    slope = statistics.median(slopes)
    growth = slope * (samples[-1][0] - samples[0][0]) / median if median else 0.0
    return Trend(median, slope, low, high, growth, growth <= GROWTH or low <= 0.0)
