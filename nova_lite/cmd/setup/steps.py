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
        except (exceptions.NovaLiteException, OSError) as error:
            print("failed.", flush=True)
            raise exceptions.ConfigurationError(
                reason=f"{step.title}: {_text(error)} Correct this, and run the same command again."
            ) from error
        print(f"{result} ({time.monotonic() - began:.1f} s)", flush=True)


def _text(error: Exception) -> str:
    """Return what went wrong as a sentence, such as a full disk with the file that did not fit."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror or error}."
    return error.message if isinstance(error, exceptions.NovaLiteException) else str(error)
