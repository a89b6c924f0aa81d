"""Backup policies, and the backups of servers that they make. Backups of volumes are in `nova_lite.objects.volume`."""

from __future__ import annotations

import datetime
import enum
from typing import Any

import msgspec


class Every(enum.StrEnum):
    """Period of a schedule."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"


class BackupPolicy(msgspec.Struct, kw_only=True):
    """Schedule, retention and targets of backups. All times are UTC.

    ``minute``, ``hour`` (of days and weeks) and ``weekday`` (of weeks; 0: Monday) are the time of the schedule.
    ``keep_hourly``, ``keep_daily`` and ``keep_weekly``: numbers of hours, days and weeks whose newest backup is kept.
    ``not_before`` and ``not_after``: minutes of the day between which backups begin; the window may contain midnight.
    ``servers``: uuids. A server is a target if it is listed, has one of the ``tags``, or if ``all_servers`` is set.
    ``volumes``: backups contain the attached volumes, too; None: the default of the engine. ``locked_days``: days for
    which no user can remove a backup. ``next_run_at``: the next time of the schedule; None while it is disabled.
    """

    id: str = ""
    name: str
    enabled: bool = True
    every: Every
    minute: int = 0
    hour: int = 0
    weekday: int = 0
    keep_hourly: int = 0
    keep_daily: int = 0
    keep_weekly: int = 0
    not_before: int | None = None
    not_after: int | None = None
    servers: list[str] = msgspec.field(default_factory=list)
    tags: list[str] = msgspec.field(default_factory=list)
    all_servers: bool = False
    volumes: bool | None = None
    locked_days: int = 0
    project_id: str = ""
    user_id: str = ""
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
    next_run_at: datetime.datetime | None = None


class BackupStatus(enum.StrEnum):
    """Status of a server's backup.

    PENDING: it waits for its time, for room, or for the server. RUNNING: its action is open. STORING: its data are
    moved to the repository. COMPLETE: its image is active, or its data are in the repository. DELETING: its data are
    being removed.
    """

    PENDING = "pending"
    RUNNING = "running"
    STORING = "storing"
    COMPLETE = "complete"
    FAILED = "failed"
    DELETING = "deleting"


class BackupEngine(enum.StrEnum):
    """Place of a backup's data: IMAGES: an image. RESTIC: a repository."""

    IMAGES = "images"
    RESTIC = "restic"


class RestoreStatus(enum.StrEnum):
    """Status of the image that is made of a backup in a repository."""

    WANTED = "wanted"
    READY = "ready"
    FAILED = "failed"


class BackupDisk(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Disk of a backup in a repository.

    ``volume_id``: "" is the server's own root disk. ``device``: its name in the guest (/dev/vdb), "" of the root disk.
    ``size``: bytes. ``image_id``: the image that is made of it.
    """

    volume_id: str = ""
    device: str = ""
    is_root: bool = False
    size: int = 0
    image_id: str | None = None


class ServerBackup(msgspec.Struct, kw_only=True):
    """Backup of a server that a policy has made, or will make.

    ``scheduled_for``: the time of the policy's schedule. ``due_at``: the next attempt. ``deadline``: after this time
    the backup does not begin any more. ``reason``: why it failed, or waits. ``size``: bytes of the image.
    ``server``: name, flavor, networks and metadata of the server, for a new server that is made of the backup.

    A backup in a repository has more. ``generation``: of the server when it was made. ``base_id``: the backup that it
    is an increment of. ``increments``: their number since the last whole backup. ``disk_size``: bytes of the disk.
    ``snapshot`` and ``digest``: its stream in the repository. ``has_image``: the uploaded stream is still in the image
    store, or an image is registered for a backup that has not begun. ``restored_image_id``, ``restore_status`` and
    ``restore_reason``: the image that is made of its root disk. ``disks``: what is in it, the root disk first.
    ``locked_until``: nothing removes it before this time.
    """

    id: str
    policy_id: str
    project_id: str
    user_id: str
    instance_uuid: str
    status: BackupStatus
    scheduled_for: datetime.datetime
    due_at: datetime.datetime
    deadline: datetime.datetime
    image_id: str
    size: int = 0
    attempts: int = 0
    reason: str | None = None
    action_id: int | None = None
    started_at: datetime.datetime | None = None
    finished_at: datetime.datetime | None = None
    server: dict[str, Any] = msgspec.field(default_factory=dict)
    engine: str = BackupEngine.IMAGES
    generation: int | None = None
    base_id: str | None = None
    increments: int = 0
    disk_size: int = 0
    snapshot: str | None = None
    digest: str | None = None
    has_image: bool = False
    restored_image_id: str | None = None
    restore_status: str | None = None
    restore_reason: str | None = None
    disks: list[BackupDisk] = msgspec.field(default_factory=list)
    locked_until: datetime.datetime | None = None


class BackupQuery(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Filters of a list of backups, and its page."""

    policy_id: str | None = None
    instance_uuid: str | None = None
    status: str | None = None
    limit: int | None = None
    marker: str | None = None
    all_projects: bool = False


class ServerProtection(msgspec.Struct, kw_only=True):
    """Protection of one server by a policy.

    ``complete``: its newest complete backup. ``failed``: its newest backup, if that failed. ``is_met``: the server has
    a backup of the last time of the schedule that has passed, or gets it in time
    (`nova_lite.db.backups.backup_policies.OVERTIME`).
    """

    instance_uuid: str
    name: str
    is_met: bool
    complete: ServerBackup | None = None
    failed: ServerBackup | None = None


class PolicyStatus(msgspec.Struct, kw_only=True):
    """Status of a policy. ``required_since``: backups from this time on fulfil the policy; None: none is due yet."""

    policy: BackupPolicy
    servers: list[ServerProtection]
    required_since: datetime.datetime | None = None

    @property
    def unmet(self) -> int:
        """Number of servers whose last backup is missing."""
        return sum(not server.is_met for server in self.servers)

    @property
    def newest_at(self) -> datetime.datetime | None:
        """Time of the oldest among the servers' newest backups, or None if a server has none."""
        times = [server.complete.scheduled_for if server.complete else None for server in self.servers]
        return None if None in times else min((time for time in times if time is not None), default=None)
