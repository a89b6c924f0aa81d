"""Runs clouds from seeds: ``python -m tests.simulation SEED [LAST]``. docs/contributing/replay.md has the way of use."""

from nova_lite.base import concurrency
from tests.simulation import primitives

primitives.install()
concurrency.setup()

# isort: split
import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tests.simulation import plan as plans  # noqa: E402
from tests.simulation import runs  # noqa: E402


def main() -> int:
    """Print a line of JSON for each seed, and what went wrong. Return 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run clouds from seeds.")
    parser.add_argument("first", type=int, help="the seed")
    parser.add_argument("last", type=int, nargs="?", help="the last of several seeds")
    parser.add_argument("--hosts", type=int, default=3, help="number of hosts")
    parser.add_argument("--log", type=Path, help="write each step of the run to this file")
    parser.add_argument("--shrink", action="store_true", help="look for a small part of a failing plan")
    parser.add_argument("--plan", action="store_true", help="print the plan")
    args = parser.parse_args()
    failed = False
    with runs.template(args.hosts) as made:
        for seed in range(args.first, (args.first if args.last is None else args.last) + 1):
            plan = plans.make(seed, args.hosts)
            if args.plan:
                print(plan, flush=True)
            result = runs.run(made, plan, args.log)
            print(json.dumps(result._asdict()), flush=True)
            failed = failed or bool(result.problems)
            if result.problems and args.shrink:
                print(runs.shrink(made, plan), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
