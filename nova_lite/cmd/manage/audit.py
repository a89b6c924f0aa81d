"""Command ``audit``: check the invariants between rows, and repair them."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.upkeep import invariants


def register(commands: Commands) -> None:
    parser = commands.command(
        "audit",
        "Check the invariants: counters equal allocations, quotas equal rows, every task has an open action, "
        "deleted servers have left nothing. Each domain of a host is of a server, whose disks are there. Exit with 1 "
        "if a problem was found and not repaired.",
        run,
    )
    parser.add_argument("--fix", action="store_true", help="repair the problems; the daemons may keep running")


def run(app: App, args: argparse.Namespace) -> int:
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
