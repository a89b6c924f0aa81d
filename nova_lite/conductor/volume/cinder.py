"""Brings Cinder's volumes and attachments into the state that the rows of an instance's volumes describe.

Each row is leased to one conductor. It first reads Cinder's records of the volume and the instance, and then does what
is missing. So the next conductor finds everything that a lost reply or a dead conductor has left behind. An
attachment's id is written before the attachment gets a host. Other attachments in Cinder are used if one is needed, and
deleted otherwise. Connection data is not stored: it goes to the host, and Cinder is called again for a repeated
request.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from nova_lite.base import clock, exceptions
from nova_lite.base.timing import TIMING, ConductorTiming
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import CinderWorkDue
from nova_lite.db.core.models import CinderAttachment as Row
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import claims, instances
from nova_lite.db.volume import cinder
from nova_lite.objects import DeviceState, VolumeConnection
from nova_lite.objects.volume import FILE_CONNECTIONS

if TYPE_CHECKING:
    from nova_lite.volume.cinder_client import Attachment, CinderClient

LOG = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds until the next look at a volume that is being created, and until the next try after an error.
LOOK_AGAIN = 2.0
TRY_AGAIN = 10.0

#: Seconds after which the API will not begin to create a volume any more.
BEGIN_TIMEOUT = 180.0

_ATTACHED = "attached"

#: Cinder's states of a volume that is being created.
_CREATING = ("creating", "downloading", "restoring-backup")


class _Work(msgspec.Struct):
    """A leased row.

    ``hosts``: every host with an allocation of the instance. ``complete``: the one whose guest has the volume.
    """

    id: str
    token: str
    instance_uuid: str
    volume_id: str | None
    wanted: bool
    to_be_made: bool
    delete_volume: bool
    attachments: dict[str, dict[str, Any]]
    hosts: list[str]
    complete: str | None
    late: bool
    given_up: bool
    unsure: bool
    error: str | None


class CinderWorker:
    """Processes the rows of Cinder's volumes. Without ``client`` another backend has the volumes."""

    def __init__(
        self, engine: ActionEngine, client: CinderClient | None, timing: ConductorTiming = TIMING.conductor
    ) -> None:
        self.engine = engine
        self._timing = timing
        self.db = engine.db
        self.conf = engine.conf
        self._client = client

    def client(self) -> CinderClient:
        if self._client is None:
            raise exceptions.InvalidInput(reason="[volume] backend is not cinder")
        return self._client

    # --- connection

    def connect(self, host: str, instance_uuid: str, device_uuid: str, connector: dict[str, Any]) -> VolumeConnection:
        """Connect the volume to a host of the instance or its destination. A repeated request gets the same reply."""
        deadline = clock.monotonic() + self._timing.volume_lease_wait
        while (work := self.db.write(self._take, device_uuid)) is None:
            if clock.monotonic() >= deadline:
                raise exceptions.VolumeNotReady(volume_id=device_uuid)
            clock.sleep(self._timing.volume_lease_poll)
        return self._at(work, lambda: self._connect(work, host, instance_uuid, connector))

    def _connect(self, work: _Work, host: str, instance_uuid: str, connector: dict[str, Any]) -> VolumeConnection:
        if work.instance_uuid != instance_uuid or not work.wanted or host not in work.hosts:
            raise exceptions.VolumeBDMNotFound(instance_uuid=instance_uuid, volume_id=work.volume_id or work.id)
        self._make(work)
        listed = self._list_attachments(work)
        mine = work.attachments.get(host, {}).get("id")
        if mine not in listed:
            mine = self._one_for(work, host, listed)
        found = self.client().attachment(mine)
        if not found.info or found.status == "reserved":
            found = self._call(work, lambda: self.client().connect(mine, {**connector, "host": host}))
        if found.info.get("driver_volume_type") in FILE_CONNECTIONS and "format" not in found.info:
            found = self.client().attachment(mine)  # the response to the change lacks it
        if found.info.get("encrypted"):
            raise exceptions.InvalidVolume(reason=f"volume {work.volume_id} is encrypted, which is not supported here")
        volume = self.client().own_volume(str(work.volume_id))
        return VolumeConnection(volume_id=volume.id, size=volume.size, info=found.info, multiattach=volume.multiattach)

    # --- due rows

    def due(self) -> list[str]:
        """Return the ids of due rows."""
        return [] if self._client is None else self.db.read(cinder.due, TIMING.conductor.reconcile_batch)

    def announce(self, uow: UnitOfWork) -> None:
        """Process the rows of a transaction in the background, after its commit."""
        row_ids = {event.row_id for event in uow.published(CinderWorkDue)}
        uow.after_commit(lambda: self._process_soon(row_ids))

    def _process_soon(self, row_ids: Collection[str]) -> None:
        for device_uuid in sorted(row_ids):
            self.engine.in_background(lambda device_uuid=device_uuid: self.process(device_uuid))  # type: ignore[misc]

    def process(self, device_uuid: str) -> None:
        """Bring Cinder into the state of the row, unless another conductor has leased it."""
        work = self.db.write(self._take, device_uuid)
        if work is not None:
            with contextlib.suppress(exceptions.VolumeNotReady):  # it is due again
                self._at(work, lambda: self._converge(work) if work.wanted else self._release(work))

    def _converge(self, work: _Work) -> None:
        """Keep one attachment for each host of the instance, or else a reservation, and delete all others."""
        if work.error is not None:
            return
        self._make(work)
        listed = self._list_attachments(work)
        kept = {
            host: attachment
            for host, attachment in work.attachments.items()
            if attachment["id"] in listed and (host == cinder.RESERVED or host in work.hosts)
        }
        if not kept:
            self._one_for(work, cinder.RESERVED, listed)
            kept = {cinder.RESERVED: work.attachments[cinder.RESERVED]}
        here = kept.get(work.complete or "-")
        if here is not None and (not here["complete"] or listed[here["id"]].status != _ATTACHED):
            self._call(work, lambda: self.client().complete(here["id"]))
            here["complete"] = True
        if len(kept) > 1:
            kept.pop(cinder.RESERVED, None)
        ids = {attachment["id"] for attachment in kept.values()}
        for attachment in listed.values():
            if attachment.id not in ids:
                self.client().delete_attachment(attachment.id)
        self._note(work, kept)

    def _list_attachments(self, work: _Work) -> dict[str, Attachment]:
        """Return Cinder's attachments of the volume to the instance, by id."""
        assert work.volume_id is not None
        attachments = self.client().attachments(work.volume_id, work.instance_uuid)
        return {attachment.id: attachment for attachment in attachments}

    def _release(self, work: _Work) -> None:
        """Delete all attachments, and the volume if it was made for the server only."""
        if work.volume_id is None:
            work.volume_id = self.client().find_made(work.id)
        if work.volume_id is not None:
            try:
                for attachment in self.client().attachments(work.volume_id, work.instance_uuid):
                    self.client().delete_attachment(attachment.id)
                if work.delete_volume:
                    self._delete_volume(work.volume_id)
            except exceptions.VolumeNotFound:
                LOG.info("Volume %s of server %s is gone", work.volume_id, work.instance_uuid)
        if work.unsure or (work.volume_id is None and work.to_be_made and not work.given_up and work.error is None):
            # A requested volume or attachment may still appear.
            raise exceptions.VolumeNotReady(volume_id=work.volume_id or work.id)
        self.db.write(self._forget, work.id, work.token)

    def _delete_volume(self, volume_id: str) -> None:
        """Delete a volume. It stays if it has snapshots, or if other servers have it.

        If it is busy, the delete is tried again.
        """
        try:
            self.client().delete_volume(volume_id)
        except exceptions.InvalidVolume as error:
            volume = self.client().own_volume(volume_id)
            is_shared = volume.multiattach and volume.status == cinder.IN_USE
            if volume.status not in (cinder.AVAILABLE, "error") and not is_shared:
                raise exceptions.VolumeNotReady(volume_id=volume_id) from error
            LOG.warning("Volume %s stays although its server is deleted: %s", volume_id, error.message)

    def _make(self, work: _Work) -> None:
        """Check that the volume has been created. Raises `VolumeNotReady` until then, or `VolumeNotCreated`."""
        if work.error is not None:
            raise exceptions.VolumeNotCreated(reason=work.error)
        if not work.to_be_made:
            return
        if work.volume_id is None:
            work.volume_id = self.client().find_made(work.id)
            if work.volume_id is None:
                if work.given_up:
                    raise self._failed(work, "its creation was never requested: the API daemon has ended")
                raise exceptions.VolumeNotReady(volume_id=work.id)
            self.db.write(record_created, work.instance_uuid, work.id, work.volume_id, None)
        try:
            status = self.client().own_volume(work.volume_id).status
        except exceptions.VolumeNotFound as error:
            raise self._failed(work, "it was deleted") from error
        if status in _CREATING and not work.late:
            raise exceptions.VolumeNotReady(volume_id=work.volume_id)
        if status != cinder.AVAILABLE:
            late = f" after {self.conf.cinder.create_timeout} s" if status in _CREATING else ""
            raise self._failed(work, f"volume {work.volume_id} is {status}{late}")
        self.db.write(self._is_made, work.id, work.token)

    def _failed(self, work: _Work, cause: str) -> exceptions.VolumeNotCreated:
        self.db.write(self._note_error, work.id, work.token, cause)
        return exceptions.VolumeNotCreated(reason=cause)

    def _one_for(self, work: _Work, host: str, listed: dict[str, Attachment]) -> str:
        """Return the id of an attachment for the host, after it was written.

        Raises `VolumeNotReady` if another conductor has leased the row. It finds the attachment that was made in vain.
        """
        spare = self._spare(work, listed)
        mine = spare or self._reserve(work)
        try:
            self._note(work, {**_without(work.attachments, mine), host: {"id": mine, "complete": False}})
        except exceptions.VolumeNotReady:
            if spare is None and not self.db.write(self._note_unsure, work.id):
                self._drop_attachment(mine)
            raise
        return mine

    def _drop_attachment(self, attachment_id: str) -> None:
        """Delete an attachment of a row that is gone. The caller raises its own error, whether this works or not."""
        try:
            self.client().delete_attachment(attachment_id)
        except exceptions.NovaLiteException as error:
            LOG.warning("Attachment %s of no server is left at Cinder: %s", attachment_id, error.message)

    def _spare(self, work: _Work, listed: dict[str, Attachment]) -> str | None:
        """Return the id of an unused attachment: the reservation, or one whose reply was lost."""
        reserved = work.attachments.get(cinder.RESERVED, {}).get("id")
        if reserved in listed:
            return str(reserved)
        known = {attachment["id"] for attachment in work.attachments.values()}
        unknown = (attachment for attachment in listed.values() if attachment.id not in known)
        return next((attachment.id for attachment in unknown if attachment.status == "reserved"), None)

    def _reserve(self, work: _Work) -> str:
        volume_id = str(work.volume_id)
        try:
            return self._call(work, lambda: self.client().reserve(volume_id, work.instance_uuid)).id
        except (exceptions.InvalidVolume, exceptions.VolumeNotFound, exceptions.Forbidden) as error:
            if not work.attachments:  # the volume was taken before this server could reserve it
                self.db.write(self._note_error, work.id, work.token, error.message)
            raise

    def _call(self, work: _Work, request: Callable[[], T]) -> T:
        """Make a call that changes Cinder. Without a reply the change may still happen later, which is noted."""
        try:
            return request()
        except exceptions.ServiceUnavailable:
            self.db.write(self._note_unsure, work.id)
            raise

    # --- rows

    def _take(self, uow: UnitOfWork, device_uuid: str) -> _Work | None:
        known = cinder.get(uow, device_uuid)
        if known is None:
            return None
        instance = instances.lock(uow, known.instance_uuid)
        row = cinder.get(uow, device_uuid, lock=True)
        if row is None:
            return None
        token = cinder.lease(uow, row, 4 * self.client().timeout + TRY_AGAIN)
        if token is None:
            return None
        hosts, complete = _hosts(uow, instance, row)
        begun = row.deadline - datetime.timedelta(seconds=self.conf.cinder.create_timeout)
        return _Work(
            id=row.id,
            token=token,
            instance_uuid=row.instance_uuid,
            volume_id=row.volume_id or row.shared_volume_id,
            wanted=row.wanted,
            to_be_made=row.to_be_made,
            delete_volume=row.delete_volume,
            attachments=dict(row.attachments),
            hosts=hosts,
            complete=complete,
            late=uow.now >= row.deadline,
            given_up=uow.now >= begun + datetime.timedelta(seconds=BEGIN_TIMEOUT),
            unsure=row.unsure_until is not None and uow.now < row.unsure_until,
            error=row.error,
        )

    def _at(self, work: _Work, process: Callable[[], T]) -> T:
        """Process a leased row, and end the lease. The row is settled then, or due again."""
        again: float | None = TRY_AGAIN
        try:
            result = process()
            again = None
            return result
        except exceptions.VolumeNotReady:
            again = LOOK_AGAIN
            raise
        except exceptions.VolumeServiceUnavailable as error:
            LOG.warning("Volume %s of server %s: %s", work.volume_id, work.instance_uuid, error.message)
            raise
        except (exceptions.VolumeNotCreated, exceptions.InvalidVolume, exceptions.VolumeNotFound) as error:
            LOG.warning("Volume %s of server %s: %s", work.volume_id, work.instance_uuid, error.message)
            if self.db.read(self._has_error, work.id):
                again = None  # until the server releases it
            raise
        finally:
            self.db.write(self._settle, work, again)

    def _settle(self, uow: UnitOfWork, work: _Work, again: float | None) -> None:
        """End the lease. The row is due at once if it has changed meanwhile."""
        instance = instances.lock(uow, work.instance_uuid)
        row = cinder.held(cinder.get(uow, work.id, lock=True), work.token)
        if row is None:
            return
        row.lease_owner = None
        row.due_at = None if again is None else uow.now + datetime.timedelta(seconds=again)
        if row.unsure_until is not None and not work.unsure and row.unsure_until <= uow.now:
            row.unsure_until = None
        elif row.unsure_until is not None and again is None:
            row.due_at = max(row.unsure_until, uow.now)  # then a late change is corrected
        hosts, complete = _hosts(uow, instance, row)
        here = row.attachments.get(complete or "-")
        there = None if instance is None else row.attachments.get(str(instance.host))
        if (row.wanted, hosts) != (work.wanted, work.hosts) or (here is not None and not here["complete"]):
            row.due_at = uow.now
            if again is None:
                uow.publish(CinderWorkDue(row.id))
        elif row.due_at is None and there is not None and not there["complete"]:
            row.due_at = uow.now + datetime.timedelta(seconds=TRY_AGAIN)  # its guest is about to have it
        if instance is not None:
            _show(instance, row)

    def _note(self, work: _Work, attachments: dict[str, dict[str, Any]]) -> None:
        """Write the attachments. Raises `VolumeNotReady` if another conductor has leased the row."""
        if not self.db.write(self._keep, work.id, work.token, attachments):
            raise exceptions.VolumeNotReady(volume_id=work.volume_id or work.id)
        work.attachments = attachments

    def _keep(self, uow: UnitOfWork, device_uuid: str, token: str, attachments: dict[str, dict[str, Any]]) -> bool:
        row = cinder.held(cinder.get(uow, device_uuid, lock=True), token)
        if row is not None:
            row.attachments = {host: dict(attachment) for host, attachment in attachments.items()}
        return row is not None

    def _note_unsure(self, uow: UnitOfWork, device_uuid: str) -> bool:
        """Note that Cinder may still change, whoever has leased the row. Returns False if the row is gone."""
        row = cinder.get(uow, device_uuid, lock=True)
        if row is not None:
            row.unsure_until = uow.now + datetime.timedelta(seconds=2 * self.client().timeout)
            row.due_at = row.due_at or row.unsure_until
        return row is not None

    def _note_error(self, uow: UnitOfWork, device_uuid: str, token: str, cause: str) -> None:
        row = cinder.held(cinder.get(uow, device_uuid, lock=True), token)
        if row is not None:
            row.error = cause[:1024]

    def _has_error(self, uow: UnitOfWork, device_uuid: str) -> bool:
        row = cinder.get(uow, device_uuid)
        return row is not None and row.error is not None

    def _is_made(self, uow: UnitOfWork, device_uuid: str, token: str) -> None:
        row = cinder.held(cinder.get(uow, device_uuid, lock=True), token)
        if row is not None:
            row.to_be_made = False

    def _forget(self, uow: UnitOfWork, device_uuid: str, token: str) -> None:
        row = cinder.held(cinder.get(uow, device_uuid, lock=True), token)
        if row is not None:
            uow.session.delete(row)


def record_created(
    uow: UnitOfWork, instance_uuid: str, device_uuid: str, volume_id: str | None, error: str | None
) -> bool:
    """Record the volume that the API has requested for a device, or its error. Return whether it is the device's."""
    instance = instances.lock(uow, instance_uuid)
    row = cinder.get(uow, device_uuid, lock=True)
    if instance is None or row is None or row.instance_uuid != instance_uuid:
        return False
    if volume_id is None:
        row.error = row.error or (error or "")[:1024] or None
    elif row.volume_id is None:
        _begun(uow, instance, row, volume_id)
    return row.volume_id == volume_id


def _without(attachments: dict[str, dict[str, Any]], attachment_id: str) -> dict[str, dict[str, Any]]:
    return {host: attachment for host, attachment in attachments.items() if attachment["id"] != attachment_id}


def _hosts(uow: UnitOfWork, instance: Instance | None, row: Row) -> tuple[list[str], str | None]:
    """Return every host with an allocation of the instance, and the one whose guest certainly has the volume."""
    if instance is None or not row.wanted:
        return [], None
    hosts = sorted({held.host for held in claims.held_hosts(uow, instance)})
    device = cinder.device_of(instance, row.id)
    attached = device is not None and device.state == DeviceState.ATTACHED
    settled = attached and instance.launched_at is not None and instance.task_state is None
    return hosts, instance.host if settled else None


def _begun(uow: UnitOfWork, instance: Instance, row: Row, volume_id: str) -> None:
    cinder.made(uow, row, volume_id)
    device = cinder.device_of(instance, row.id)
    if device is not None:
        device.volume_id = volume_id
        cinder.keep_device(instance, device)


def _show(instance: Instance, row: Row) -> None:
    """Write the id of the host's attachment into the device, which the API shows."""
    device = cinder.device_of(instance, row.id)
    found = row.attachments.get(instance.host or cinder.RESERVED) or row.attachments.get(cinder.RESERVED)
    if device is not None and found is not None and device.attachment_id != found["id"]:
        device.attachment_id = found["id"]
        cinder.keep_device(instance, device)
