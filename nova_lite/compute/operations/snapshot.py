"""Snapshots on the host: an image file is made of the guest's disk, uploaded, and removed again."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Iterator

import msgspec

from nova_lite import operations
from nova_lite.base import exceptions, failpoints, files
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.compute.host import LocalHost
from nova_lite.objects import ActionCommand, Image
from nova_lite.virt.driver import Snapshots, snapshots_path

LOG = logging.getLogger(__name__)

#: Seconds between two questions to the conductor whether the image is still wanted.
ASK_SECONDS = 15.0
#: Seconds that a snapshot which waits for its turn sleeps at a time.
WAIT_SECONDS = 0.5
#: The hypervisor runs as another user, and writes below this directory.
DIRECTORY_MODE = 0o711


def snapshot_instance(host: LocalHost, command: ActionCommand) -> None:
    """Make the image ``payload["image"]`` of the instance, running or not."""
    host.require_domain(command)
    upload_snapshot(host, command)


def backup_instance(host: LocalHost, command: ActionCommand) -> None:
    """The same: that it is one of several which are kept is the conductor's business."""
    snapshot_instance(host, command)


def upload_snapshot(host: LocalHost, command: ActionCommand) -> None:
    """Raises `ActionOver` when somebody has asked for something else meanwhile, as for a delete."""
    driver = host.driver
    if not isinstance(driver, Snapshots):
        raise exceptions.NotImplementedByDriver(operation="snapshot")
    image = msgspec.convert(command.payload["image"], Image)
    progress = Progress(host, command)
    *begins, pending, uploading = progress.tasks
    with _turn(host, progress), _file(host, image) as path:
        for task_state in begins:
            progress.come_to(task_state)
        failpoints.reach("snapshot", "before")
        started = time.monotonic()
        driver.snapshot(command.instance.uuid, path, progress.check)
        failpoints.reach("snapshot", "after")
        size = os.path.getsize(path)
        LOG.info(
            "Instance %s: snapshot %s of %d bytes in %.1f s",
            command.instance.uuid,
            image.id,
            size,
            time.monotonic() - started,
        )
        progress.come_to(pending)
        progress.come_to(uploading)
        host.retrier.ask(
            f"Instance {command.instance.uuid}: upload of image {image.id}",
            lambda: host.images.upload(image, path, host.name, progress.uploaded(image.id, size)),
            progress.check,
        )
        failpoints.reach("upload", "after")


class Progress:
    """What the conductor is told of the work on an order, and whether it is still wanted."""

    def __init__(self, host: LocalHost, command: ActionCommand) -> None:
        self._host = host
        self._ticket = command
        self._context: RequestContext = get_admin_context()
        row = operations.get(command.action, command.payload)
        step = next(
            step for step in row.steps if isinstance(step, operations.HostStep) and step.method == command.method
        )
        self.tasks = step.tasks
        self._task = step.task or ""
        self._asked_at = time.monotonic()

    def come_to(self, task_state: str) -> None:
        self._task = task_state
        self._host.retrier.ask(f"Instance {self._ticket.instance.uuid}: {task_state}", self._tell, self._check_order)

    def check(self) -> None:
        """To be called often; raises `ActionOver`."""
        self._check_order()
        if time.monotonic() - self._asked_at >= ASK_SECONDS:
            with contextlib.suppress(exceptions.ServiceUnavailable):  # it is asked again
                self._tell()

    def uploaded(self, image_id: str, size: int) -> files.Progress:
        """What hears of the bytes that were sent, and logs each tenth."""
        said = 0

        def hear(sent: int) -> None:
            nonlocal said
            self.check()
            tenth = 10 * sent // max(size, 1)
            if tenth > said:
                said = tenth
                LOG.info("Image %s: %d of %d bytes are uploaded", image_id, sent, size)

        return hear

    def _check_order(self) -> None:
        """Each later order is noted before it waits for the instance's lock, which this one holds."""
        command = self._ticket
        if self._host.fencing.get(command.instance.uuid).last_action_id != command.action_id:
            raise exceptions.ActionOver(action=command.action, instance_id=command.instance.uuid)

    def _tell(self) -> None:
        command, self._asked_at = self._ticket, time.monotonic()
        wanted = self._host.conductor.report_task(self._context, self._host.name, command.action_id, self._task)
        if not wanted:
            raise exceptions.ActionOver(action=command.action, instance_id=command.instance.uuid)


def clean(host: LocalHost) -> None:
    """Remove what a daemon that was killed has left of image files, before there is any order."""
    shutil.rmtree(snapshots_path(host.conf, host.name), ignore_errors=True)


@contextlib.contextmanager
def _turn(host: LocalHost, progress: Progress) -> Iterator[None]:
    while not host.snapshot_slots.acquire(timeout=WAIT_SECONDS):
        progress.check()
    try:
        yield
    finally:
        host.snapshot_slots.release()


@contextlib.contextmanager
def _file(host: LocalHost, image: Image) -> Iterator[str]:
    """Where the image file is made; whatever happens, nothing stays there."""
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
