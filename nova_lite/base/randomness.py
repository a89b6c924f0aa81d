"""Random numbers, which repeat if their source has a seed. Other modules have them from here (`tools/seams.py`).

For choices and for spreading work over time. Secrets come from `secrets`.
"""

from __future__ import annotations

import random

#: Source of random numbers. Without a seed, each one differs.
Source = random.Random


def uniform(low: float, high: float) -> float:
    """Return a random number between two others."""
    return random.uniform(low, high)
