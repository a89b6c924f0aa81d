"""Command ``python -m tests.faults.history MINUTES --seed N``: make a history and judge it. ``--check FILE`` judges
one again.

The last line is ``N violations``. The exit status reports whether there were any, or nothing to judge. For each
violation it prints the server's own history, in order (`--stories` of them).
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import matrix, without
from tests.faults.history import checker, events, run

STORIES = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=float, nargs="?", default=10.0, help="how long clients and nemesis are at it")
    parser.add_argument("--seed", type=int, help="of what is done; chosen and printed if not given")
    parser.add_argument("--file", type=Path, help="where the history goes (FILE.gz: compressed); made below /tmp else")
    parser.add_argument("--check", type=Path, help="instead: a history to judge again")
    parser.add_argument("--server", help="with --check: tell the story of this one")
    parser.add_argument("--without", default="", choices=sorted(without.RULES), help="a protection to switch off")
    parser.add_argument("--clients", type=int, default=run.Plan.clients)
    parser.add_argument("--stories", type=int, default=STORIES, help="servers whose whole history is told")
    options = parser.parse_args()
    if options.check:
        return judge(options.check, options.stories, options.server)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    file = options.file or Path(tempfile.mkdtemp(prefix="nova-lite-history-")) / f"history-{seed}.jsonl.gz"
    plan = run.Plan(options.minutes * 60, seed, clients=options.clients, without=options.without)
    print(f"seed {seed}, {options.minutes:g} minutes, history in {file}", flush=True)
    with tempfile.TemporaryDirectory(prefix="nova-lite-history-cloud-") as directory:
        path = Path(directory)
        try:
            run.make(plan, path, file)
        except BaseException:
            print(f"it did not come to its end; logs are in {matrix.keep_logs(path, file.parent)}", flush=True)
            raise
        status = judge(file, options.stories)
        if status:
            print(f"logs are in {matrix.keep_logs(path, file.parent)}")
    return status


def judge(file: Path, stories: int, server: str | None = None) -> int:
    began = time.monotonic()
    history = checker.History(events.read(file))
    found = checker.judged(history)
    print(json.dumps(checker.figures(history), indent=1))
    for violation in found:
        print(violation)
    concerned = list(dict.fromkeys(item.server for item in found if item.server is not None))
    for item in [server] if server else concerned[:stories]:
        print(f"\n--- server {item}")
        for line in checker.story(history, item):
            print(line)
    if not history.proves():
        print("No server became active while anything was broken: this history proves nothing.")
    print(f"judged in {time.monotonic() - began:.1f} s: {file}")
    print(f"{len(found)} violations")
    return 1 if found or not history.proves() else 0


if __name__ == "__main__":
    sys.exit(main())
