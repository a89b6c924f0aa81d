"""Runs clouds from seeds: ``python -m tests.simulation SEED [LAST]`` (docs/contributing/replay.md)."""

from nova_lite.base import concurrency
from tests.simulation import primitives

primitives.install()
concurrency.setup()

# isort: split
import argparse  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tests.simulation import plan as plans  # noqa: E402
from tests.simulation import runs, undone  # noqa: E402
from tests.simulation.cloud import Template  # noqa: E402


def main() -> int:
    """Print a line of JSON for each seed, and what went wrong. Return 1 if anything did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Run clouds from seeds.")
    parser.add_argument("first", type=int, help="the seed")
    parser.add_argument("last", type=int, nargs="?", help="the last of several seeds")
    parser.add_argument("--hosts", type=int, default=3, help="number of hosts")
    parser.add_argument("--log", type=Path, help="write each step of the run to this file")
    parser.add_argument("--stop-at", type=int, default=0, metavar="LINE", help="open the debugger at a line of the log")
    parser.add_argument("--hash", action="store_true", help="print the seed and the hash of its trace alone")
    parser.add_argument("--plan", action="store_true", help="print the plan")
    parser.add_argument("--shrink", action="store_true", help="run the smallest part of a failing plan that fails")
    parser.add_argument("--without", choices=[*undone.UNDONE, "each"], help="take this out, and look for a failure")
    parser.add_argument("--write", action="store_true", help="write the seeds that fail into the tables of the page")
    args = parser.parse_args()
    last = args.first if args.last is None else args.last
    with runs.template(args.hosts) as made:
        if args.without is None:
            results = [_run(made, seed, args) for seed in range(args.first, last + 1)]
            failed = [result for result in results if result.problems]
            if not args.hash:
                print(_figures(results, len(failed)), flush=True)
            return int(bool(failed))
        names = list(undone.UNDONE) if args.without == "each" else [args.without]
        for name in names:
            result = undone.first_seed(made, name, args.first, last)
            print(json.dumps({"without": name, "result": result and result._asdict()}), flush=True)
            if args.write:
                undone.write({name: result})
            if result is not None and args.shrink:
                print(f"{runs.shrink(made, plans.make(result.seed, args.hosts), undone.UNDONE[name])}\n", flush=True)
    return 0


def _figures(results: list[runs.Result], failed: int) -> str:
    virtual, cpu = (sum(getattr(result, name) for result in results) / 3600 for name in ("seconds", "cpu"))
    return f"{len(results)} seeds, of which {failed} failed: {virtual:.2f} virtual hours in {cpu:.2f} hours of CPU"


def _run(made: Template, seed: int, args: argparse.Namespace) -> runs.Result:
    plan = plans.make(seed, args.hosts)
    if args.plan:
        print(plan, flush=True)
    if args.shrink and runs.run(made, plan).problems:
        plan = runs.shrink(made, plan)
        print(f"{plan}\n", flush=True)
    result = runs.run(made, plan, args.log, stop_at=args.stop_at)
    print(f"{seed} {result.trace}" if args.hash else json.dumps(result._asdict()), flush=True)
    return result


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # an exit would wait for threads of the first run, which stand still
