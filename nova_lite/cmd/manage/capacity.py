"""``host capacity``: whether the protected servers of lost hosts would fit elsewhere. Nothing is moved."""

from __future__ import annotations

import argparse
import itertools
import math
import random
from collections.abc import Iterator

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App
from nova_lite.cmd.manage.scheduler import decider
from nova_lite.conductor.hosts.room import MAX_SETS, Protected, read_protected
from nova_lite.objects import HostState
from nova_lite.scheduler import plans


def host_capacity(app: App, args: argparse.Namespace) -> int:
    """Carry out ``host capacity``. Return 1 if a protected server would find no room."""
    found, servers = app.db.read(read_protected, app.conf)
    up = sorted({state.host for state in found if state.up and not state.disabled})
    if args.survive >= len(up):
        raise exceptions.InvalidInput(reason=f"{len(up)} hosts are up and enabled: fewer than that may be lost.")
    used = [host for host in up if any(server.host == host for server in servers)]
    number = min(args.survive, len(used))
    if math.comb(len(used), number) > MAX_SETS:
        raise exceptions.InvalidInput(
            reason=f"there are more than {MAX_SETS} sets of {number} among {len(used)} hosts: use a smaller number."
        )
    rows = list(_rows(app, [state for state in found if state.host in up], servers, used, number))
    app.show(("Lost", "Protected", "Wait", "No Room", "Why Not"), rows)
    return 1 if any(row[3] for row in rows) else 0


def _rows(
    app: App, found: list[HostState], servers: list[Protected], used: list[str], number: int
) -> Iterator[tuple[str, int, int, int, str]]:
    """Yield a row for each set of lost hosts, with the servers that come first placed first."""
    for lost in itertools.combinations(used, number) if number else ():
        affected = [server for server in servers if server.host in lost]
        moving = sorted((server for server in affected if not server.waits), key=lambda server: -server.priority)
        moves = plans.evacuate(set(lost), found, [server.spec for server in moving], *decider(app), random.Random())
        failed = [move for move in moves if move.target is None]
        why = failed[0].reason if failed else ""
        yield ", ".join(lost), len(affected), len(affected) - len(moving), len(failed), why
