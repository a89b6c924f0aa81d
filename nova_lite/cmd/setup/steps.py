"""Steps of a set-up, in order, with progress on standard output."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nova_lite.base import exceptions


class Step(NamedTuple):
    """Step of a set-up. ``run`` does what is missing, and returns what it found or did in a few words."""

    title: str
    run: Callable[[], str]


def run(steps: Sequence[Step]) -> None:
    """Run the steps. Raises `ConfigurationError` that names the step which failed."""
    for number, step in enumerate(steps, 1):
        began = time.monotonic()
        print(f"[{number:2}/{len(steps)}] {step.title} ...", end=" ", flush=True)
        try:
            result = step.run()
        except exceptions.NovaLiteException as error:
            print("failed.", flush=True)
            raise exceptions.ConfigurationError(
                reason=f"{step.title}: {error.message} Correct this, and run the same command again."
            ) from error
        print(f"{result} ({time.monotonic() - began:.1f} s)", flush=True)
