"""Log records with fields: as lines of JSON, or as entries of systemd's journal.

The request is that of the thread's context. The instance is named by the message, or is what the thread works on
(`about`).
"""

from __future__ import annotations

import contextlib
import contextvars
import copy
import datetime
import json
import logging
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from oslo_context import context as oslo_context

from nova_lite.base import journal

TEXT, JSON, JOURNAL = "text", "json", "journal"
FORMATS = (TEXT, JSON, JOURNAL)

#: The socket of systemd's journal, which takes one entry per datagram.
JOURNAL_SOCKET = "/run/systemd/journal/socket"

#: Length of a field, so that an entry with a long message and a long traceback fits into a datagram.
MOST = 40_000

_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_NAMED = re.compile(rf"\b(?:[Ii]nstance|[Ss]erver) ({_UUID})\b")
_INSTANCE = re.compile(_UUID)

_about: contextvars.ContextVar[str] = contextvars.ContextVar("instance", default="")


@contextlib.contextmanager
def about(instance_uuid: object) -> Iterator[None]:
    """Let log records of this thread name an instance. Anything but a uuid changes nothing."""
    if not isinstance(instance_uuid, str) or not _INSTANCE.fullmatch(instance_uuid):
        yield
        return
    token = _about.set(instance_uuid)
    try:
        yield
    finally:
        _about.reset(token)


def fields(record: logging.LogRecord) -> dict[str, str]:
    """Return the message of a record, and what is known besides. Empty values are left out."""
    message = record.getMessage()
    context = oslo_context.get_current()
    found = {"message": message, "instance": _instance(record, message)}
    if context is not None:
        for name in ("request_id", "global_request_id", "user_id", "project_id"):
            found[name] = str(getattr(context, name, None) or "")
    if record.exc_info and record.exc_info[0] is not None:
        found["exception"] = logging.Formatter().formatException(record.exc_info)
    return {name: value for name, value in found.items() if value}


def _instance(record: logging.LogRecord, message: str) -> str:
    given = getattr(record, "instance_uuid", None) or getattr(getattr(record, "instance", None), "uuid", None)
    if isinstance(given, str) and given:
        return given
    named = _NAMED.search(message)
    return named[1] if named else _about.get()


class JsonFormatter(logging.Formatter):
    """A formatter that makes one line of JSON. ``daemon``, ``host``: who writes it."""

    def __init__(self, daemon: str, host: str) -> None:
        super().__init__()
        self._origin = {"daemon": daemon, "host": host}

    def format(self, record: logging.LogRecord) -> str:
        made = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "time": made.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "priority": journal.priority(record.levelno),
            "level": record.levelname,
            "logger": record.name,
            **self._origin,
            "pid": record.process,
            **fields(record),
        }
        return _escaped(json.dumps(line, ensure_ascii=False), lambda char: json.dumps(char)[1:-1])


class LineFormatter(logging.Formatter):
    """A formatter that escapes control characters in the lines of another one.

    A message is one line, whatever a user has put into it. A traceback has several.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        line = copy.copy(record)
        line.msg, line.args = _printable(record.getMessage()), None
        return "\n".join(_printable(text) for text in self._formatter.format(line).split("\n"))


def _printable(text: str) -> str:
    return _escaped(text, lambda char: char.encode("unicode_escape").decode())


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    return text if text.isprintable() else "".join(char if char.isprintable() else escape(char) for char in text)


class JournalHandler(logging.Handler):
    """A handler that sends records to systemd's journal, with a field for each value.

    A record that the journal does not take is written to stderr.
    """

    def __init__(self, daemon: str, host: str, path: str = JOURNAL_SOCKET) -> None:
        super().__init__()
        self._origin = {"SYSLOG_IDENTIFIER": daemon, "NOVA_LITE_HOST": host}
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._socket.sendto(self.entry(record), self._path)
        except OSError as error:
            self._write_to_stderr(record, error)
        except Exception:
            self.handleError(record)

    def entry(self, record: logging.LogRecord) -> bytes:
        """Return the datagram of a record."""
        known = fields(record)
        entry = {
            "MESSAGE": known.pop("message", ""),
            "PRIORITY": str(journal.priority(record.levelno)),
            "LOGGER": record.name,
            "CODE_FILE": record.pathname,
            "CODE_LINE": str(record.lineno),
            "CODE_FUNC": record.funcName or "",
            **self._origin,
            **{f"NOVA_LITE_{name.upper()}": value for name, value in known.items()},
        }
        return b"".join(_field(name, value) for name, value in entry.items())

    def close(self) -> None:
        self._socket.close()
        super().close()

    def _write_to_stderr(self, record: logging.LogRecord, error: OSError) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(record.created))
        text = f"{now} {record.levelname} {record.name} {record.getMessage()} (not in the journal: {error})"
        print(journal.error(text), file=sys.stderr, flush=True)


def _field(name: str, value: str) -> bytes:
    """Encode a field with its length, so that no value can add another field."""
    data = value.encode("utf-8", "replace")
    if len(data) > MOST:
        data = data[:MOST] + b"..."
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"


def set_up(logger: logging.Logger, wanted: str, daemon: str, host: str) -> None:
    """Let the logger's handlers write in a format of `FORMATS`.

    For the journal, a handler of stderr or stdout is replaced. A handler of a file stays.
    """
    for handler in list(logger.handlers):
        if wanted == TEXT:
            handler.setFormatter(LineFormatter(handler.formatter or logging.Formatter()))
        elif wanted == JSON:
            handler.setFormatter(JsonFormatter(daemon, host))
        elif wanted == JOURNAL and _is_console(handler):
            replacement = JournalHandler(daemon, host)
            replacement.setLevel(handler.level)
            replacement.filters = list(handler.filters)
            logger.removeHandler(handler)
            logger.addHandler(replacement)


def _is_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout)
