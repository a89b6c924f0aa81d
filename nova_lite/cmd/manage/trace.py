"""Command ``trace``: the way of one request through the machines of the cloud."""

from __future__ import annotations

import argparse
import datetime

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands, utc_time
from nova_lite.db.upkeep import request_trace

_SEARCHED = datetime.timedelta(days=1)
_LENGTH = 255


def register(commands: Commands) -> None:
    parser = commands.command(
        "trace",
        "Show what the database knows of a request, in the order of time: events of the audit log, operations, their "
        "steps on each host, and work that waits. Nothing is changed.",
        run,
    )
    parser.add_argument("request", type=_request_id, metavar="REQUEST-ID", help="req-…, as each response has it")
    parser.add_argument(
        "--since",
        type=utc_time,
        metavar="TIME",
        help="search the audit log from then on, in UTC unless it has an offset; default: for a day, or from the "
        "operation's begin on",
    )


def run(app: App, args: argparse.Namespace) -> None:
    since = args.since or datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - _SEARCHED
    found = app.db.read(request_trace.read, args.request, since)
    if not found:
        raise exceptions.NotFound(
            f"Nothing is known of request {args.request}. The audit log was searched from {since:%Y-%m-%d %H:%M} on "
            "(--since)."
        )
    app.show(
        ("Time", "Machine", "Source", "Event", "Result", "Seconds", "About"),
        [(_exact(entry.time, app), *entry[1:-1], entry.about or None) for entry in found],
    )


def _exact(time: datetime.datetime, app: App) -> str:
    return time.isoformat(timespec="milliseconds") if app.output == "json" else time.isoformat(" ", "milliseconds")


def _request_id(text: str) -> str:
    if not 1 <= len(text) <= _LENGTH or not text.isprintable():
        raise argparse.ArgumentTypeError(f"a request id has 1 to {_LENGTH} printable characters")
    return text
