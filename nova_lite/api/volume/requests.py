"""Validation of request bodies about volumes and snapshots."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from nova_lite.api.http import validation
from nova_lite.api.http.rest import ServiceRequest
from nova_lite.api.image.requests import properties as image_properties
from nova_lite.api.image.views import FIELDS
from nova_lite.base import exceptions
from nova_lite.objects import Image, Volume

MAX_GB = 2**20
MAX_LIMIT = 2**31 - 1
#: Items of a volume's image metadata that an image of the volume does not have: they are about the older image's data.
_NOT_COPIED = {
    "checksum", "container_format", "disk_format", "image_id", "image_name", "min_disk", "min_ram", "name", "size",
    "kernel_id", "ramdisk_id",
}  # fmt: skip
#: Items of metadata.
MAX_ITEMS = 128


def body(
    req: ServiceRequest, key: str, known: Collection[str] | None = None, beside: Collection[str] = ()
) -> dict[str, Any]:
    """Return the object under ``key`` in the body. Raises a 400.

    ``known``: its fields; None: the caller checks them. ``beside``: keys that may be beside ``key``.
    """
    sent = req.json_object()
    value = sent.get(key)
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"Missing required element '{key}' in request body.")
    _require_known(sent, {key, *beside})
    if known is not None:
        _require_known(value, known)
    return value


def _require_known(fields: dict[str, Any], known: Collection[str]) -> None:
    for name in fields:
        if name not in known:
            raise exceptions.ValidationError(
                detail=f"Additional properties are not allowed ('{name[:64]}' was unexpected)"
            )


def action(req: ServiceRequest, known: Mapping[str, Collection[str]]) -> tuple[str, dict[str, Any]]:
    """Return the single key of the body and its value. ``known``: fields by action, where they are checked here."""
    value = req.json_object()
    if len(value) != 1:
        raise exceptions.ValidationError(detail="The body must have one key, the name of the action.")
    name, fields = next(iter(value.items()))
    if fields is not None and not isinstance(fields, dict):
        raise exceptions.ValidationError(detail=f"The value of {name[:64]} must be an object.")
    if name in known:
        _require_known(fields or {}, known[name])
    return name, fields or {}


def text(fields: dict[str, Any], *names: str) -> str | None:
    """Return the first of the named fields that has a value, or None."""
    for name in names:
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or len(value) > 255 or not validation.is_shown(value):
            raise exceptions.ValidationError(detail=f"{name} must be a text of at most 255 printable characters.")
        return value.strip()
    return None


def an_id(fields: dict[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not validation.is_uuid(value):
        raise exceptions.ValidationError(detail=f"Invalid {name}: it must be a uuid.")
    return value


def zone(fields: dict[str, Any], only: str) -> str:
    """Return the availability zone, which is ``only`` one. Raises a 400."""
    wanted = text(fields, "availability_zone")
    if wanted not in (None, "", only):
        raise exceptions.ValidationError(detail=f"Invalid input received: Availability zone '{wanted}' is invalid.")
    return only


def size(value: Any, name: str = "size") -> int:
    """Return a size in GB, 0 if there is none."""
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_GB:
        raise exceptions.ValidationError(
            detail=f"Invalid input for field/attribute {name}: it must be a number of GB from 1 to {MAX_GB}."
        )
    return int(value)


def quotas(fields: dict[str, Any], known: Collection[str]) -> dict[str, int]:
    """Return limits by resource. ``known``: the resources that may have one."""
    limits = {}
    for name, value in fields.items():
        if name in ("force", "id", "tenant_id", "class_name"):
            continue
        if name not in known:
            raise exceptions.ValidationError(detail=f"Bad key in quota set: {name[:64]}. It has {', '.join(known)}.")
        if isinstance(value, str) and re.fullmatch(r"-1|\d{1,9}", value, re.ASCII):
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not -1 <= value <= MAX_LIMIT:
            raise exceptions.ValidationError(detail=f"Quota limit of {name} must be -1 (no limit) to {MAX_LIMIT}.")
        limits[name] = value
    return limits


def image_of(fields: dict[str, Any], volume: Volume) -> Image:
    """Return the image to make of a volume. It has the properties of the volume's image metadata."""
    name = text(fields, "image_name")
    if not name:
        raise exceptions.ValidationError(detail="image_name must be specified")
    disk_format = text(fields, "disk_format") or "raw"
    if disk_format not in ("raw", "qcow2"):
        raise exceptions.ValidationError(detail="An image of a volume has the disk_format raw or qcow2.")
    if (text(fields, "container_format") or "bare") != "bare":
        raise exceptions.ValidationError(detail="An image of a volume has the container_format bare.")
    visibility = text(fields, "visibility") or "private"
    if visibility not in ("private", "shared", "community", "public"):
        raise exceptions.ValidationError(detail="visibility must be private, shared, community or public.")
    properties = {key: value for key, value in volume.shown_image_metadata().items() if key not in _NOT_COPIED}
    if taken := sorted(properties.keys() & FIELDS.keys()):
        raise exceptions.ValidationError(
            detail=f"An image cannot have a property {taken[0]}: remove it from the volume's image metadata first."
        )
    return Image(
        id=str(uuid.uuid4()),
        name=name,
        status="queued",
        disk_format=disk_format,
        visibility=visibility,
        protected=flag(fields.get("protected") or False, "protected"),
        min_disk=volume.size,
        min_ram=0 if volume.image is None else volume.image.min_ram,
        properties=image_properties(properties),
    )


def metadata(value: Any, field: str = "metadata") -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail=f"{field} must be an object.")
    for name, item in value.items():
        if not 1 <= len(name) <= 255 or not isinstance(item, str) or len(item) > 255:
            raise exceptions.ValidationError(
                detail=f"Keys of {field} have 1 to 255 characters. Values are texts of at most 255."
            )
    if len(value) > MAX_ITEMS:
        raise exceptions.ValidationError(detail=f"There are at most {MAX_ITEMS} items in {field}.")
    return dict(value)


def flag(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise exceptions.ValidationError(detail=f"Invalid value for {name}: it must be true or false.")
