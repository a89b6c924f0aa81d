"""``host maintenance``: empties a host, and brings back afterwards what has left it.

The state is in the database, so each command can be repeated. The reason of the host's service has the id of the last
migration before the maintenance. Newer migrations are those of the servers that have left the host since.
"""

from __future__ import annotations

import argparse
import re
from typing import Any

from nova_lite.base import exceptions
from nova_lite.cmd.manage import moves, scheduler
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.core.models import Service
from nova_lite.db.hosts import services
from nova_lite.db.servers import server_migrations

#: Reasons of a service while its host is emptied, and while its servers come back.
BEGUN = "nova-lite-manage host maintenance, after migration {}"
ENDS = "nova-lite-manage host maintenance --end, after migration {}"

#: A conductor that drains a host because of its health adds the problem.
_REASON = re.compile(r"nova-lite-manage host maintenance(?: --end)?, after migration ([0-9]+)(?:: .*)?")


def register(commands: Commands, noun: Any) -> None:
    verb = commands.verb(
        noun, "maintenance", "Empty a host for its maintenance; --end brings its servers back.", host_maintenance
    )
    verb.add_argument("host", metavar="HOST")
    verb.add_argument(
        "--end", action="store_true", help="enable the host, and bring back the servers that have left it"
    )
    moves.add_options(verb)


def host_maintenance(app: App, args: argparse.Namespace) -> int:
    """Carry out ``host maintenance``. Return 1 if a server is not where it is to be: then repeat the command."""
    service = app.db.read(services.find, args.host, services.COMPUTE)
    if service is None:
        raise exceptions.ComputeHostNotFound(host=args.host)
    began_after = _began_after(service)
    if args.end:
        if began_after is None:
            raise exceptions.InvalidInput(reason=f"host {args.host} is not in maintenance.")
        return _end(app, args, service, began_after)
    if began_after is None or not service.disabled:  # the host was enabled meanwhile: others have moved its servers
        began_after = app.db.read(server_migrations.newest_id)
    return scheduler.empty(app, args, BEGUN.format(began_after))


def _began_after(service: Service) -> int | None:
    """Return the last migration before the maintenance began, or None if the host is not in maintenance."""
    found = _REASON.fullmatch(service.disabled_reason or "")
    return None if found is None else int(found[1])


def _end(app: App, args: argparse.Namespace, service: Service, began_after: int) -> int:
    if not service.up:
        raise exceptions.InvalidInput(reason=f"host {args.host} is down: start its daemon first.")
    left = app.db.read(server_migrations.left_host, args.host, began_after)
    if moving := [server.uuid for server in left if server.is_open]:
        raise exceptions.InvalidInput(reason=f"servers still move, or wait to be confirmed: {', '.join(moving)}.")
    planned = [moves.Move(server.uuid, server.name, str(server.host), args.host) for server in left]
    if args.dry_run:
        app.show(
            ("Server", "Name", "From", "To"), [(move.uuid, move.name, move.source, move.target) for move in planned]
        )
        return 0
    conductor = app.servers.conductor
    conductor.service_update(
        app.context, service.uuid, {"disabled": False, "disabled_reason": ENDS.format(began_after)}
    )
    app.say(f"Host {args.host} is enabled: it gets servers again.")
    status = moves.carry_out(app, args, planned)
    if status == 0:
        conductor.service_update(app.context, service.uuid, {"disabled": False, "disabled_reason": None})
        app.say(f"The maintenance of host {args.host} has ended.")
    return status
