"""Server actions that create an image of a server: ``createImage`` and ``createBackup``."""

from __future__ import annotations

from typing import Any

import msgspec

from nova_lite import operations
from nova_lite.api.compute import schema_types as t
from nova_lite.api.http.microversions import Change
from nova_lite.api.http.wsgi import Extension, Request, Response, action, declares
from nova_lite.base import exceptions
from nova_lite.compute.api import API
from nova_lite.image import snapshots
from nova_lite.objects import Image
from nova_lite.objects.block_device import root_volume
from nova_lite.policies import servers as policies

# --- schemas

CREATE_IMAGE_BODY = t.wrapped("createImage", t.strict({"name": t.NAME, "metadata": t.METADATA}, ("name",)))

CREATE_BACKUP_BODY = t.wrapped(
    "createBackup",
    t.strict(
        {"name": t.NAME, "backup_type": {"type": "string", "maxLength": 255}, "rotation": t.NON_NEGATIVE}
        | {"metadata": t.METADATA},
        ("name", "backup_type", "rotation"),
    ),
)


# --- routes

#: Maximum number of properties in a request. ``/limits`` shows it as maxImageMeta.
_MAXIMUM = 128

#: Suffix to the server's name in the name of an image for which the user chose no name.
SHELVED = "-shelved"


class ServerImages(Extension):
    alias = "os-create-backup"
    title = "Images of servers"
    routes = (
        action("servers", "createImage", "create_image"),
        action("servers", "createBackup", "create_backup"),
    )

    @declares(policies.CREATE_IMAGE, body=CREATE_IMAGE_BODY, status=202)
    def create_image(self, req: Request, id: str) -> Response:
        body = req.data["createImage"]
        properties = _properties(req, body)
        kind = operations.CREATE_IMAGE.kind
        return _response(req, create_image(self.compute, req, id, kind, body["name"], snapshots.SNAPSHOT, properties))

    @declares(policies.CREATE_BACKUP, body=CREATE_BACKUP_BODY, status=202)
    def create_backup(self, req: Request, id: str) -> Response:
        """Request a backup. With ``rotation`` 0 no image is kept, so the response names none."""
        body = req.data["createBackup"]
        backup_type, rotation = body["backup_type"], int(body["rotation"])
        properties = {**_properties(req, body), "backup_type": backup_type}
        kind, more = operations.CREATE_BACKUP.kind, {"backup_type": backup_type, "rotation": rotation}
        image = create_image(self.compute, req, id, kind, body["name"], snapshots.BACKUP, properties, **more)
        return _response(req, image) if rotation else Response(status=202)


def create_image(
    compute: API,
    req: Request,
    id: str,
    kind: str,
    name: str | None,
    image_type: str,
    properties: dict[str, str],
    **payload: Any,
) -> Image:
    """Request an operation that creates an image. Return the image, which is queued.

    If the operation is refused, the image is withdrawn from the image service.
    """
    instance = compute.conductor.instance_get(req.context, id)
    is_volume_backed = root_volume(instance.block_devices) is not None
    name = name or f"{instance.display_name}{SHELVED}"[:255]
    image = snapshots.image_of(req.context, instance, name, image_type, properties)
    if is_volume_backed:
        image, payload["snapshots"] = snapshots.of_volumes(image, instance)
        payload["volume_backed"] = True
    registered = compute.images.register(req.context, image)
    image = registered or image
    payload |= {"image": msgspec.to_builtins(image), "registered": registered is not None}
    try:
        compute.accept(req.context, id, kind, payload)
    except exceptions.ServiceUnavailable:
        raise  # the conductor may have accepted the operation
    except exceptions.NovaLiteException:
        compute.images.withdraw(req.context, image.id)
        raise
    return image


def _properties(req: Request, body: dict[str, Any]) -> dict[str, str]:
    properties: dict[str, str] = body.get("metadata", {})
    if not req.has(Change.NO_IMAGE_METADATA) and len(properties) > _MAXIMUM:
        raise exceptions.Forbidden("Image metadata limit exceeded")
    return properties


def _response(req: Request, image: Image) -> Response:
    if req.has(Change.IMAGE_ID):
        return Response({"image_id": image.id}, 202)
    return Response(status=202, headers={"Location": req.link("images", image.id)})
