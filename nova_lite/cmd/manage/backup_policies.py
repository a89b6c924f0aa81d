"""Command ``backup-policy``: policies by which servers are backed up. ``backup`` saves the control plane."""

from __future__ import annotations

import argparse

from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db import backup_policies
from nova_lite.objects import BackupPolicy
from nova_lite.objects.backup import Every


def register(commands: Commands) -> None:
    noun = commands.noun("backup-policy", "List the backup policies of servers, and check whether they are met.")
    commands.verb(noun, "list", "List the backup policies of all projects.", list_)
    status_ = commands.verb(noun, "status", "Print the servers of a policy. Exit 1 if it is not met.", status)
    status_.add_argument("id", nargs="?", help="id of a policy; without it, all enabled policies")


def list_(app: App, args: argparse.Namespace) -> None:
    found = app.db.read(backup_policies.list_, app.context, all_projects=True, limit=None)
    app.show(
        ("ID", "Name", "Project", "Enabled", "Schedule", "Hourly", "Daily", "Weekly", "Next run"),
        [
            (
                *(policy.id, policy.name, policy.project_id, policy.enabled, _schedule(policy)),
                *(policy.keep_hourly, policy.keep_daily, policy.keep_weekly, policy.next_run_at),
            )
            for policy in found
        ],
    )


def status(app: App, args: argparse.Namespace) -> int:
    if args.id is None:
        found = app.db.read(backup_policies.statuses)
    else:
        found = [app.db.read(backup_policies.status, app.context, args.id)]
    app.show(
        ("Policy", "Server", "Name", "Met", "Last backup", "Last failure", "Reason"),
        [
            (
                *(item.policy.id, server.instance_uuid, server.name, server.is_met),
                server.complete.scheduled_for if server.complete else None,
                *((server.failed.scheduled_for, server.failed.reason) if server.failed else (None, None)),
            )
            for item in found
            for server in item.servers
        ],
    )
    return 1 if any(item.unmet for item in found) else 0


def _schedule(policy: BackupPolicy) -> str:
    if policy.every is Every.HOUR:
        return f"hour :{policy.minute:02}"
    day = f" weekday {policy.weekday}" if policy.every is Every.WEEK else ""
    return f"{policy.every}{day} {policy.hour:02}:{policy.minute:02}"
