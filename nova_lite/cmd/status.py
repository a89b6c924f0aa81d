"""``nova-lite-status upgrade check``: whether this version can be upgraded to, or gone back to.

Exit status 0: it can. 1: there are warnings. 2: there are failures. 255: the check itself failed.
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import argparse  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import textwrap  # noqa: E402

import prettytable  # noqa: E402

from nova_lite import conf as nova_conf  # noqa: E402
from nova_lite.base import exceptions, version  # noqa: E402
from nova_lite.cmd.manage import CONFIG_FILES, app, unreadable_files, upgrade_checks  # noqa: E402
from nova_lite.cmd.manage.upgrade_checks import Code, Result  # noqa: E402

PROG = "nova-lite-status"

#: Exit status of a check that failed itself, as in Nova.
BROKEN = 255

_WIDTH = 76


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    logging.disable(logging.WARNING)
    try:
        return _check(args)
    except SystemExit as error:  # a mistake in a configuration file
        print(error.code, file=sys.stderr)
        return BROKEN
    except Exception as error:
        message = app.explain(error)
        if message is None:
            raise
        print(f"{PROG}: {' '.join(message.split())}", file=sys.stderr)
        return BROKEN
    finally:
        logging.disable(logging.NOTSET)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog=PROG, description="Check a nova_lite cloud.")
    top.add_argument("--version", action="version", version=f"{PROG} {version.VERSION}")
    nouns = top.add_subparsers(metavar="NOUN", required=True)
    text = "Check whether this version can be upgraded to, or gone back to. Run it with the version to go to."
    upgrade = nouns.add_parser("upgrade", help="check an upgrade").add_subparsers(metavar="VERB", required=True)
    check = upgrade.add_parser("check", help=text, description=text)
    check.add_argument("--json", action="store_true", help="print JSON instead of a table")
    check.add_argument(
        "--config-file",
        action="append",
        metavar="FILE",
        default=[],
        help=f"may be repeated; default: {', '.join(CONFIG_FILES)}, if they exist",
    )
    check.add_argument(
        "--directory",
        default="/etc/nova-lite",
        help="directory with the configuration files of this machine's daemons; default: %(default)s",
    )
    return top


def _check(args: argparse.Namespace) -> int:
    if not args.config_file and (unreadable := unreadable_files()):
        raise exceptions.ConfigurationError(reason=f"this user cannot read {', '.join(unreadable)}: run it as root.")
    files = args.config_file or [path for path in CONFIG_FILES if os.access(path, os.R_OK)]
    conf = nova_conf.load([word for path in files for word in ("--config-file", path)], PROG)
    context = app.App(conf, "table")
    try:
        results = upgrade_checks.run(context, args.directory)
    finally:
        context.close()
    print(_as_json(results) if args.json else _as_table(results))
    return max(result.code for _, result in results)


def _as_table(results: list[tuple[str, Result]]) -> str:
    """Return Nova's table: one column, and three lines for each check."""
    table = prettytable.PrettyTable(["Upgrade Check Results"], align="l", hrules=prettytable.HRuleStyle.ALL)
    for name, result in results:
        details = textwrap.fill(f"Details: {result.details or None}", _WIDTH, subsequent_indent="  ")
        table.add_row([f"Check: {name}\nResult: {_word(result.code)}\n{details}"])
    return str(table)


def _as_json(results: list[tuple[str, Result]]) -> str:
    checks = [
        {"check": name, "result": int(result.code), "details": result.details or None} for name, result in results
    ]
    return json.dumps({"name": "Upgrade Check Results", "checks": checks}, indent=2)


def _word(code: Code) -> str:
    return code.name.capitalize()


if __name__ == "__main__":
    sys.exit(main())
