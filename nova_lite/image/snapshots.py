"""What the image of a server is called and has, with the properties that Nova gives it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from nova_lite.base.context import RequestContext
from nova_lite.objects import BlockDevice, Image, Instance
from nova_lite.objects.block_device import DeviceSource

SNAPSHOT = "snapshot"
BACKUP = "backup"

_OF_THE_IMAGE = "image_"

#: The property in which the image of a volume-backed server names its block devices, as JSON.
DEVICES = "block_device_mapping"

#: Properties of the server's image that its own image does not have: they are about the bytes, or about another image.
NOT_INHERITED = frozenset(
    {
        *("cache_in_nova", "bittorrent", "cinder_encryption_key_id", "cinder_encryption_key_deletion_policy"),
        *("img_signature", "img_signature_hash_method", "img_signature_key_type", "img_signature_certificate_uuid"),
        *("backup_type", "instance_uuid", "image_type"),
        *(DEVICES, "bdm_v2", "root_device_name"),
    }
)


#: The format that no bytes are of: services look whether what they are given is of the format that it is said to be.
EMPTY = "raw"


def image_of(
    context: RequestContext, instance: Instance, name: str, image_type: str, properties: Mapping[str, str]
) -> Image:
    """The queued image that a snapshot of ``instance`` is to fill; ``properties`` are the user's."""
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
    kept = {key: value for key, value in inherited.items() if key not in NOT_INHERITED}
    return Image(
        id=str(uuid.uuid4()),
        name=name,
        status="queued",
        disk_format="qcow2",
        container_format="bare",
        min_disk=instance.flavor.root_gb,
        visibility="private",
        owner=context.project_id,
        properties={**kept, **own, **properties},
    )


def of_volumes(image: Image, instance: Instance) -> tuple[Image, dict[str, str]]:
    """The image of a volume-backed server: without data, it names the snapshots of the server's volumes. Also, by each
    volume's id, the id that its snapshot is to have."""
    devices = instance.block_devices
    snapshots = {each.volume_id: str(uuid.uuid4()) for each in devices if each.volume_id is not None}
    named = [_device(each, snapshots.get(each.volume_id or "")) for each in devices]
    more = {
        DEVICES: json.dumps(named),
        "bdm_v2": "True",
        "root_device_name": instance.root_device_name or "",
    }
    named_image = msgspec.structs.replace(image, min_disk=0, disk_format=EMPTY, properties={**image.properties, **more})
    return named_image, snapshots


def _device(device: BlockDevice, snapshot_id: str | None) -> dict[str, Any]:
    """In Nova's words."""
    return {
        "source_type": str(device.source_type if snapshot_id is None else DeviceSource.SNAPSHOT),
        "destination_type": device.destination_type,
        "snapshot_id": snapshot_id,
        "volume_id": None,
        "image_id": None,
        "no_device": None,
        **{name: getattr(device, name) for name in _TOLD},
    }


_TOLD = (
    *("boot_index", "device_name", "device_type", "disk_bus", "guest_format"),
    *("volume_size", "volume_type", "delete_on_termination", "tag"),
)
