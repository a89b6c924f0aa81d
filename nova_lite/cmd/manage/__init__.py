"""``nova-lite-manage``: tasks of operators besides the API, directly on the database.

Exit status 0: done. 1: failed, or a problem was found; one line says why. 2: wrong usage.
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import argparse  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from types import ModuleType  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as nova_conf  # noqa: E402
from nova_lite.base import version  # noqa: E402
from nova_lite.base.timing import TIMING, ManageTiming  # noqa: E402
from nova_lite.cmd.manage import api, broker, certificates, configuration, keys, policy  # noqa: E402
from nova_lite.cmd.manage.app import HAS_SQL, NO_SQL, App, Commands, Parser, explain  # noqa: E402

if HAS_SQL:
    from nova_lite.cmd.manage import (
        aggregates,
        audit,
        audit_log,
        backup,
        backup_policies,
        controllers,
        database,
        flavors,
        floating_pools,
        front_ends,
        hosts,
        identity,
        images,
        networks,
        quotas,
        scheduler,
        server_groups,
        top,
        trace,
        upgrades,
        volume_keys,
    )

PROG = "nova-lite-manage"

#: Configuration files that are read without --config-file, as far as the user may read them. The database's URL is the
#: conductor's secret, so it has its own file. The tool's own broker account has one as well, which only root may read.
CONFIG_FILES = (
    "/etc/nova-lite/nova-lite.conf",
    "/etc/nova-lite/conductor.conf",
    "/etc/nova-lite/manage.conf",
)

if HAS_SQL:
    NOUNS: tuple[ModuleType, ...] = (
        *(
            database,
            flavors,
            images,
            networks,
            floating_pools,
            hosts,
            controllers,
            front_ends,
            aggregates,
            server_groups,
            scheduler,
            backup_policies,
        ),
        *(quotas, identity, keys, certificates, broker, policy, api, audit, audit_log, backup, configuration),
        *(trace, top, volume_keys),
        upgrades,
    )
else:
    NOUNS = (keys, certificates, broker, policy, api, configuration)


def main(argv: list[str] | None = None, timing: ManageTiming = TIMING.manage) -> int:
    args = parser().parse_args(argv)
    logging.disable(logging.WARNING)
    try:
        return _run(args, timing)
    finally:
        logging.disable(logging.NOTSET)


def _run(args: argparse.Namespace, timing: ManageTiming) -> int:
    app = App(_conf(args), args.format, timing)
    try:
        return _run_recorded(app, args)
    except BrokenPipeError:
        return 1
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        print(f"{PROG}: {' '.join(message.split())}", file=sys.stderr)
        return 1
    finally:
        app.close()


def _conf(args: argparse.Namespace) -> cfg.ConfigOpts:
    """Load the configuration, unless the command reads the files of several daemons itself."""
    if getattr(args, "loads_files", True) or args.config_file:
        return nova_conf.load(_config_arguments(args.config_file), PROG)
    return cfg.CONF


def _run_recorded(app: App, args: argparse.Namespace) -> int:
    """Run the command. If it wrote to the database, record it in the audit log."""
    error: Exception | None = None
    try:
        status: int | None = args.run(app, args)
        return status or 0
    except Exception as found:
        error = found
        raise
    finally:
        if app.has_written and app.conf.audit.enabled:
            audit_log.record(app, args.command, error)


def parser() -> argparse.ArgumentParser:
    """Build the whole command line; ``run`` in the result is the function to call."""
    common = _common_options(argparse.SUPPRESS, argparse.SUPPRESS)
    top = Parser(
        prog=PROG,
        description="Manage a nova_lite cloud, straight on its database.",
        epilog=f"'{PROG} NOUN --help' shows what can be done with each noun.",
        parents=[_common_options([], "table")],
    )
    top.hint_on_nouns = "" if HAS_SQL else NO_SQL
    top.add_argument("--version", action="version", version=f"{PROG} {version.VERSION}")
    nouns = top.add_subparsers(metavar="NOUN", required=True)
    for noun in NOUNS:
        noun.register(Commands(top, nouns, common))
    return top


def _common_options(config_file: object, output: object) -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--config-file",
        action="append",
        metavar="FILE",
        default=config_file,
        help=f"may be repeated, later files override earlier ones; default: {', '.join(CONFIG_FILES)}, if they exist",
    )
    common.add_argument("--format", choices=["table", "json"], default=output, help="format of the output")
    return common


def _config_arguments(files: list[str]) -> list[str]:
    files = files or [path for path in CONFIG_FILES if os.access(path, os.R_OK)]
    return [argument for path in files for argument in ("--config-file", path)]
