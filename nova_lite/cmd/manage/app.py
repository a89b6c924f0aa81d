"""Parts of every command: configuration, database, and output."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import prettytable
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING, ManageTiming

if TYPE_CHECKING:
    from nova_lite.compute.api import API
    from nova_lite.db.core.engine import Database, UnitOfWork
    from nova_lite.rpc import Sender, Transport

#: Presence of SQLAlchemy, which compute hosts do not have (docs/adr/0022-packages.md).
HAS_SQL = importlib.util.find_spec("sqlalchemy") is not None
#: Error of a command on the database without SQL.
NO_SQL = (
    "this installation has no SQLAlchemy, so it cannot use the database; run this on a conductor's machine, or install "
    "nova_lite[conductor]"
)

#: Function of a command. It returns the exit status, or None for 0.
Run = Callable[["App", argparse.Namespace], int | None]


class App:
    """Context of a command. ``output`` is ``table`` or ``json``."""

    def __init__(self, conf: cfg.ConfigOpts, output: str, timing: ManageTiming = TIMING.manage) -> None:
        self.conf = conf
        self.timing = timing
        self.output = output
        self.context: RequestContext = get_admin_context()
        #: The command has written to the database.
        self.has_written = False
        self._database: Database | None = None
        self._transport: Transport | None = None
        self._servers: API | None = None

    @property
    def db(self) -> Database:
        """Open the database at first use. Raises `ConfigurationError` when its schema is not this program's."""
        if self._database is None:
            from nova_lite.db.core import server_changes
            from nova_lite.db.core.engine import Database
            from nova_lite.db.migrations import schema

            schema.check(self.conf)
            self._database = Database(self.conf)
            server_changes.watch(self._database)
            self._database.subscribe(self._note_write, always=True)
        return self._database

    def _note_write(self, uow: UnitOfWork) -> None:
        self.has_written = True

    @property
    def servers(self) -> API:
        """Connect to the daemons as the REST layer does. It is imported here only, because the message bus is slow
        to load.
        """
        if self._servers is None:
            with warnings.catch_warnings(action="ignore"):
                from nova_lite.compute.api import API
                from nova_lite.rpc import proxy
                from nova_lite.rpcapi.compute import ComputeRPC
                from nova_lite.rpcapi.conductor import ConductorRPC
            bus = self._bus()
            self._servers = API()
            self._servers.conductor, self._servers.compute = proxy(ConductorRPC, bus), proxy(ComputeRPC, bus)
        return self._servers

    def _bus(self) -> Sender:
        return self.transport

    @property
    def transport(self) -> Transport:
        """Connect to the message broker, with the account of this tool."""
        if self._transport is None:
            with warnings.catch_warnings(action="ignore"):
                from nova_lite.rpc import MANAGE, Transport
            self._transport = Transport(self.conf, MANAGE)
        return self._transport

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        if self._transport is not None:
            self._transport.cleanup()

    def require_local_images(self) -> None:
        """Raise `ConfigurationError` unless images are in the built-in store."""
        if self.conf.image.backend != "local":
            reason = f"[image] backend = {self.conf.image.backend}: import images there."
            raise exceptions.ConfigurationError(reason=reason)

    def say(self, line: str) -> None:
        """Print a line of progress at once, on standard error if programs read the output."""
        print(line, file=sys.stderr if self.output == "json" else sys.stdout, flush=True)

    def show(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table, or a list of JSON objects whose keys are the columns in lower case."""
        rows = list(rows)
        if self.output == "json":
            keys = [column.lower().replace(" ", "_") for column in columns]
            print(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], default=_plain, indent=2))
            return
        table = prettytable.PrettyTable(list(columns), align="l")
        table.add_rows([[_cell(value) for value in row] for row in rows])
        print(table)


class Progress:
    """Progress in percent, or in MiB while the total is unknown. It is shown on a terminal only."""

    def __init__(self) -> None:
        self._visible = sys.stderr.isatty()
        self._text = ""

    def show(self, done: int, total: int) -> None:
        text = f"{100 * done // total:3d} %" if total else f"{done // 1024**2} MiB"
        if self._visible and text != self._text:
            self._text = text
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._visible:
            print(file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Parser that names an unknown option before anything that is missing, such as the noun.

    ``hint_on_nouns`` ends the error about an unknown noun.
    """

    hint_on_nouns = ""
    _given: Sequence[str] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        self._given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        if self.hint_on_nouns and message.startswith("argument NOUN:"):
            message = f"{message}. Nouns that are missing here use the database: {self.hint_on_nouns}."
        unknown = self._unknown_options()
        super().error(f"unrecognized arguments: {' '.join(unknown)}" if unknown else message)

    def _unknown_options(self) -> list[str]:
        """Return the given options that this parser does not know, up to the noun or the verb if it has any."""
        unknown, given = [], iter(self._given)
        for text in given:
            if text == "--" or (self._subparsers is not None and not text.startswith("-")):
                break
            if _is_option(text) and not self._knows(text.partition("=")[0]):
                unknown.append(text)
            elif text in self._option_string_actions and self._option_string_actions[text].nargs != 0:
                next(given, None)
        return unknown

    def _knows(self, option: str) -> bool:
        """Check whether an option exists. It may be abbreviated, and an option of one letter may have its value."""
        known = self._option_string_actions
        return any(name.startswith(option) if option.startswith("--") else name == option[:2] for name in known)


def _is_option(text: str) -> bool:
    return text.startswith("-") and not re.fullmatch(r"-|-\d+|-\d*\.\d+", text)


class Commands:
    """Builder of the command line: nouns and their verbs. ``top`` is the whole command line's parser."""

    def __init__(self, top: argparse.ArgumentParser, nouns: Any, common: argparse.ArgumentParser) -> None:
        self.top = top
        self._nouns = nouns
        self._common = common

    def noun(self, name: str, text: str) -> Any:
        """Add sub-commands of ``name``, to be filled by `verb`."""
        return self._nouns.add_parser(name, help=text, description=text).add_subparsers(metavar="VERB", required=True)

    def verb(self, parent: Any, name: str, text: str, run: Run) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = parent.add_parser(name, help=text, description=text, parents=[self._common])
        parser.set_defaults(run=run, command=parser.prog)
        return parser

    def command(self, name: str, text: str, run: Run) -> argparse.ArgumentParser:
        """Add a command without a verb."""
        return self.verb(self._nouns, name, text, run)


def explain(error: Exception) -> str | None:
    """Return an operator's explanation of an error; None for a bug."""
    ours = _translated(error)
    if isinstance(ours, exceptions.DatabaseUnavailable):
        cause = error.__cause__ or error
        return f"the database is unavailable: {getattr(cause, 'orig', None) or cause}"
    if isinstance(ours, OSError) and ours.filename is not None:
        return f"{ours.filename}: {ours.strerror}"
    return str(ours) if isinstance(ours, exceptions.NovaLiteException | OSError) else None


def _translated(error: Exception) -> Exception:
    """Translate an error of the database. Without SQL, no error is one."""
    if not HAS_SQL:
        return error
    from nova_lite.db.core import engine

    return engine.translate(error)


def at_least(minimum: int, maximum: int = 2**31 - 1) -> Callable[[str], int]:
    """Return an argparse type for integers from ``minimum`` to ``maximum``."""

    def whole_number(text: str) -> int:
        number = int(text) if re.fullmatch(r"[-+]?[0-9]{1,10}", text) else None
        if number is None or not minimum <= number <= maximum:
            raise argparse.ArgumentTypeError(f"{text[:64]!r} is not a number from {minimum} to {maximum}")
        return number

    return whole_number


def utc_time(text: str) -> datetime.datetime:
    """Parse a time for argparse; the result is naive UTC."""
    try:
        moment = datetime.datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(
            f"{text[:64]!r} is not a time such as 2026-01-31T12:00:00 or 2026-01-31"
        ) from error


def key_value(text: str) -> tuple[str, str]:
    """Parse ``key=value`` for argparse."""
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text[:64]!r} is not of the form KEY=VALUE")
    return key, value


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime.datetime) else str(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime.datetime):
        return value.isoformat(" ", "seconds")
    if isinstance(value, dict):
        return ", ".join(f"{key}={item}" for key, item in sorted(value.items()))
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value)
