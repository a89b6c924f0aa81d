"""``audit``: do the rows still agree with each other?"""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db import audit


def register(commands: Commands) -> None:
    parser = commands.command(
        "audit",
        "Check that used counters equal allocations, quotas equal rows, every task has its open action, and nothing is "
        "left of deleted servers. Exit with 1 if something is wrong and was not mended.",
        run,
    )
    parser.add_argument("--fix", action="store_true", help="mend what is wrong; the daemons may run meanwhile")


def run(app: App, args: argparse.Namespace) -> int:
    problems = app.db.write(audit.fix) if args.fix else app.db.read(audit.find)
    left = [problem for problem in app.db.read(audit.find) if problem.repair is None] if args.fix else []
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
