"""Upgrade of one machine: check, backup, installation, schema, and one daemon after the other; and the way back.

The installation replaces this program's own files. So everything that runs after it is imported before, or is a
program of its own.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.cmd.setup import cluster, controller, machine
from nova_lite.cmd.setup import units as unit_files
from nova_lite.cmd.setup.machine import PROGRAMS, UNITS
from nova_lite.cmd.setup.steps import Step

#: Daemons in the order of an upgrade. No caller is newer than what it calls. The way back has the reverse order.
ORDER = ("conductor", "scheduler", "registrar", "compute", "api", "novncproxy", "serialproxy", "spicehtml5proxy")

#: Seconds that a daemon may take to stop (TimeoutStopSec=), and a few more.
_STOP_SECONDS = 100

#: MiB that have to be free for packages and a backup.
_FREE_MB = 500

#: Extra of the package with the libraries of each daemon.
_EXTRAS = {
    "conductor": "conductor",
    "scheduler": "scheduler",
    "registrar": "conductor",
    "compute": "compute",
    "api": "api",
    "novncproxy": "console",
    "serialproxy": "console",
    "spicehtml5proxy": "console",
}

BACKUPS = controller.STATE / "backups"

#: Variable for the scripts of Debian packages: this program restarts the daemons, one by one.
ENVIRONMENT = "NOVA_LITE_UPGRADE"

#: Name of a wheel's file. pip refuses others.
_WHEEL = re.compile(r"[A-Za-z0-9_.]+(-[^-]+){4,5}\.whl")
_UNIT = re.compile(r"nova-lite-([a-z0-9]+)(@[A-Za-z0-9_-]+)?\.service")


class Wanted(NamedTuple):
    """Upgrade of a machine. ``packages``: files to install, or none if an operator has installed the version.

    ``lists``: lists of its libraries.
    """

    packages: tuple[Path, ...]
    lists: tuple[Path, ...]
    is_rollback: bool
    has_backup: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--package",
        action="append",
        default=[],
        metavar="FILE",
        help="wheel or Debian package of the version to go to; may be repeated. Default: it is installed already",
    )
    parser.add_argument(
        "--requirements",
        action="append",
        default=[],
        metavar="FILE",
        help="list of libraries with hashes (devstack/requirements) that are installed before a wheel",
    )
    parser.add_argument(
        "--rollback",
        action="store_true",
        help="go back to an older version: daemons in the reverse order, and the schema stays as it is",
    )
    parser.add_argument("--no-backup", action="store_true", help=f"make no backup of the database in {BACKUPS}")


def read(args: argparse.Namespace) -> Wanted:
    """Return what is wanted. Raises `ConfigurationError` for a file that cannot be installed."""
    packages = tuple(_file(path, (".whl", ".deb")) for path in args.package)
    lists = tuple(_file(path, (".txt",)) for path in args.requirements)
    if len({path.suffix for path in packages}) > 1:
        raise exceptions.ConfigurationError(reason="name wheels or Debian packages, not both.")
    return Wanted(packages, lists, args.rollback, not args.no_backup)


def _file(name: str, suffixes: tuple[str, ...]) -> Path:
    path = Path(name).resolve()
    if not path.is_file() or path.suffix not in suffixes:
        raise exceptions.ConfigurationError(reason=f"{name} is not a file of the kind {' or '.join(suffixes)}.")
    if path.suffix == ".whl" and not _WHEEL.fullmatch(path.name):
        raise exceptions.ConfigurationError(
            reason=f"{path.name} is not the name of a wheel, such as nova_lite-0.2.0-py3-none-any.whl."
        )
    return path


def steps(wanted: Wanted) -> list[Step]:
    """Return the steps. Each does what is missing, so the command may be interrupted and repeated."""
    units = running_units()
    has_conductor = "nova-lite-conductor.service" in units
    if wanted.is_rollback:
        units.reverse()
    made = [Step("Checking this machine", lambda: _check(wanted, units))]
    if has_conductor and wanted.has_backup and not wanted.is_rollback:
        made.append(Step("Backing up the database", lambda: _back_up(wanted)))
    if wanted.packages:
        made.append(Step("Installing the version", lambda: _install(wanted, units)))
    if has_conductor:
        made.append(
            Step("Checking the schema" if wanted.is_rollback else "Expanding the schema", lambda: _schema(wanted))
        )
    made.append(Step("Writing the units", lambda: _write_units(wanted, units)))
    made += [Step(f"Restarting {unit.removesuffix('.service')}", functools.partial(_restart, unit)) for unit in units]
    return [*made, Step("Checking the machine again", lambda: _check_again(wanted))]


def running_units() -> list[str]:
    """Return the units of daemons that run on this machine, or fail to, in the order of an upgrade."""
    lines = machine.run(
        "systemctl", "list-units", "--plain", "--no-legend", "--all", "--type=service", "nova-lite-*"
    ).splitlines()
    found = []
    for line in lines:
        name, _, state, *_ = line.split()
        parts = _UNIT.fullmatch(name)
        if parts is None or parts[1] not in ORDER:
            continue
        # An interrupted upgrade may have left a daemon stopped.
        if state != "inactive" or machine.succeeds("systemctl", "is-enabled", "--quiet", name):
            found.append((ORDER.index(parts[1]), name))
    return [name for _, name in sorted(found)]


def _check(wanted: Wanted, units: list[str]) -> str:
    if not units:
        raise exceptions.ConfigurationError(reason="no daemon runs on this machine.")
    machine.require_space("/var/lib", _FREE_MB)
    return f"{len(units)} daemons run"


def _program(name: str, *arguments: str) -> str:
    """Run a program of the version that is installed now."""
    return machine.run(str(PROGRAMS / name), *arguments)


def _back_up(wanted: Wanted) -> str:
    """Back up the database with the version that wrote it. A newer program cannot read an older schema."""
    if not wanted.packages and not _fits():
        return "left out: the version is installed already, and its program reads the schema only when it is expanded"
    BACKUPS.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = BACKUPS / f"before-upgrade-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz"
    _program("nova-lite-manage", "backup", "create", str(path))
    return str(path)


def _fits() -> bool:
    try:
        _program("nova-lite-manage", "db", "check")
    except exceptions.ConfigurationError:
        return False
    return True


def _install(wanted: Wanted, units: list[str]) -> str:
    names = ", ".join(path.name for path in wanted.packages)
    if wanted.packages[0].suffix == ".deb":
        options = ("--yes", "--quiet", "--allow-downgrades", "--no-install-recommends")
        command = ("env", f"{ENVIRONMENT}=1", "apt-get", "install", *options, *map(str, wanted.packages))
        machine.run(*command, seconds=machine.APT_SECONDS)
        return names
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    for path in wanted.lists:
        machine.run(*pip, "--require-hashes", "--requirement", str(path), seconds=machine.APT_SECONDS)
    if not wanted.lists:
        extras = ",".join(sorted({_EXTRAS[_daemon(unit)] for unit in units}))
        machine.run(*pip, *(f"{path}[{extras}]" for path in wanted.packages), seconds=machine.APT_SECONDS)
    # A build of the same version is not the same.
    machine.run(*pip, "--force-reinstall", "--no-deps", *map(str, wanted.packages), seconds=machine.APT_SECONDS)
    return names


def _daemon(unit: str) -> str:
    parts = _UNIT.fullmatch(unit)
    assert parts is not None
    return parts[1]


def _schema(wanted: Wanted) -> str:
    """Expand the schema, or check on the way back that it serves the older version."""
    if wanted.is_rollback:
        return _program("nova-lite-manage", "db", "check").splitlines()[0].rstrip(".")
    return controller.as_conductor("db", "sync").splitlines()[0].rstrip(".")


def _write_units(wanted: Wanted, units: list[str]) -> str:
    """Write the installed version's units where `nova-lite-setup` wrote them. Debian packages have them elsewhere."""
    ours = sorted({re.sub(r"@.*", "@", unit.removesuffix(".service")) for unit in units})
    changed = machine.install_units([name for name in ours if (UNITS / f"{name}.service").exists()])
    # The older version's program runs this code, and has its own settings. Newer ones serve older versions as well.
    if cluster.local() and not wanted.is_rollback:
        _program("nova-lite-setup", "units")
    return f"changed {', '.join(changed)}" if changed else "unchanged"


def _restart(unit: str) -> str:
    """Restart a daemon that was started before the installation, and wait until it serves."""
    name = unit.removesuffix(".service")
    if not unit_files.is_outdated(unit):
        return "runs the installed version already"
    before = _main_pid(unit)
    machine.run("systemctl", "restart", "--no-block", unit)
    deadline = time.monotonic() + _STOP_SECONDS
    while before != "0" and _main_pid(unit) == before:
        if time.monotonic() > deadline:
            raise exceptions.ConfigurationError(reason=f"{name} does not stop within {_STOP_SECONDS} s.")
        time.sleep(0.05)
    unit_files.wait_until_active(name)
    return "serves"


def _main_pid(unit: str) -> str:
    return machine.run("systemctl", "show", "--value", "--property=MainPID", unit).strip()


def _check_again(wanted: Wanted) -> str:
    """Run the checks of the installed version."""
    text = machine.run(str(PROGRAMS / "nova-lite-status"), "upgrade", "check", "--json", accepted=(0, 1, 2))
    try:
        checks = json.loads(text)["checks"]
    except ValueError as error:
        raise exceptions.ConfigurationError(reason="nova-lite-status upgrade check failed; run it.") from error
    failed = [check for check in checks if check["result"] == 2]
    if failed:
        raise exceptions.ConfigurationError(reason=f"{failed[0]['check']}: {failed[0]['details']}")
    warnings = sum(check["result"] for check in checks)
    return f"no failure, {warnings} warning(s), see nova-lite-status upgrade check" if warnings else "no failure"
