"""Prints what holds in the model, and the shortest counterexample without each protection.

Usage: ``python -m tests.model [--full]``. ``--full`` adds larger bounds, which take minutes.
"""

from __future__ import annotations

import sys

from tests.model.checker import explore
from tests.model.protections import FULL, HOLDS, PROTECTIONS


def main(arguments: list[str]) -> int:
    bad = 0
    for name, model in (HOLDS | (FULL if "--full" in arguments else {})).items():
        result = explore(model)
        bad += not result.holds
        print(f"{name}: {result}", flush=True)
    for protection in PROTECTIONS:
        result = protection.counterexample()
        bad += result.holds
        print(f"\nWithout {protection.rule!r} ({protection.upholds}): {result}", flush=True)
        if protection.twice:
            print(f"and {protection.counterexample(only_twice=True)}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
