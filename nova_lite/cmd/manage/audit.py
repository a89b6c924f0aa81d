"""Command ``audit``: check the invariants between rows, and repair them; check the recorded changes of servers."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands, utc_time
from nova_lite.db.upkeep import invariants, server_traces
from nova_lite.db.upkeep.server_traces import Verdict


def register(commands: Commands) -> None:
    parser = commands.command(
        "audit",
        "Check the invariants: counters equal allocations, quotas equal rows, every task has an open action, "
        "deleted servers have left nothing. Each domain of a host is of a server, whose disks are there. Exit with 1 "
        "if a problem was found and not repaired.",
        run,
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--fix", action="store_true", help="repair the problems; the daemons may keep running")
    way.add_argument(
        "--trace",
        action="store_true",
        help="instead, check that operations lead from each recorded state of a server to the next; name the first "
        "step that none of them makes, and exit with 1 if there is any",
    )
    parser.add_argument(
        "--since",
        type=utc_time,
        metavar="TIME",
        help="with --trace: only changes later than this, in UTC unless it has an offset",
    )
    parser.add_argument("--server", metavar="SERVER", help="with --trace: the uuid of the only server to check")


def run(app: App, args: argparse.Namespace) -> int:
    if args.trace:
        return _trace(app, args)
    if args.since or args.server:
        raise exceptions.InvalidInput(reason="--since and --server belong to --trace.")
    problems, left = invariants.fix(app.db) if args.fix else (invariants.find_apart(app.db), [])
    if problems or app.output == "json":
        app.show(
            ("Check", "Subject", "Found", "Expected"),
            ((problem.check, problem.subject, problem.found, problem.expected) for problem in problems),
        )
    if app.output != "json":
        print(f"{len(problems)} problem(s){' mended' if args.fix else ''}." if problems else "Nothing is wrong.")
        for problem in left:
            print(f"To be mended by hand: {problem.subject} has {problem.found}; expected {problem.expected}.")
    return 1 if left or (problems and not args.fix) else 0


def _trace(app: App, args: argparse.Namespace) -> int:
    """Show the servers whose trace is no path, and count the others."""
    verdicts = server_traces.judge(app.db, args.since, args.server)
    if args.server:
        verdicts = iter(found := list(verdicts))
        if not found:
            raise exceptions.InstanceNotFound(instance_id=args.server)
    counts = dict.fromkeys(("whole", "part", "wrong"), 0)

    def wrong() -> Iterator[Verdict]:
        for verdict in verdicts:
            counts["wrong" if verdict.wrong else "part" if verdict.since else "whole"] += 1
            if verdict.wrong:
                yield verdict

    app.show(
        ("Server", "Time", "Action", "First step that no operation makes"),
        ((item.server, item.at or "now", item.action, item.wrong) for item in wrong()),
    )
    if app.output != "json":
        print(
            f"{counts['whole']} server(s): a path. {counts['part']}: a path as far as it is recorded. "
            f"{counts['wrong']}: no path."
        )
    return 1 if counts["wrong"] else 0
