"""Snapshots on the host: makes an image file of the guest's disk, uploads it, and removes it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions, files, trees
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image
from nova_lite.virt.abilities import BackupRequest
from nova_lite.virt.driver import snapshots_path

LOG = logging.getLogger(__name__)

#: Seconds between two queries to the conductor whether the image is still needed.
REPORT_SECONDS = 15.0
#: The hypervisor writes below this directory as another user.
DIRECTORY_MODE = 0o711


def snapshot_instance(host: LocalHost, command: ActionCommand) -> None:
    """Make the image ``payload["image"]`` of the instance, running or not."""
    host.require_domain(command)
    upload_snapshot(host, command)


def backup_instance(host: LocalHost, command: ActionCommand) -> None:
    """Make an image. The conductor rotates the backups."""
    snapshot_instance(host, command)


def backup_disk(host: LocalHost, command: ActionCommand) -> None:
    """Upload a stream of the disks. ``payload["backup"]``: the `BackupRequest`."""
    host.require_domain(command)
    take = host.driver.backups.take
    request = msgspec.convert(command.payload["backup"], BackupRequest)

    def exported(volume_id: str) -> AbstractContextManager[str]:
        if host.volumes.remote:
            raise exceptions.VirtDriverError(
                reason=f"volume {volume_id} is one of Cinder, and can be read only while the guest runs"
            )
        return host.volumes.exported(volume_id, "raw")

    _make_and_upload(host, command, lambda path, check: take(command.instance.uuid, path, request, check, exported))


def upload_snapshot(host: LocalHost, command: ActionCommand) -> None:
    """Make and upload the image. Raise `ActionOver` if the action has ended, for example because of a delete."""
    take = host.driver.snapshots.take
    _make_and_upload(host, command, lambda path, check: take(command.instance.uuid, path, check))


def _make_and_upload(host: LocalHost, command: ActionCommand, make: Callable[[str, Callable[[], None]], None]) -> None:
    image = msgspec.convert(command.payload["image"], Image)
    progress = CommandProgress(host, command)
    *first_tasks, pending, uploading = progress.tasks
    with _slot(host, progress), _file(host, image) as path:
        for task_state in first_tasks:
            progress.enter(task_state)
        started = time.monotonic()
        make(path, progress.check)
        size = os.path.getsize(path)
        LOG.info(
            "Instance %s: snapshot %s of %d bytes in %.1f s",
            command.instance.uuid,
            image.id,
            size,
            time.monotonic() - started,
        )
        progress.enter(pending)
        progress.enter(uploading)
        host.retrier.call(
            f"Instance {command.instance.uuid}: upload of image {image.id}",
            lambda: host.images.upload(image, path, host.name, progress.uploaded(image.id, size)),
            progress.check,
        )


class CommandProgress:
    """Reports the progress of a command to the conductor, and checks whether the command is still current."""

    def __init__(self, host: LocalHost, command: ActionCommand) -> None:
        self._host = host
        self._command = command
        self._context: RequestContext = get_admin_context()
        definition = operations.get(command.action, command.payload)
        steps = [step for step in definition.steps if isinstance(step, operations.HostStep)]
        step = next(step for step in steps if command.method == step.method)
        self.tasks = step.tasks
        self._task = step.task or ""
        self._reported_at = time.monotonic()

    def enter(self, task_state: str) -> None:
        self._task = task_state
        self._host.retrier.call(
            f"Instance {self._command.instance.uuid}: {task_state}", self._report, self._check_current
        )

    def check(self) -> None:
        """Raise `ActionOver` if the command is not current any more. Call it often."""
        self._check_current()
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            with contextlib.suppress(exceptions.ServiceUnavailable):  # The next check repeats it.
                self._report()

    def uploaded(self, image_id: str, size: int) -> files.Progress:
        """Return a callback for the number of bytes sent. It logs each tenth."""
        logged = 0

        def log(sent: int) -> None:
            nonlocal logged
            self.check()
            tenth = 10 * sent // max(size, 1)
            if tenth > logged:
                logged = tenth
                LOG.info("Image %s: %d of %d bytes uploaded", image_id, sent, size)

        return log

    def _check_current(self) -> None:
        """Raise `ActionOver` if a later command has arrived. Commands are recorded before they wait for the instance's
        lock."""
        command = self._command
        if self._host.fencing.get(command.instance.uuid).last_action_id != command.action_id:
            raise exceptions.ActionOver(action=command.action, instance_id=command.instance.uuid)

    def _report(self) -> None:
        command, self._reported_at = self._command, time.monotonic()
        is_current = self._host.conductor.report_task(self._context, self._host.name, command.action_id, self._task)
        if not is_current:
            raise exceptions.ActionOver(action=command.action, instance_id=command.instance.uuid)


def clean(host: LocalHost) -> None:
    """Remove image files that a killed daemon has left. Call it before any command is accepted."""
    for left in trees.remove(snapshots_path(host.conf, host.name)):
        LOG.warning("Files of interrupted snapshots stay: %s", left)


@contextlib.contextmanager
def _slot(host: LocalHost, progress: CommandProgress) -> Iterator[None]:
    while not host.snapshot_slots.acquire(timeout=host.timing.snapshot_slot_poll):
        progress.check()
    try:
        yield
    finally:
        host.snapshot_slots.release()


@contextlib.contextmanager
def _file(host: LocalHost, image: Image) -> Iterator[str]:
    """Yield the path for the image file, and remove the file afterwards."""
    directory = snapshots_path(host.conf, host.name)
    path = os.path.join(directory, os.path.basename(image.id))
    try:
        os.makedirs(directory, exist_ok=True)
        os.chmod(directory, DIRECTORY_MODE)
        files.remove(path)
        yield path
    except OSError as error:
        raise exceptions.VirtDriverError(reason=error.strerror or str(error)) from error
    finally:
        files.remove(path)
