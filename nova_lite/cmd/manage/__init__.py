"""``nova-lite-manage``: tasks of operators besides the API, directly on the database.

Exit status 0: done. 1: failed, or a problem was found; one line says why. 2: wrong usage.

Commands, and what they share:

- `app`, `accounts`, `programs`: parts of every command
- `packet_trace`: ``network trace``: what hosts do to a packet
- `pages`: generators of reference pages
- `config_checks`, `upgrade_checks`: checks of configurations and upgrades
- `aggregates`: command ``aggregate``: groups of hosts with common metadata
- `api`: command ``api``: documents about the compute API
- `audit`: command ``audit``: check the invariants between rows, and repair them
- `audit_log`: command ``audit-log``: changes of users and operators.
- `backup`: command ``backup``: write the database
- `backup_policies`: command ``backup-policy``: policies by which servers are backed up
- `broker`: command ``broker``: permissions that a daemon's RabbitMQ account needs
- `capacity`: ``host capacity``: whether the protected servers of lost hosts would fit elsewhere
- `certificates`: command ``certificates``: certificates with which libvirt hosts and console proxies recognise each
  other
- `configuration`: command ``config``: check the configuration of this machine's daemons
- `controllers`: command ``controller``: further controllers of the cloud
- `cpu_baseline`: ``host cpu-baseline``: the largest processor that all hosts of an aggregate have
- `database`: command ``db``: schema, purge, and version
- `flavors`: command ``flavor``: sizes of servers
- `fetching`: ``image fetch``: well-known cloud images from their distributors
- `floating_pools`: command ``floating-pool``: pools of floating addresses for the built-in networks
- `front_ends`: command ``frontend``: machines with the APIs, or the console proxies, alone
- `hosts`: commands ``service`` and ``host``: daemons and hypervisors
- `identity`: commands ``user`` and ``project``: accounts of a cloud without Keystone
- `images`: command ``image``: images of the built-in backend, rows and files
- `importing`: ``server import``: guests of Proxmox
- `joining`: commands ``host token`` and ``host remove``: hosts that join with a token
- `keys`: command ``keys``: keys that sign messages, and the list of trusted ones
- `maintenance`: ``host maintenance``: empties a host, and brings back afterwards what has left it
- `moves`: carries out plans of moves through the same operations that users of the API have
- `networks`: command ``network``: networks of the built-in backend
- `past`: ``server show`` and ``server replay``: servers as they were, and the decisions that placed them
- `policy`: command ``policy``: list and test rules, from the defaults and the operator's file
- `quotas`: command ``quota``: limits of a project, and of single users in it
- `replication`: command ``replication``: servers with a replica at a second site
- `scheduler`: ``scheduler``: explains why a server is on its host or on none, and whether a new one would fit
- `server_groups`: command ``server-group``: groups with affinity or anti-affinity policies
- `servers`: command ``server``: servers as they were, those from elsewhere, and those whose guest is newer than their
  row after a restore
- `shares`: command ``share``: directories of hosts that servers of a project may mount
- `top`: command ``top``: a table of the cloud's work that is refreshed
- `trace`: command ``trace``: the way of one request through the machines of the cloud
- `upgrades`: command ``upgrade``: the upgrade of a cloud, host by host
- `volume_keys`: command ``volume-key``: master keys of encrypted volumes
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.THREADING)

# isort: split
import argparse  # noqa: E402
import importlib  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Sequence  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as nova_conf  # noqa: E402
from nova_lite.base import exceptions, version  # noqa: E402
from nova_lite.base.timing import TIMING, ManageTiming  # noqa: E402
from nova_lite.cmd.manage.app import HAS_SQL, NO_SQL, App, Commands, Parser, explain  # noqa: E402

PROG = "nova-lite-manage"

#: Configuration files that are read without --config-file, as far as the user may read them. The database's URL is the
#: conductor's secret, so it has its own file. The tool's own broker account has one as well, which only root may read.
CONFIG_FILES = (
    "/etc/nova-lite/nova-lite.conf",
    "/etc/nova-lite/conductor.conf",
    "/etc/nova-lite/manage.conf",
)

#: Module of each noun, in this package. A command loads the module of its noun only, since most of them load the
#: database's or the message bus's.
WITHOUT_SQL = {
    "keys": "keys",
    "certificates": "certificates",
    "broker": "broker",
    "policy": "policy",
    "api": "api",
    "commands": "api",
    "config": "configuration",
}
NOUNS = (
    {
        "db": "database",
        "flavor": "flavors",
        "image": "images",
        "network": "networks",
        "floating-pool": "floating_pools",
        "service": "hosts",
        "host": "hosts",
        "controller": "controllers",
        "frontend": "front_ends",
        "aggregate": "aggregates",
        "server": "servers",
        "server-group": "server_groups",
        "share": "shares",
        "scheduler": "scheduler",
        "backup-policy": "backup_policies",
        "replication": "replication",
        "quota": "quotas",
        "user": "identity",
        "project": "identity",
        **{noun: module for noun, module in WITHOUT_SQL.items() if noun != "config"},
        "audit": "audit",
        "audit-log": "audit_log",
        "backup": "backup",
        "config": "configuration",
        "trace": "trace",
        "top": "top",
        "volume-key": "volume_keys",
        "upgrade": "upgrades",
    }
    if HAS_SQL
    else WITHOUT_SQL
)
#: Options with a value before the noun.
_WITH_VALUE = ("--config-file", "--format")


def main(argv: list[str] | None = None, timing: ManageTiming = TIMING.manage) -> int:
    args = parser(_noun(sys.argv[1:] if argv is None else argv)).parse_args(argv)
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
        if isinstance(error, exceptions.ConfigurationError | OSError) and not args.config_file:
            message = _with_hint(message)
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
            from nova_lite.cmd.manage import audit_log

            audit_log.record(app, args.command, error)


def _noun(arguments: Sequence[str]) -> str | None:
    """Return the noun of a command line, or None if it has none that exists, or is about all of them."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            next(words, None)
        elif not word.startswith("-"):
            return word if word in NOUNS and word != "commands" else None
    return None


def parser(noun: str | None = None) -> argparse.ArgumentParser:
    """Build the whole command line, or that of one noun. ``run`` in the result is the function to call."""
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
    modules = NOUNS.values() if noun is None else [NOUNS[noun]]
    for module in dict.fromkeys(modules):
        importlib.import_module(f"{__name__}.{module}").register(Commands(top, nouns, common))
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


def unreadable_files() -> list[str]:
    """Return the files of `CONFIG_FILES` that exist as far as this user can tell, and that it may not read."""
    return [path for path in CONFIG_FILES if not os.access(path, os.R_OK) and _may_exist(path)]


def _may_exist(path: str) -> bool:
    """Check whether a file exists. One in a directory that this user may not enter may exist."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _with_hint(message: str) -> str:
    """Add to an error what most likely caused it, if this user cannot read the configuration."""
    if not (files := unreadable_files()):
        return message
    return f"{message.strip().removesuffix('.')}. This user cannot read {', '.join(files)}: run it as root."


def _config_arguments(files: list[str]) -> list[str]:
    files = files or [path for path in CONFIG_FILES if os.access(path, os.R_OK)]
    return [argument for path in files for argument in ("--config-file", path)]
