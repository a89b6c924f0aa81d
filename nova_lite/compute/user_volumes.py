"""Requests to Cinder with the user's token: volumes that a request names, and new volumes for servers.

The user's token is used only in the API process. The conductor receives the volumes' properties with the request, and a
report of each created volume.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.objects import BlockDevice, Instance, Volume
from nova_lite.objects.block_device import DeviceSource
from nova_lite.objects.block_device import volumes as volumes_of
from nova_lite.rpcapi.conductor import ConductorRPC
from nova_lite.volume.cinder_client import CinderClient

LOG = logging.getLogger(__name__)

_AVAILABLE = "available"


class UserVolumes:
    """Requests to Cinder in the user's name."""

    def __init__(self, client: CinderClient, conductor: ConductorRPC) -> None:
        self._client = client
        self._conductor = conductor

    def describe(self, context: RequestContext, devices: Iterable[BlockDevice]) -> dict[str, Volume]:
        """Return the volumes and snapshots of a server's block devices, by id. Raises `InvalidBDM`."""
        volumes: dict[str, Volume] = {}
        for device in volumes_of(devices):
            if device.volume_id is not None:
                volumes[device.volume_id] = self._volume(context, device.volume_id)
            elif device.snapshot_id is not None:
                volumes[device.snapshot_id] = self._snapshot(context, device.snapshot_id)
        return volumes

    def _volume(self, context: RequestContext, volume_id: str) -> Volume:
        try:
            return self.attachable(context, volume_id)
        except (exceptions.VolumeNotFound, exceptions.Forbidden) as error:
            raise exceptions.InvalidBDM(reason=f"failed to get volume {volume_id}.") from error

    def _snapshot(self, context: RequestContext, snapshot_id: str) -> Volume:
        try:
            snapshot = self._client.snapshot_source(context, snapshot_id)
        except (exceptions.SnapshotNotFound, exceptions.Forbidden) as error:
            raise exceptions.InvalidBDM(reason=f"failed to get snapshot {snapshot_id}.") from error
        if snapshot.status != _AVAILABLE:
            raise exceptions.InvalidSnapshot(
                reason=f"Originating snapshot status must be one of 'available' values, it is {snapshot.status}"
            )
        return snapshot

    def attachable(self, context: RequestContext, volume_id: str) -> Volume:
        """Return a volume of the user that can be attached. Raises `VolumeNotFound` or `InvalidVolume`."""
        volume = self._client.volume(context, volume_id)
        if volume.encrypted:
            raise exceptions.InvalidVolume(reason=f"volume {volume_id} is encrypted, which is not supported here.")
        return volume

    def create(self, context: RequestContext, instances: Iterable[Instance]) -> None:
        """Create the volumes that new servers need.

        If Cinder refuses a volume, the server's build fails with that error. If Cinder does not reply, the conductor
        looks for the volume later.
        """
        for instance in instances:
            for device in volumes_of(instance.block_devices):
                if device.volume_id is None:
                    self._create_one(context, instance, device)

    def _create_one(self, context: RequestContext, instance: Instance, device: BlockDevice) -> None:
        volume_id = cause = None
        try:
            volume_id = self._client.create_volume(context, _create_body(device), device.uuid)
        except exceptions.ServiceUnavailable as error:
            LOG.warning(
                "Cinder did not say whether it creates a volume for server %s: %s", instance.uuid, error.message
            )
            return
        except exceptions.NovaLiteException as error:
            cause = error.message
        try:
            is_needed = self._conductor.volume_created(context, instance.uuid, device.uuid, volume_id, cause)
        except exceptions.ServiceUnavailable as error:
            LOG.warning("The conductor will look for the volume of server %s: %s", instance.uuid, error.message)
            return
        if volume_id is not None and not is_needed:
            LOG.warning("Server %s is deleted, so its new volume %s is deleted as well", instance.uuid, volume_id)
            self._client.delete_volume(volume_id)


def _create_body(device: BlockDevice) -> dict[str, Any]:
    body: dict[str, Any] = {"size": device.volume_size, "name": "", "description": ""}
    if device.source_type == DeviceSource.IMAGE:
        body["imageRef"] = device.image_id
    elif device.source_type == DeviceSource.SNAPSHOT:
        body["snapshot_id"] = device.snapshot_id
    if device.volume_type:
        body["volume_type"] = device.volume_type
    return body
