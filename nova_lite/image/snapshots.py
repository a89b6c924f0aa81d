"""Metadata of an image that is made from a server, with Nova's properties."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite.base.context import RequestContext
from nova_lite.objects import BlockDevice, Image, Instance
from nova_lite.objects.block_device import DeviceSource, root_volume

SNAPSHOT = "snapshot"
BACKUP = "backup"

_OF_THE_IMAGE = "image_"

#: The property in which the image of a volume-backed server names its block devices, as JSON.
DEVICES = "block_device_mapping"

#: Properties of the server's image that its snapshot does not inherit: they describe the data or another image.
NOT_INHERITED = frozenset(
    {
        "cache_in_nova", "bittorrent", "cinder_encryption_key_id", "cinder_encryption_key_deletion_policy",
        "img_signature", "img_signature_hash_method", "img_signature_key_type", "img_signature_certificate_uuid",
        "backup_type", "instance_uuid", "image_type", DEVICES, "bdm_v2", "root_device_name",
    }
)  # fmt: skip


#: Format of an image without data. Services that check formats accept it.
EMPTY = "raw"


def image_of(
    context: RequestContext, instance: Instance, name: str, image_type: str, properties: Mapping[str, str]
) -> Image:
    """Return the queued image for a snapshot of ``instance``. ``properties``: the user's.

    The flavor's disk counts only if the server has it, and does not boot from a volume.
    """
    inherited = {
        key.removeprefix(_OF_THE_IMAGE): value
        for key, value in instance.system_metadata.items()
        if key.startswith(_OF_THE_IMAGE)
    }
    own = {
        "instance_uuid": instance.uuid,
        "user_id": context.user_id or "",
        "owner_id": instance.project_id,
        "image_type": image_type,
        "image_state": "available",
        "image_location": "snapshot",
        "base_image_ref": instance.image_ref,
    }
    inherited = {key: value for key, value in inherited.items() if key not in NOT_INHERITED}
    return Image(
        id=str(uuid.uuid4()),
        name=name,
        status="queued",
        disk_format="qcow2",
        container_format="bare",
        min_disk=instance.flavor.root_gb if root_volume(instance.block_devices) is None else 0,
        visibility="private",
        owner=context.project_id,
        properties={**inherited, **own, **properties},
    )


def of_volumes(image: Image, instance: Instance) -> tuple[Image, dict[str, str]]:
    """Return the image of a volume-backed server, and the ids of the new snapshots by the ids of the volumes.

    The image has no data. It names the snapshots of the server's volumes.
    """
    devices = instance.block_devices
    snapshots = {device.volume_id: str(uuid.uuid4()) for device in devices if device.volume_id is not None}
    mappings = [_device(device, snapshots.get(device.volume_id or "")) for device in devices]
    properties = {
        DEVICES: json.dumps(mappings),
        "bdm_v2": "True",
        "root_device_name": instance.root_device_name or "",
    }
    properties = {**image.properties, **properties}
    return msgspec.structs.replace(image, min_disk=0, disk_format=EMPTY, properties=properties), snapshots


def _device(device: BlockDevice, snapshot_id: str | None) -> dict[str, Any]:
    """Return Nova's block device mapping."""
    return {
        "source_type": str(device.source_type if snapshot_id is None else DeviceSource.SNAPSHOT),
        "destination_type": device.destination_type,
        "snapshot_id": snapshot_id,
        "volume_id": None,
        "image_id": None,
        "no_device": None,
        **{name: getattr(device, name) for name in _DEVICE_FIELDS},
    }


_DEVICE_FIELDS = (
    "boot_index",
    "device_name",
    "device_type",
    "disk_bus",
    "guest_format",
    "volume_size",
    "volume_type",
    "delete_on_termination",
    "tag",
)
