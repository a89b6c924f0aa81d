"""Command ``backup-policy``: policies by which servers are backed up. ``backup`` saves the control plane."""

from __future__ import annotations

import argparse

from nova_lite.backups import chain, repository
from nova_lite.base import exceptions
from nova_lite.cmd.manage.app import App, Commands
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.objects import BackupPolicy, ServerBackup
from nova_lite.objects.backup import Every


def register(commands: Commands) -> None:
    noun = commands.noun("backup-policy", "List the backup policies of servers, and check whether they are met.")
    commands.verb(noun, "list", "List the backup policies of all projects.", list_)
    status_ = commands.verb(noun, "status", "Print the servers of a policy. Exit 1 if it is not met.", status)
    status_.add_argument("id", nargs="?", help="id of a policy; without it, all enabled policies")
    verify_ = commands.verb(
        noun, "verify", "Read the backups in repositories and check their data. Exit 1 if any is damaged.", verify
    )
    verify_.add_argument("id", nargs="?", help="id of a policy; without it, the backups of all policies")
    verify_.add_argument("--newest", action="store_true", help="only the newest backup of each server, with its bases")


def list_(app: App, args: argparse.Namespace) -> None:
    found = app.db.read(backup_policies.list_, app.context, all_projects=True, limit=None)
    app.show(
        ("ID", "Name", "Project", "Enabled", "Schedule", "Hourly", "Daily", "Weekly", "Next run"),
        [
            (
                policy.id,
                policy.name,
                policy.project_id,
                policy.enabled,
                _schedule(policy),
                policy.keep_hourly,
                policy.keep_daily,
                policy.keep_weekly,
                policy.next_run_at,
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
                item.policy.id,
                server.instance_uuid,
                server.name,
                server.is_met,
                server.complete.scheduled_for if server.complete else None,
                *((server.failed.scheduled_for, server.failed.reason) if server.failed else (None, None)),
            )
            for item in found
            for server in item.servers
        ],
    )
    return 1 if any(item.unmet for item in found) else 0


def verify(app: App, args: argparse.Namespace) -> int:
    """Read each backup from its repository. A backup on whose data others are based is read once."""
    repositories = repository.load(app.conf)
    if repositories is None:
        raise exceptions.ConfigurationError(reason="[server_backups] repository is not set.")
    results: list[tuple[ServerBackup, str | None]] = []
    for backup in app.db.read(server_backups.in_repositories, args.id, args.newest):
        try:
            chain.verify(repositories.of_project(backup.project_id), backup)
        except exceptions.NovaLiteException as error:
            results.append((backup, error.message))
        else:
            results.append((backup, None))
    app.show(
        ("Backup", "Server", "Scheduled for", "Base", "Sound", "Reason"),
        [
            (backup.id, backup.instance_uuid, backup.scheduled_for, backup.base_id, reason is None, reason)
            for backup, reason in results
        ],
    )
    return 1 if any(reason is not None for _, reason in results) else 0


def _schedule(policy: BackupPolicy) -> str:
    if policy.every is Every.HOUR:
        return f"hour :{policy.minute:02}"
    day = f" weekday {policy.weekday}" if policy.every is Every.WEEK else ""
    return f"{policy.every}{day} {policy.hour:02}:{policy.minute:02}"
