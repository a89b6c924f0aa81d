"""``[server_backups]``: backups of servers by policies. ``nova-lite-manage backup`` saves the control plane instead."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg

OPTS = [
    cfg.StrOpt(
        "engine",
        default="images",
        choices=[
            ("images", "each backup is an image with the whole root disk"),
            ("restic", "increments of the root disk, and volumes, deduplicated and encrypted in a repository"),
        ],
        help=(
            "How backups by policies are stored. Backups that exist are kept, and can be restored, if this changes. "
            "Set restic for servers whose disks are large and change little."
        ),
    ),
    cfg.StrOpt(
        "repository",
        default="",
        help=(
            "Place of the repositories of engine restic: a directory that the conductors can write, or another place "
            "that restic knows, such as sftp:user@host:/path or s3:https://host/bucket. Each project has a repository "
            "of its own in it. Set it for engine restic."
        ),
    ),
    cfg.StrOpt(
        "password_file",
        default="",
        help=(
            "File with the password of the repositories, readable by the conductors alone. Without it no conductor can "
            "read a backup: keep a copy elsewhere. Set it for engine restic."
        ),
    ),
    cfg.StrOpt(
        "credentials_file",
        default="",
        help=(
            "File with the access key of an S3 server, in the form of AWS's shared credentials, readable by the "
            "conductors alone. Set it if repository is in such a server."
        ),
    ),
    cfg.IntOpt(
        "full_every",
        default=28,
        min=1,
        help=(
            "Engine restic: one backup of so many reads and stores the whole disk; the others are increments. A "
            "restoration reads all increments since the whole one. Lower it for faster restorations."
        ),
    ),
    cfg.FloatOpt(
        "interval",
        default=15.0,
        min=0.1,
        help=(
            "Seconds between two looks of the conductors at backup policies. Raise it if backups may begin later than "
            "their policies say."
        ),
    ),
    cfg.IntOpt(
        "max_running",
        default=8,
        min=1,
        help=(
            "Largest number of backups by policies that run at a time in the cloud. Raise it if the image store takes "
            "more data at a time, lower it if backups slow other uploads down."
        ),
    ),
    cfg.IntOpt(
        "max_running_per_host",
        default=1,
        min=1,
        help=(
            "Largest number of backups by policies that run at a time on a host. Raise it for hosts whose disks are "
            "fast enough for guests and several backups."
        ),
    ),
    cfg.IntOpt(
        "spread",
        default=600,
        min=0,
        help=(
            "Seconds over which the backups of a policy begin. Each server has its own moment, which is always the "
            "same. At most half of the time until the policy's window ends. Raise it for policies with many servers."
        ),
    ),
    cfg.IntOpt(
        "retry_seconds",
        default=60,
        min=1,
        help=(
            "Seconds after which a backup is tried again, within its window, if its server is busy. Lower it if "
            "windows are short."
        ),
    ),
    cfg.IntOpt(
        "max_locked_days",
        default=400,
        min=0,
        help=(
            "Most days for which a project may lock a backup. No user and no admin can free the room of a locked "
            "backup earlier. Set 0 to forbid locks, and raise it if laws demand more."
        ),
    ),
    cfg.IntOpt(
        "policies_per_project",
        default=20,
        min=-1,
        help="Largest number of backup policies of a project. -1: unlimited. Raise it for projects that need more.",
    ),
]


def register_opts(conf: cfg.ConfigOpts) -> None:
    conf.register_opts(OPTS, group="server_backups")


def list_opts() -> dict[str, Sequence[cfg.Opt]]:
    return {"server_backups": OPTS}
