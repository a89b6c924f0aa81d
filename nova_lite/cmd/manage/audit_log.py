"""Command ``audit-log``: changes of users and operators. (``audit`` compares rows with each other.)

A command that wrote to the database leaves an event, with the name of the command and the Unix user, but no arguments.
"""

from __future__ import annotations

import argparse
import datetime
import os
import pwd
import uuid

from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands, at_least, utc_time
from nova_lite.db.upkeep import audit_events, purge
from nova_lite.objects import AuditEvent, AuditQuery
from nova_lite.objects.audit import FAILURE, FILTERS, SUCCESS

SERVICE = "manage"


def register(commands: Commands) -> None:
    noun = commands.noun("audit-log", "Show and purge the log of changes, log-ins and denied requests of all APIs.")
    list_ = commands.verb(noun, "list", "List events, the newest first.", show)
    for name in FILTERS:
        list_.add_argument("--" + name.removesuffix("_id"), dest=name, metavar="ID" if name.endswith("_id") else "NAME")
    for name in ("since", "until"):
        list_.add_argument(f"--{name}", type=utc_time, metavar="TIME", help="ISO 8601, in UTC unless it has an offset")
    list_.add_argument("--limit", type=at_least(1), default=100, metavar="N", help="number of events; default: 100")
    list_.add_argument("--marker", metavar="ID", help="list events that are older than this one")
    purge_ = commands.verb(
        noun,
        "purge",
        "Remove events of a certain age. The daemons may run.",
        clean,
    )
    purge_.add_argument("--older-than", type=at_least(0), metavar="DAYS", required=True)
    purge_.add_argument("--dry-run", action="store_true", help="count the events, but delete nothing")


def show(app: App, args: argparse.Namespace) -> None:
    query = AuditQuery(
        limit=args.limit,
        filters={name: value for name in FILTERS if (value := getattr(args, name)) is not None},
        since=args.since,
        until=args.until,
        marker=args.marker,
    )
    app.show(
        ("Time", "Service", "Action", "Outcome", "Code", "User", "Project", "Address", "Target", "Path", "Count", "ID"),
        (
            (
                event.event_time,
                event.service,
                event.action,
                event.outcome,
                event.reason_code,
                event.user_id or event.credential,
                event.project_id,
                event.address,
                event.target_id,
                event.path,
                event.count,
                event.uuid,
            )
            for event in app.db.read(audit_events.list_, query)
        ),
    )


def clean(app: App, args: argparse.Namespace) -> None:
    before = app.db.read(purge.days_ago, args.older_than)
    gone = app.db.read(audit_events.count, before) if args.dry_run else audit_events.purge(app.db, before)
    app.say(f"{gone} event(s) {'would go' if args.dry_run else 'purged'}.")


def record(app: App, command: str, error: Exception | None) -> None:
    """Record a command that wrote to the database. ``command``: its name, as ``nova-lite-manage user create``."""
    _, noun, *verb = command.split()
    name = verb[0] if verb else noun
    code = error.code if isinstance(error, exceptions.NovaLiteException) else 0 if error is None else 500
    event = AuditEvent(
        uuid=str(uuid.uuid4()),
        event_time=datetime.datetime.now(datetime.UTC).replace(tzinfo=None),
        service=SERVICE,
        action=name if name in ("create", "delete") else f"update/{name}",
        outcome=SUCCESS if error is None else FAILURE,
        reason_code=code,
        request_id=app.context.request_id,
        credential=f"unix/{_unix_user()}",
        target_type=f"service/{SERVICE}/{noun}",
        path=command,
        observer=app.conf.host,
    )
    app.db.write(audit_events.record_events, [event])


def _unix_user() -> str:
    """Return the name of the process's user, or its number if it has no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
