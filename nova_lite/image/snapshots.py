"""What the image of a server is called and has, with the properties that Nova gives it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from nova_lite.context import RequestContext
from nova_lite.objects import Image, Instance

SNAPSHOT = "snapshot"
BACKUP = "backup"

_OF_THE_IMAGE = "image_"

#: Properties of the server's image that its own image does not have: they are about the bytes, or about another image.
NOT_INHERITED = frozenset(
    {
        *("cache_in_nova", "bittorrent", "cinder_encryption_key_id", "cinder_encryption_key_deletion_policy"),
        *("img_signature", "img_signature_hash_method", "img_signature_key_type", "img_signature_certificate_uuid"),
        *("backup_type", "instance_uuid", "image_type"),
    }
)


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
