"""``nova-lite``: the cloud in one process, and what a user's file describes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nova_lite.base import version
from nova_lite.cmd import apply


def parser() -> argparse.ArgumentParser:
    """Return a parser of all commands. The parser of ``dev`` is in its own modules, which take a second to load."""
    parser = argparse.ArgumentParser(prog="nova-lite", description="Run a cloud for tests, or describe one in a file.")
    parser.add_argument("--version", action="version", version=version.VERSION)
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    commands.add_parser("dev", add_help=False, help="Run a throw-away cloud in this process, with fake guests.")
    apply.add_arguments(commands.add_parser("apply", help=apply.DESCRIPTION, description=apply.DESCRIPTION))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["dev"]:
        from nova_lite.cmd import dev

        return dev.main(arguments)
    return apply.run(parser().parse_args(arguments))
