"""Command ``top``: a table of the cloud's work that is refreshed, or with ``--once`` printed for scripts."""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import sys
import time
from typing import Any

import prettytable

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands, at_least
from nova_lite.db.upkeep import overview
from nova_lite.db.upkeep.overview import Overview

#: Queues of the broker that all daemons of a kind share.
QUEUES = ("conductor", "scheduler")

#: Time for which operations that have ended are among the slowest.
LATELY = datetime.timedelta(minutes=10)

#: Clears the screen and goes to its corner.
_CLEAR = "\x1b[H\x1b[2J"
#: Lines that are no rows of a table.
_OTHER_LINES = 16


def register(commands: Commands) -> None:
    parser = commands.command(
        "top",
        "Show hosts, operations in progress, queues and the slowest operations, again and again until ^C. "
        "Nothing is changed.",
        run,
    )
    parser.add_argument("--once", action="store_true", help="print it once, in full; implied if no terminal reads it")
    parser.add_argument("--interval", type=at_least(1), default=3, metavar="SECONDS", help="default: %(default)s")
    parser.add_argument(
        "--limit", type=at_least(1), metavar="N", help="rows of each table; default: as the terminal has room, or 50"
    )


def run(app: App, args: argparse.Namespace) -> None:
    if args.once or app.output == "json" or not sys.stdout.isatty():
        limit = args.limit or 50
        found = app.db.read(overview.read, limit, limit, LATELY)
        print(json.dumps(_plain(found, _depths(app)), indent=2) if app.output == "json" else text(found, _depths(app)))
        return
    try:
        while True:
            limit = args.limit or max(3, (shutil.get_terminal_size().lines - _OTHER_LINES) // 3)
            found = app.db.read(overview.read, limit, limit, LATELY)
            print(f"{_CLEAR}{text(found, _depths(app))}", flush=True)
            time.sleep(args.interval)
    except KeyboardInterrupt:
        print()


def _depths(app: App) -> dict[str, int | None]:
    """Return the lengths of queues; None for a queue that the broker does not show."""
    return {name: _depth(app, name) for name in QUEUES}


def _depth(app: App, queue: str) -> int | None:
    try:
        return app.transport.depth(queue)
    except exceptions.NovaLiteException:
        return None


def text(found: Overview, depths: dict[str, int | None]) -> str:
    """Return the page."""
    state = found.backlog
    hosts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in state.hosts.items())
    beats = ", ".join(f"{binary} {age:.0f} s" for binary, age in sorted(state.heartbeats.items()))
    queues = ", ".join(f"{name} {'?' if depth is None else depth}" for name, depth in depths.items())
    opened = sum(state.open.values())
    lines = [
        f"{found.time:%Y-%m-%d %H:%M:%S} UTC",
        f"Hosts: {hosts}",
        f"Operations: {opened} open, {state.past_deadline} past their deadline, due since {state.oldest_due:.0f} s",
        f"Queues: {queues}",
        f"Oldest heartbeats: {beats or 'none'}",
        "",
        _table(
            ("Host", "State", "VCPUs", "RAM MiB", "Servers", "Operations", "Heartbeat"),
            [
                (
                    host.name,
                    host.state,
                    f"{host.vcpus_used}/{host.vcpus}",
                    f"{host.memory_mb_used}/{host.memory_mb}",
                    host.servers,
                    host.operations,
                    "-" if host.silent is None else f"{host.silent:.0f} s",
                )
                for host in found.hosts
            ],
        ),
        _table(
            ("Operation", "Step", "Open"),
            [(kind, step, count) for (kind, step), count in sorted(state.open.items(), key=lambda item: -item[1])],
        ),
        _table(
            ("Slowest", "Server", "Step", "Host", "Seconds", "Retries", "Result"),
            [
                (
                    item.action,
                    item.server,
                    item.step or "ended",
                    item.host or "-",
                    item.seconds,
                    item.attempts,
                    item.result,
                )
                for item in found.slowest
            ],
        ),
    ]
    return "\n".join(lines)


def _table(columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    table = prettytable.PrettyTable(list(columns), align="l")
    table.add_rows([list(row) for row in rows])
    return str(table)


def _plain(found: Overview, depths: dict[str, int | None]) -> dict[str, Any]:
    state = found.backlog
    return {
        "time": found.time.isoformat(),
        "hosts": state.hosts,
        "operations": [
            {"action": kind, "step": step, "open": count} for (kind, step), count in sorted(state.open.items())
        ],
        "past_deadline": state.past_deadline,
        "oldest_due_seconds": state.oldest_due,
        "heartbeats": state.heartbeats,
        "queues": depths,
        "host_list": [host._asdict() for host in found.hosts],
        "slowest": [item._asdict() for item in found.slowest],
    }
