"""RPC methods about Cinder's volumes. `nova_lite.conductor.volume.cinder` processes their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nova_lite import operations
from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.conductor.engine.engine import ActionEngine
from nova_lite.conductor.volume.cinder import CinderWorker, record_created
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.servers import instances
from nova_lite.db.volume import cinder, volume_tasks
from nova_lite.objects import ActionCommand, VolumeConnection, VolumeVerb
from nova_lite.objects.volume import FILE_CONNECTIONS

if TYPE_CHECKING:
    from nova_lite.volume.cinder_client import CinderClient

#: Work on files that Cinder's drivers request.
FILE_ACTIONS = (operations.VOLUME_SNAPSHOT_CREATE.kind, operations.VOLUME_SNAPSHOT_DELETE.kind)


class CinderEndpoints:
    """Messages of the API and of hosts. Without ``client`` another backend has the volumes."""

    def __init__(self, engine: ActionEngine, client: CinderClient | None, worker: CinderWorker) -> None:
        self.engine = engine
        self.db = engine.db
        self._client = client
        self._worker = worker

    # --- for the API

    def volume_created(
        self, context: RequestContext, instance_uuid: str, device_uuid: str, volume_id: str | None, error: str | None
    ) -> bool:
        return self.db.write(record_created, instance_uuid, device_uuid, volume_id, error)

    def volume_extended(self, context: RequestContext, instance_uuid: str, volume_id: str) -> None:
        size = self._worker.client().own_volume(volume_id).size
        self.db.write(self._volume_extended, str(context.request_id), instance_uuid, volume_id, size)

    def _volume_extended(self, uow: UnitOfWork, request_id: str, instance_uuid: str, volume_id: str, size: int) -> None:
        instance = instances.lock(uow, instance_uuid)
        found = [
            device for device in (instance and instance.block_devices) or [] if device.get("volume_id") == volume_id
        ]
        if instance is None or not found:
            raise exceptions.VolumeBDMNotFound(instance_uuid=instance_uuid, volume_id=volume_id)
        device = cinder.device_of(instance, found[0]["uuid"])
        assert device is not None
        device.volume_size = size
        cinder.keep_device(instance, device)
        volume_tasks.add(
            uow, request_id, VolumeVerb.EXTEND, volume_id, size=size, instance_uuid=instance_uuid, device=device.uuid
        )

    def accept_volume_snapshot(
        self, context: RequestContext, volume_id: str, action: str, payload: dict[str, Any]
    ) -> ActionCommand:
        if action not in FILE_ACTIONS:
            raise exceptions.InvalidInput(reason=f"{action} is no work on the files of a volume")
        if self._client is None:
            raise exceptions.InvalidVolume(
                reason="the built-in volume service needs no help for a snapshot. Use its API, with force."
            )
        found = self.db.read(cinder.place_of, volume_id)
        if found is None:
            raise exceptions.InvalidVolume(reason=f"no server on a host has volume {volume_id}")
        instance_uuid, attachment_id = found
        try:
            info = self._client.attachment(attachment_id).info
        except exceptions.VolumeNotFound as error:
            raise exceptions.InvalidVolume(reason=f"Cinder does not know who has volume {volume_id}") from error
        kind = info.get("driver_volume_type")
        if kind not in FILE_CONNECTIONS:
            raise exceptions.InvalidVolume(
                reason=f"volume {volume_id} is connected by {kind}, and only those by {', '.join(FILE_CONNECTIONS)} "
                "are files here. Let Cinder's own driver make the snapshot."
            )
        return self.engine.accept_action(context, instance_uuid, action, {**payload, "volume_id": volume_id})

    # --- for hosts

    def volume_connect(
        self, context: RequestContext, host: str, instance_uuid: str, device_uuid: str, connector: dict[str, Any]
    ) -> VolumeConnection:
        return self._worker.connect(host, instance_uuid, device_uuid, connector)
