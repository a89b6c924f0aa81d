"""Backups of servers by policies: plans them, begins their actions, records their ends, and removes old ones.

The oldest conductor that is up does this periodically, so limits of running backups hold. While two conductors both
take themselves for the oldest, each backup still begins once, because its row changes its status in the transaction
that accepts its action. A step that was interrupted is repeated.
"""

from __future__ import annotations

import collections
import datetime
import functools
import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.backups import retention
from nova_lite.base import exceptions, metrics, threads
from nova_lite.base.context import RequestContext
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.backups.stored_backups import Interval, StoredBackups
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.db.backups import backup_policies, server_backups
from nova_lite.db.backups.server_backups import Waiting
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import services
from nova_lite.db.image import images
from nova_lite.db.servers import instances
from nova_lite.image import snapshots
from nova_lite.image.driver import ImageCall
from nova_lite.objects import (
    ActionCommand,
    BackupDisk,
    BackupEngine,
    BackupStatus,
    Image,
    Instance,
    PolicyStatus,
    ServerBackup,
)

LOG = logging.getLogger(__name__)

#: Rotation of createBackup that removes nothing: the policy's retention does.
KEEP_ALL = 2**31 - 1
#: States of hosts on which no backup begins: it would keep the server busy until its deadline.
_UNREACHABLE = ("DOWN", "UNKNOWN")
#: Backups that one run removes.
_BATCH = 64


class ScheduledBackups:
    """The conductor's periodic work for backup policies."""

    def __init__(
        self, engine: ActionEngine, timing: ConductorTiming = TIMING.conductor, stored: StoredBackups | None = None
    ) -> None:
        self.engine = engine
        self.stored = stored or StoredBackups(engine, None, timing)
        self.db = engine.db
        self.conf = engine.conf
        self.images = engine.images
        self._lock = threads.Lock()
        self._statuses: list[PolicyStatus] = []
        self._failed_days = timing.failed_backup_days
        self._retained = Interval(timing.backup_retention_interval)
        #: The repository did not answer the last look at old backups.
        self._is_stalled = False
        self._published = Interval(timing.backup_status_interval)

    def run_if_first(self) -> None:
        """Do the work if this is the oldest conductor that is up."""
        if self.db.read(services.is_first, services.CONDUCTOR, self.conf.host):
            self.run()
        else:
            self._publish([])

    def run(self) -> None:
        """Do all work that is due. Old backups and metrics are looked at less often."""
        for policy_id in self.db.read(backup_policies.due):
            if number := self.db.write(backup_policies.plan_backups, policy_id):
                LOG.info("Backup policy %s: %d backups are due", policy_id, number)
        has_new = self._settle()
        self._begin_due()
        if self._retained.is_due() or (has_new and not self._is_stalled):
            self._retain()
        for backup in self.db.read(server_backups.to_remove, _BATCH):
            self.engine.guarded(functools.partial(self._remove, backup))
        if old := self.db.read(server_backups.expired, self._failed_days):
            self.db.write(server_backups.expire_backups, old)
        if self._published.is_due() or has_new:
            self._publish(self.db.read(backup_policies.statuses))

    def samples(self) -> Iterable[tuple[str, metrics.Sample]]:
        """Yield the age of each policy's backups, and the number of servers that lack one."""
        with self._lock:
            statuses = self._statuses
        if not statuses:
            return
        now = self.db.read(_now)
        for status in statuses:
            if (newest := status.newest_at) is not None:
                yield metrics.sample(metrics.BACKUP_AGE, (now - newest).total_seconds(), status.policy.id)
            yield metrics.sample(metrics.BACKUPS_MISSING, status.unmet, status.policy.id)

    def _publish(self, statuses: list[PolicyStatus]) -> None:
        with self._lock:
            self._statuses = statuses

    # --- begin

    def _begin_due(self) -> None:
        limits = self.conf.server_backups
        running = self.db.read(server_backups.running)
        by_host = collections.Counter(backup.host for backup in running)
        by_project = collections.Counter(backup.project_id for backup in running)
        for waiting in _in_turn(self.db.read(server_backups.startable), by_project):
            is_full = (
                sum(by_host.values()) >= limits.max_running or by_host[waiting.host] >= limits.max_running_per_host
            )
            if waiting.is_late:
                reason = waiting.reason or (
                    "other backups took all of its slots" if is_full else "no conductor began it"
                )
                self._fail(waiting.backup_id, BackupStatus.PENDING, f"its window has passed: {reason}")
            elif not is_full and self._begin(waiting.backup_id):
                by_host[waiting.host] += 1
                by_project[waiting.project_id] += 1

    def _begin(self, backup_id: str) -> bool:
        """Begin a backup. Return False if it did not begin."""
        found = self.db.read(server_backups.candidate, backup_id)
        if found is None:
            return False
        backup, instance = found
        if instance is None:
            self.db.write(server_backups.drop_backup, backup.id)
            return False
        try:
            if instance.host_status in _UNREACHABLE:
                raise exceptions.ComputeHostUnavailable(host=instance.host)
            image = _image(backup, instance, self._engine)
            if not self.images.has_local_rows and not self.db.write(server_backups.note_image, backup.id):
                return False
            registered = self.images.register_for_owner(image)
            command = self.db.write(self._begin_backup, backup.id, registered or image, registered is not None)
        except (exceptions.Conflict, exceptions.ServiceUnavailable) as error:
            if not self.db.write(server_backups.put_backup_off, backup.id, error.message, self._retry_seconds):
                self._fail(backup.id, BackupStatus.PENDING, f"its window has passed: {error.message}")
            return False
        except exceptions.NovaLiteException as error:
            self._fail(backup.id, BackupStatus.PENDING, error.message)
            return False
        if command is None:
            return False
        self.engine.send(command, _context(backup))
        return True

    @property
    def _engine(self) -> BackupEngine:
        """Engine of new backups."""
        return BackupEngine(self.conf.server_backups.engine)

    @property
    def _retry_seconds(self) -> float:
        return float(self.conf.server_backups.retry_seconds)

    def _begin_backup(self, uow: UnitOfWork, backup_id: str, image: Image, is_registered: bool) -> ActionCommand | None:
        """Accept the backup's action and mark it as running, in one transaction."""
        row = server_backups.lock(uow, backup_id, BackupStatus.PENDING)
        if row is None:
            return None
        context = _context(server_backups.to_backup(row))
        server = instances.get_row(uow, context, row.instance_uuid)
        base = None
        disks: list[BackupDisk] = []
        payload: dict[str, Any] = {
            "image": msgspec.to_builtins(image),
            "registered": is_registered,
            "backup_type": _backup_type(row.policy_id),
            "rotation": KEEP_ALL,
        }
        if self._engine is BackupEngine.RESTIC:
            base = server_backups.base_of(uow, row, server, self.conf.server_backups.full_every)
            policy = backup_policies.by_id(uow, row.policy_id)
            disks = server_backups.disks_to_back_up(uow, server, policy is not None and bool(policy.volumes))
            if policy is not None and policy.locked_days:
                row.locked_until = uow.now + datetime.timedelta(days=policy.locked_days)
            payload["backup"] = {"backup_id": row.uuid}
            if any(disk.volume_id for disk in disks):
                payload["backup"]["disks"] = [disk.volume_id for disk in disks]
            if base is not None:
                payload["backup"] |= {"base": base.uuid, "base_size": base.disk_size}
                payload["backup"]["base_disks"] = server_backups.layout(server_backups.to_backup(base).disks)
            payload["of_disk"] = True
        kind = operations.CREATE_BACKUP.kind
        command = self.engine.accept_in(uow, context, row.instance_uuid, kind, payload)
        server_backups.begin(uow, row, command.action_id, server, image, self._engine, base, disks)
        return command

    # --- end

    def _settle(self) -> bool:
        """Record the ends of actions, and return whether there were any.

        A backup is complete only if its image is active.
        """
        ended = self.db.read(server_backups.ended)
        for backup, cause in ended:
            self.engine.guarded(functools.partial(self._settle_one, backup, cause))
        return bool(ended)

    def _settle_one(self, backup: ServerBackup, cause: str | None) -> None:
        image = self._image_of(backup) if cause is None else None
        if image is None:
            self._fail(backup.id, BackupStatus.RUNNING, cause or "its image is not active")
        elif backup.engine != BackupEngine.IMAGES:
            self.db.write(server_backups.begin_storing, backup.id, image.size)
        elif self.db.write(server_backups.complete_backup, backup.id, image.size):
            metrics.SERVER_BACKUPS.labels(BackupStatus.COMPLETE).inc()
            LOG.info("Backup %s of server %s is complete", backup.id, backup.instance_uuid)

    def _image_of(self, backup: ServerBackup) -> Image | None:
        """Return the backup's image, or None if it is not active. Raises `ServiceUnavailable` if that is unknown."""
        if self.images.has_local_rows:
            image = self.db.read(images.by_id, backup.image_id)
            return image if image is not None and image.status == "active" else None
        try:
            return self.images.publish(_call(backup))
        except (exceptions.ImageNotFound, exceptions.ImageFileMissing):
            return None

    def _fail(self, backup_id: str, status: BackupStatus, reason: str) -> None:
        if (backup := self.db.write(server_backups.fail_backup, backup_id, status, reason)) is not None:
            if not self.images.has_local_rows:
                self.engine.guarded(lambda: self.images.discard(_call(backup)))
            metrics.SERVER_BACKUPS.labels(BackupStatus.FAILED).inc()
            LOG.warning("Backup %s has failed: %s", backup_id, reason)

    # --- retention

    def _retain(self) -> None:
        """Mark old backups for removal. If the repository does not answer, the rest waits for the next interval.

        Otherwise each look would keep new backups from their beginning until restic is ended.
        """
        self._is_stalled = False
        for policy_id, instance_uuid in self.db.read(server_backups.groups):
            self.engine.guarded(functools.partial(self._retain_one, policy_id, instance_uuid))
            if self._is_stalled:
                self._retained.restart()
                return

    def _retain_one(self, policy_id: str, instance_uuid: str) -> None:
        policy = self.db.read(backup_policies.by_id, policy_id)
        if policy is None:
            return
        backups = self.db.read(server_backups.series, policy_id, instance_uuid)
        old = retention.superfluous(policy, backups, _scheduled_for)
        if old and self._is_newest_there(backups) and (number := self.db.write(server_backups.retire_backups, old)):
            LOG.info("Backup policy %s: %d old backups of %s are removed", policy_id, number, instance_uuid)

    def _is_newest_there(self, backups: list[ServerBackup]) -> bool:
        """Check whether the newest backup can be restored, and record it if it cannot.

        Its image exists, or its data and all that they are based on are in the repository.
        """
        newest = backups[0]
        if newest.engine != BackupEngine.IMAGES:
            try:
                missing = self.stored.missing_link(newest.id)
            except exceptions.BackupRepositoryStalled:
                self._is_stalled = True
                raise
            if missing is not None:
                self.stored.lose(missing)
            return missing is None
        if self._image_of(newest) is not None:
            return True
        LOG.warning("Backup %s of server %s has no image any more", newest.id, newest.instance_uuid)
        self.db.write(server_backups.lose_backup, newest.id, "its image was deleted")
        return False

    def _remove(self, backup: ServerBackup) -> None:
        """Remove the image, first its row and then its file, and then the backup's row."""
        if self.images.has_local_rows:
            self.db.write(server_backups.drop_backup_image, backup.image_id)
        self.images.discard(_call(backup))
        self.db.write(server_backups.forget_backup, backup)


def _in_turn(waiting: Iterable[Waiting], running: Mapping[str, int]) -> Iterator[Waiting]:
    """Yield the late backups, and then always the next one of the project with the fewest in ``running``.

    The caller counts there what it begins. Among equal projects, and within a project, the order stays as it was.
    """
    queues: dict[str, collections.deque[tuple[int, Waiting]]] = {}
    for position, backup in enumerate(waiting):
        if backup.is_late:
            yield backup
        else:
            queues.setdefault(backup.project_id, collections.deque()).append((position, backup))
    projects = [(running[project_id], queue[0][0], project_id) for project_id, queue in queues.items()]
    heapq.heapify(projects)
    while projects:
        project_id = heapq.heappop(projects)[-1]
        queue = queues[project_id]
        yield queue.popleft()[1]
        if queue:
            heapq.heappush(projects, (running[project_id], queue[0][0], project_id))


def _now(uow: UnitOfWork) -> datetime.datetime:
    return uow.now


def _scheduled_for(backup: ServerBackup) -> datetime.datetime:
    return backup.scheduled_for


def _context(backup: ServerBackup) -> RequestContext:
    """Return the context of the policy's project and user. A locked server is backed up, too."""
    return RequestContext(
        user_id=backup.user_id,
        project_id=backup.project_id,
        is_admin=True,
        roles=["admin"],
        request_id=f"req-{backup.id}",
        overwrite=False,
    )


def _call(backup: ServerBackup) -> ImageCall:
    return ImageCall(image_id=backup.image_id, project_id=backup.project_id, instance_uuid=backup.instance_uuid)


def _backup_type(policy_id: str) -> str:
    """Return the image's property that no rotation of a user names by accident."""
    return f"policy-{policy_id}"


def _image(backup: ServerBackup, instance: Instance, engine: BackupEngine) -> Image:
    """Return the queued image for a backup. Data on the way to a repository are no disk, and lists do not show them."""
    name = f"{instance.display_name[:200]} {backup.scheduled_for:%Y-%m-%d %H:%M}"
    properties = {"backup_type": _backup_type(backup.policy_id), "backup_id": backup.id}
    image = snapshots.image_of(_context(backup), instance, name, snapshots.BACKUP, properties)
    if engine is BackupEngine.RESTIC:
        image = msgspec.structs.replace(image, disk_format="raw", hidden=True)
    return msgspec.structs.replace(image, id=backup.image_id)
