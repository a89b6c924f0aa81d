"""Command ``config``: check the configuration of this machine's daemons, and print its reference page."""

from __future__ import annotations

import argparse
import glob
import os
import pwd
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from oslo_config import cfg

from nova_lite.cmd.manage import config_checks
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.cmd.manage.config_checks import ROLES, Role
from nova_lite.conf import config_files

#: Seconds after which the check of one daemon is given up.
_ROLE_SECONDS = 60


def register(commands: Commands) -> None:
    noun = commands.noun("config", "Check and document the configuration.")
    verb = commands.verb(
        noun,
        "check",
        "Check the configuration of every daemon of this machine: its files, and what they name. Exit with 1 on a "
        "problem. Run it as root, so that each daemon's files are read as that daemon's user.",
        check,
    )
    verb.add_argument(
        "--directory",
        default="/etc/nova-lite",
        help="directory with nova-lite.conf and a file for each daemon of this machine; default: %(default)s",
    )
    verb.add_argument(
        "--role",
        choices=sorted(ROLES),
        help="daemon that reads the files of --config-file; default: by the name of the last file, or manage",
    )
    verb.set_defaults(loads_files=False)
    commands.verb(noun, "reference", "Print reference/configuration.md, a page of the documentation.", reference)


def reference(app: App, args: argparse.Namespace) -> None:
    """Print the page on all options. The clients of other services are imported only here."""
    with warnings.catch_warnings(action="ignore"):
        from nova_lite.cmd.manage import pages
        from nova_lite.conf import opts

    print(pages.configuration(opts.list_opts()), end="")


def check(app: App, args: argparse.Namespace) -> int:
    """Check the given files as one daemon, or else each daemon's files in a process of its own."""
    found = list(_of_files(app.conf, args)) if args.config_file else problems_of_machine(args.directory)
    for problem in found:
        print(problem)
    if not found:
        print("The configuration can work.")
    return 1 if found else 0


def problems_of_machine(directory: str) -> list[str]:
    """Check each daemon's files in a process of its own, as that daemon's user if this is root."""
    return list(_of_machine(directory))


def _of_files(conf: cfg.ConfigOpts, args: argparse.Namespace) -> Iterator[str]:
    role = ROLES.get(args.role) or config_checks.role_of_file(args.config_file[-1]) or ROLES["manage"]
    if args.role is None:
        yield from _static(args.config_file)
    yield from config_checks.problems(conf, role)


def _static(paths: list[str]) -> Iterator[str]:
    """Check files without loading them."""
    return config_files.examine(paths, (config_files.unknown, config_files.exposed, _misplaced))


def _misplaced(path: str, sections: config_files.Sections, known: config_files.Known) -> Iterator[str]:
    """Report a database URL where no conductor reads it. On a compute host it would be a secret too many."""
    role = config_checks.role_of_file(path)
    if role is not None and role.name not in ("conductor", "manage") and "connection" in sections.get("database", {}):
        yield f"{path}: [database] connection belongs into conductor.conf; no other daemon uses the database."


def _of_machine(directory: str) -> Iterator[str]:
    if os.path.isdir(directory) and not os.access(directory, os.R_OK | os.X_OK):
        yield f"{directory}: this user cannot read it: run this as root."
        return
    common = os.path.join(directory, "nova-lite.conf")
    files = [path for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*.conf"))) if path != common]
    own = [(path, role) for path in files if (role := config_checks.role_of_file(path)) is not None]
    if not own:
        names = ", ".join(f"{name}.conf" for name in sorted(ROLES))
        yield f"{directory}: no daemon has a file here; there can be {names}."
        return
    yield from _static([common, *(path for path, _ in own)])
    conductor = os.path.join(directory, "conductor.conf")
    for path, role in own:
        # nova-lite-manage reads the conductor's file, too, where there is one.
        with_database = [conductor] if role.name == "manage" and os.path.exists(conductor) else []
        for line in _in_own_process([common, *with_database, path], role):
            yield line if line.startswith(os.path.basename(path)) else f"{os.path.basename(path)}: {line}"


def _in_own_process(paths: list[str], role: Role) -> list[str]:
    """Check the files of one daemon as its user, and return what was found.

    A process of its own, because libraries register their options in the process's only configuration.
    """
    command = [_python_of(role), "-m", "nova_lite.cmd.manage", "config", "check", "--role", role.name]
    command += [argument for path in paths for argument in ("--config-file", path)]
    try:
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, check=False, timeout=_ROLE_SECONDS, **_user(role)
        )
    except subprocess.TimeoutExpired:
        return [f"the check did not end within {_ROLE_SECONDS} s; something that it asks does not answer."]
    except KeyError:
        return [f"there is no user {role.user}, which the daemon's unit names."]
    if done.returncode == 0:
        return []
    lines = done.stdout.splitlines() or done.stderr.splitlines()[-1:]
    return lines or [f"the check ended with status {done.returncode}."]


def _python_of(role: Role) -> str:
    """Return the interpreter that has the libraries of a role: Debian packages have one for compute hosts alone."""
    other = os.path.join(os.path.dirname(sys.executable), "../../compute/bin/python")
    is_packaged = os.path.basename(os.path.dirname(os.path.dirname(sys.executable))) == "controller"
    return (
        os.path.normpath(other) if role.name == "compute" and is_packaged and os.path.exists(other) else sys.executable
    )


def _user(role: Role) -> dict[str, Any]:
    """Return the arguments of `subprocess` that make a process the role's user. Only root can. Raises `KeyError`."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(role.user)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": os.getgrouplist(role.user, user.pw_gid)}
