"""Work on the files of volumes: sent to hosts, repeated if it was lost, and ended with its result.

A task is a row that was written with the request. A host changes the file and reports the result. The reconciler sends
lost work again.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext, get_admin_context
from nova_lite.base.timing import TIMING
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.volume import backups as volume_backups
from nova_lite.db.core import actions, models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.image import images
from nova_lite.db.volume import attachments, volume_keys, volume_tasks, volumes
from nova_lite.image.driver import ImageCall
from nova_lite.objects import (
    InstanceActionEvent,
    VolumeVerb,
    VolumeWork,
)

LOG = logging.getLogger(__name__)

#: State of a volume while an image is made of it.
UPLOADING = "uploading"


class VolumeTasks:
    def __init__(self, engine: ActionEngine) -> None:
        self.engine = engine
        self.db = engine.db

    def accept(
        self,
        uow: UnitOfWork,
        context: RequestContext,
        verb: VolumeVerb,
        volume_id: str,
        reads: str | None = None,
        **payload: Any,
    ) -> None:
        """Accept work of a host within a transaction."""
        self._add(uow, str(context.request_id), verb, volume_id, reads, **payload)

    def _add(
        self,
        uow: UnitOfWork,
        request_id: str,
        verb: VolumeVerb,
        volume_id: str,
        reads: str | None = None,
        **payload: Any,
    ) -> None:
        """Write a due task. It is sent after the commit; else the reconciler sends it."""
        task = volume_tasks.add(uow, request_id, verb, volume_id, reads, **payload)
        send: Callable[[], None] = functools.partial(self.drive, task.id)
        uow.after_commit(lambda: self.engine.in_background(send))

    # --- dispatch

    def due(self) -> list[int]:
        """Return work that is due, to be sent again."""
        return self.db.read(volume_tasks.due, TIMING.conductor.reconcile_batch)

    def drive(self, task_id: int) -> None:
        """Send a task to its host, or end it after its deadline."""
        sent = self.db.write(self._take_volume_work, task_id)
        if sent is None:
            return
        host, work = sent
        try:
            self.engine.compute.volume_work(get_admin_context(), host, work)
        except exceptions.MessagingUnavailable as error:
            LOG.warning("%s of volume %s could not be sent: %s", work.verb, work.volume_id, error.message)

    def _take_volume_work(self, uow: UnitOfWork, task_id: int) -> tuple[str, VolumeWork] | None:
        task = volume_tasks.lock(uow, task_id)
        if task is None:
            return None
        if task.deadline <= uow.now:
            self._end(uow, task, f"No host has done it within {TIMING.volumes.task:.0f} s.")
            return None
        volume_tasks.take(uow, task)
        return None if task.host is None else (task.host, volume_tasks.work(uow, task))

    def finish(self, host: str, task_id: int, error: str | None) -> None:
        """Record the result of a task. Repeated reports are harmless, and reports of a host that no longer has it."""
        call = self.db.read(_image_call, host, task_id)
        if call is None:
            self.db.write(self._finish_volume_work, host, task_id, error)
            return
        if error is None:
            try:
                self.engine.images.publish(call)
            except exceptions.ServiceUnavailable:
                raise
            except exceptions.NovaLiteException as failure:
                error = failure.message
        self.db.write(self._finish_volume_work, host, task_id, error)
        if not self.db.read(_has_image, call.image_id):
            self.engine.images.discard(call)

    def _finish_volume_work(self, uow: UnitOfWork, host: str, task_id: int, error: str | None) -> None:
        task = volume_tasks.lock(uow, task_id)
        if task is not None and task.host == host:
            self._end(uow, task, error)

    def _end(self, uow: UnitOfWork, task: models.VolumeTask, error: str | None) -> None:
        if error is not None:
            LOG.warning("%s of volume %s has failed: %s", task.verb, task.volume_id, error)
        verb, snapshot_id = VolumeVerb(task.verb), task.payload.get("snapshot_id")
        snapshot = None if snapshot_id is None else uow.session.get(models.VolumeSnapshot, snapshot_id)
        volume = volumes.by_id(uow, task.volume_id, lock=True)
        uow.session.delete(task)
        if verb is VolumeVerb.EXTEND and task.payload.get("instance_uuid"):
            _note_in_history(uow, task, error)
        if verb in volume_backups.VERBS:
            volume_backups.end(uow, task, volume, error)
            return
        if verb is VolumeVerb.UPLOAD:
            _end_of_image(uow, task.payload["image_id"], error)
        if verb in (VolumeVerb.SNAPSHOT, VolumeVerb.DELETE_SNAPSHOT):
            if snapshot is not None:
                _end_of_snapshot(uow, verb, snapshot, error)
            if volume is not None and volume_tasks.CASCADE in task.payload:
                self._go_on_with_deletion(uow, task, volume, error)
        elif volume is not None:
            _end_of_volume(uow, verb, volume, task.payload, error)

    def _go_on_with_deletion(
        self, uow: UnitOfWork, task: models.VolumeTask, volume: models.Volume, error: str | None
    ) -> None:
        """Delete the volume after the last of its snapshots, unless one of them cannot be deleted."""
        if error is not None:
            volumes.change(volume, uow, {"status": "error_deleting"})
        elif volume.status == volumes.DELETING and not volumes.has_snapshots(uow, volume.id):
            self._add(uow, task.request_id, VolumeVerb.DELETE, volume.id)


def _image_call(uow: UnitOfWork, host: str, task_id: int) -> ImageCall | None:
    """Return the call that publishes the image of a task of this host. None: the task makes no image."""
    task = uow.session.get(models.VolumeTask, task_id)
    if task is None or task.host != host or task.verb != VolumeVerb.UPLOAD:
        return None
    image_id, image = task.payload["image_id"], task.payload["image"]
    return ImageCall(image_id=image_id, host=host, disk_format=image["disk_format"])


def _end_of_extension(uow: UnitOfWork, row: models.Volume, payload: dict[str, Any], error: str | None) -> None:
    """Record the end of an extension at one host. The volume is extended when all of its servers know the size."""
    changes: dict[str, Any] = {} if error is None else {"size": payload["old_size"]}
    if not volume_tasks.extends(uow, row.id):
        settled = attachments.status(uow, row)
        has_failed = error is not None and settled == volumes.AVAILABLE
        changes["status"] = "error_extending" if has_failed else settled
    volumes.change(row, uow, changes)


def _note_in_history(uow: UnitOfWork, task: models.VolumeTask, error: str | None) -> None:
    """Note the end of an extension in the history of the server that has the volume, under Nova's names."""
    event = InstanceActionEvent(
        event="compute_extend_volume",
        host=task.host,
        start_time=volume_tasks.accepted_at(uow, task),
        finish_time=uow.now,
        result="Success" if error is None else "Error",
        details=error,
    )
    actions.record_ended(uow, task.payload["instance_uuid"], task.request_id, "extend_volume", event)


def _has_image(uow: UnitOfWork, image_id: str) -> bool:
    return images.by_id(uow, image_id) is not None


def _end_of_image(uow: UnitOfWork, image_id: str, error: str | None) -> None:
    if error is None:
        images.activate(uow, image_id)
    else:
        images.drop(uow, [image_id])


def _end_of_snapshot(uow: UnitOfWork, verb: VolumeVerb, row: models.VolumeSnapshot, error: str | None) -> None:
    if verb is VolumeVerb.DELETE_SNAPSHOT and error is None:
        uow.session.delete(row)
        return
    done = volumes.AVAILABLE if error is None else volumes.ERROR
    volumes.change(row, uow, {"status": "error_deleting" if verb is VolumeVerb.DELETE_SNAPSHOT else done})


def _end_of_volume(
    uow: UnitOfWork, verb: VolumeVerb, row: models.Volume, payload: dict[str, Any], error: str | None
) -> None:
    if verb is VolumeVerb.UPLOAD:
        if row.status == UPLOADING:
            volumes.change(row, uow, {"status": volumes.AVAILABLE})
    elif verb is VolumeVerb.CREATE:
        volumes.change(row, uow, {"status": volumes.AVAILABLE if error is None else volumes.ERROR})
    elif verb is VolumeVerb.EXTEND:
        _end_of_extension(uow, row, payload, error)
    elif error is None:
        volume_keys.delete(uow, row.encryption_key_id)
        uow.session.delete(row)
    else:
        volumes.change(row, uow, {"status": "error_deleting"})
