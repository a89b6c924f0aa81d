"""Responses of the image API in the form of Glance's v2: fields and properties in one object."""

from __future__ import annotations

import datetime
from typing import Any, TypeAlias

from nova_lite.image.formats import CONTAINER_FORMATS, DISK_FORMATS
from nova_lite.objects import Image, ImageMember

View: TypeAlias = dict[str, Any]

VISIBILITIES = ("public", "private", "shared", "community")

_TEXT = {"type": ["null", "string"], "maxLength": 255}
_READ_ONLY = {"readOnly": True}

#: All fields. Other keys of an image are properties.
FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "string", "description": "An identifier for the image"},
    "name": {**_TEXT, "description": "Descriptive name for the image"},
    "status": {
        "type": "string",
        "enum": ["queued", "saving", "uploading", "active", "deactivated", "deleted"],
        **_READ_ONLY,
    },
    "visibility": {"type": "string", "enum": list(VISIBILITIES)},
    "protected": {"type": "boolean", "description": "If true, image will not be deletable."},
    "os_hidden": {"type": "boolean", "description": "If true, image will not appear in default image list response."},
    "checksum": {"type": ["null", "string"], **_READ_ONLY},
    "os_hash_algo": {"type": ["null", "string"], **_READ_ONLY},
    "os_hash_value": {"type": ["null", "string"], **_READ_ONLY},
    "owner": _TEXT,
    "size": {"type": ["null", "integer"], **_READ_ONLY},
    "virtual_size": {"type": ["null", "integer"], **_READ_ONLY},
    "min_disk": {"type": "integer", "description": "Required disk in GB"},
    "min_ram": {"type": "integer", "description": "Required memory in MB"},
    "disk_format": {"type": ["null", "string"], "enum": [None, *DISK_FORMATS]},
    "container_format": {"type": ["null", "string"], "enum": [None, *CONTAINER_FORMATS]},
    "created_at": {"type": "string", **_READ_ONLY},
    "updated_at": {"type": "string", **_READ_ONLY},
    "tags": {"type": "array", "items": {"type": "string", "maxLength": 255}},
    "self": {"type": "string", **_READ_ONLY},
    "file": {"type": "string", **_READ_ONLY},
    "schema": {"type": "string", **_READ_ONLY},
}

SCHEMA = {
    "name": "image",
    "properties": FIELDS,
    "additionalProperties": {"type": "string"},
    "links": [
        {"rel": "self", "href": "{self}"},
        {"rel": "enclosure", "href": "{file}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}
LIST_SCHEMA = {
    "name": "images",
    "properties": {
        "images": {"type": "array", "items": SCHEMA},
        "schema": {"type": "string"},
        "next": {"type": "string"},
        "first": {"type": "string"},
    },
    "links": [
        {"rel": "first", "href": "{first}"},
        {"rel": "next", "href": "{next}"},
        {"rel": "describedby", "href": "{schema}"},
    ],
}


MEMBER_SCHEMA = {
    "name": "member",
    "properties": {
        "member_id": {"type": "string", "description": "The id of the project that the image is shared with"},
        "image_id": {"type": "string", "description": "The id of the image"},
        "status": {"type": "string", "enum": ["pending", "accepted", "rejected"]},
        "created_at": {"type": "string", **_READ_ONLY},
        "updated_at": {"type": "string", **_READ_ONLY},
        "schema": {"type": "string", **_READ_ONLY},
    },
}
MEMBERS_SCHEMA = {
    "name": "members",
    "properties": {"members": {"type": "array", "items": MEMBER_SCHEMA}, "schema": {"type": "string"}},
    "links": [{"rel": "describedby", "href": "{schema}"}],
}


#: Schemas by the last part of their URL.
SCHEMAS: dict[str, View] = {
    "image": SCHEMA,
    "images": LIST_SCHEMA,
    "member": MEMBER_SCHEMA,
    "members": MEMBERS_SCHEMA,
}


def member(shown: ImageMember) -> View:
    return {
        "member_id": shown.member_id,
        "image_id": shown.image_id,
        "status": shown.status,
        "created_at": _time(shown.created_at),
        "updated_at": _time(shown.updated_at),
        "schema": "/v2/schemas/member",
    }


#: Statuses of images that have data.
WITH_DATA = ("active", "deactivated")


def show(image: Image) -> View:
    has_data = image.status in WITH_DATA
    path = f"/v2/images/{image.id}"
    return dict(image.properties) | {
        "id": image.id,
        "name": image.name,
        "status": image.status,
        "visibility": image.visibility,
        "protected": image.protected,
        "os_hidden": image.hidden,
        "checksum": image.md5 or None if has_data else None,
        "os_hash_algo": image.hash_algorithm if has_data and image.checksum else None,
        "os_hash_value": image.checksum or None if has_data else None,
        "owner": image.owner,
        "size": image.size if has_data else None,
        "virtual_size": image.virtual_size if has_data else None,
        "min_disk": image.min_disk,
        "min_ram": image.min_ram,
        "disk_format": image.disk_format or None,
        "container_format": image.container_format or None,
        "created_at": _time(image.created_at),
        "updated_at": _time(image.updated_at or image.created_at),
        "tags": image.tags,
        "self": path,
        "file": f"{path}/file",
        "schema": "/v2/schemas/image",
    }


def _time(moment: datetime.datetime | None) -> str | None:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if moment is not None else None
