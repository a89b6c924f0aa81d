"""Checks before, during and after an upgrade: what ``nova-lite-status upgrade check`` reports.

The program of the version to go to runs them. So they find what this version cannot cope with, upwards and downwards.
"""

from __future__ import annotations

import collections
import datetime
import enum
import glob
import os
from collections.abc import Callable
from typing import NamedTuple

from oslo_config import cfg

from nova_lite.base import exceptions, version
from nova_lite.base.disk_room import free_bytes
from nova_lite.cmd.manage import configuration
from nova_lite.cmd.manage.app import HAS_SQL, App, explain
from nova_lite.conf import config_files
from nova_lite.operations import OPERATIONS
from nova_lite.rpc import keys
from nova_lite.rpc.signing import OFF, REQUIRED

#: MiB that have to be free for a backup, packages and logs.
FREE_MB = 500
#: Days before the end of a key in which it is reported.
_KEY_DAYS = 30
#: Names that a report shows of many.
_SHOWN = 5


class Code(enum.IntEnum):
    """Result of a check, as in Nova. The highest of all is the exit status."""

    SUCCESS = 0
    WARNING = 1
    FAILURE = 2


class Result(NamedTuple):
    code: Code
    details: str = ""


Check = Callable[[App, str], Result]

_NO_CONDUCTOR = Result(Code.SUCCESS, "No file of this machine names a database: run it on a conductor's machine, too.")


def run(app: App, directory: str) -> list[tuple[str, Result]]:
    """Return the result of each check. ``directory``: of the daemons' configuration files."""
    return [(name, _guarded(check, app, directory)) for name, check in CHECKS.items()]


def _guarded(check: Check, app: App, directory: str) -> Result:
    """Run a check. What it needs and does not get is a failure with its cause."""
    try:
        return check(app, directory)
    except Exception as error:
        message = explain(error)
        if message is None:
            raise
        return Result(Code.FAILURE, message)


def _has_database(app: App) -> bool:
    found = app.conf.get_location("connection", "database") if HAS_SQL else None
    return found is not None and found.location is not cfg.Locations.opt_default


def _schema(app: App, directory: str) -> Result:
    from nova_lite.db.migrations import schema

    found = schema.state(app.conf)
    if found is not None and schema.is_older(found):
        return Result(
            Code.WARNING, f"The schema is {found.version}, and this version needs {schema.head()}: run db sync."
        )
    found = schema.check(app.conf)
    if found.version != schema.head():
        return Result(Code.SUCCESS, f"The schema {found.version} is newer, and serves this version.")
    return Result(Code.SUCCESS, f"The schema is {found.version}, and serves versions from {found.oldest} on.")


def _contracts(app: App, directory: str) -> Result:
    from nova_lite.db.migrations import schema

    waiting = schema.pending(schema.check(app.conf))
    if waiting:
        text = f"{len(waiting)} change(s) wait for nova-lite-manage db contract, when no daemon is to go back."
        return Result(Code.WARNING, text)
    return Result(Code.SUCCESS)


def _daemons(app: App, directory: str) -> Result:
    from nova_lite.db.hosts import services

    found = app.db.read(services.list_)
    other = [f"{item.binary} on {item.host} ({item.version})" for item in found if item.version != version.VERSION]
    down = [f"{item.binary} on {item.host}" for item in found if not item.up]
    problems = []
    if other:
        problems.append(f"{len(other)} of {len(found)} daemons do not run {version.VERSION}: {_some(other)}.")
    if down:
        problems.append(f"{len(down)} daemon(s) are down: {_some(down)}.")
    return Result(Code.WARNING, " ".join(problems)) if problems else Result(Code.SUCCESS, f"{len(found)} are up.")


def _database_nodes(app: App, directory: str) -> Result:
    from nova_lite.db.core import database_nodes

    found = database_nodes.problems(app.conf)
    unused = [f"that of {host} {problem}" for host, problem in found.items() if problem]
    if unused:
        return Result(Code.WARNING, f"{len(unused)} of {len(found)} nodes are not used: {_some(unused)}.")
    return Result(Code.SUCCESS, f"All {len(found)} are used." if found else "")


def _operations(app: App, directory: str) -> Result:
    from nova_lite.db.servers import action_log

    found: collections.Counter[str] = collections.Counter(app.db.read(action_log.count_open))
    unknown = sorted(kind for kind in found if kind not in OPERATIONS)
    if unknown:
        count = sum(found[kind] for kind in unknown)
        text = f"This version cannot carry out {_some(unknown)}, and {count} are in progress: let them end first."
        return Result(Code.FAILURE, text)
    return Result(Code.SUCCESS, f"{found.total()} in progress.")


def _keys(app: App, directory: str) -> Result:
    options = app.conf.rpc
    mode = options.signing or (REQUIRED if options.keys_directory else OFF)
    if mode != REQUIRED:
        return Result(Code.WARNING, f"[rpc] signing is {mode}: daemons take messages without a signature.")
    trusted = keys.read_trusted(os.path.join(options.keys_directory, keys.TRUSTED))
    now = keys.now()
    valid = [key for key in trusted if key.is_valid(now.timestamp())]
    soon = (now + datetime.timedelta(days=_KEY_DAYS)).timestamp()
    lasting = {key.peer for key in valid if key.is_valid(soon)}
    ending = sorted(f"{key.role} on {key.host}" for key in valid if key.peer not in lasting)
    if not valid:
        return Result(Code.FAILURE, f"{options.keys_directory} has no trusted key that is valid now.")
    if ending:
        return Result(Code.WARNING, f"The keys of {_some(ending)} end within {_KEY_DAYS} days.")
    return Result(Code.SUCCESS, f"{len(valid)} trusted keys are valid.")


def _configuration(app: App, directory: str) -> Result:
    found = configuration.problems_of_machine(directory)
    if found:
        return Result(Code.FAILURE, f"{len(found)} problem(s), see nova-lite-manage config check: {found[0]}")
    return Result(Code.SUCCESS)


def _options(app: App, directory: str) -> Result:
    known = config_files.known_options()
    found: list[str] = []
    for path in sorted(glob.glob(os.path.join(glob.escape(directory), "*.conf"))):
        found += config_files.renamed(path, config_files.read(path), known)
    return Result(Code.WARNING, " ".join(found)) if found else Result(Code.SUCCESS)


def _disk(app: App, directory: str) -> Result:
    """Look at the directory of the state, and at the database of SQLite, whose backup needs its size again."""
    places = {app.conf.state_path: FREE_MB}
    if _has_database(app):
        from nova_lite.db.migrations import schema

        path = schema.sqlite_path(app.conf)
        if path is not None and os.path.exists(path):
            places[os.path.dirname(path)] = FREE_MB + (os.path.getsize(path) >> 20)
    short = []
    for place, needed in places.items():
        free = free_bytes(place) >> 20
        if free < needed:
            short.append(f"{place} has {free} MiB free, and needs {needed}.")
    return Result(Code.FAILURE, " ".join(short)) if short else Result(Code.SUCCESS)


def _on_conductors(check: Check) -> Check:
    return lambda app, directory: check(app, directory) if _has_database(app) else _NO_CONDUCTOR


def _some(names: list[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


CHECKS: dict[str, Check] = {
    "Schema": _on_conductors(_schema),
    "Schema changes to contract": _on_conductors(_contracts),
    "Nodes of the database": _on_conductors(_database_nodes),
    "Versions of daemons": _on_conductors(_daemons),
    "Operations in progress": _on_conductors(_operations),
    "Signing keys": _keys,
    "Configuration": _configuration,
    "Renamed options": _options,
    "Free disk space": _disk,
}


def require(results: list[tuple[str, Result]]) -> None:
    """Raise `ConfigurationError` with the first failure."""
    for name, result in results:
        if result.code is Code.FAILURE:
            raise exceptions.ConfigurationError(reason=f"{name}: {result.details}")
