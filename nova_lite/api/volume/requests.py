"""What clients may say about volumes and snapshots, checked: bodies, and the queries of lists."""

from __future__ import annotations

import json
from typing import Any

from nova_lite.api.http import validation
from nova_lite.api.http.rest import Request
from nova_lite.base import exceptions
from nova_lite.objects import VolumeFilters

MAX_GB = 2**20


def body(req: Request, key: str) -> dict[str, Any]:
    """The object under the one key of the body."""
    found = req.json_object().get(key)
    if not isinstance(found, dict):
        raise exceptions.ValidationError(detail=f"Missing required element '{key}' in request body.")
    return found


def text(wanted: dict[str, Any], *names: str) -> str | None:
    """The first of these that is given; "" and None alike for what is empty."""
    for name in names:
        value = wanted.get(name)
        if value is None:
            continue
        if not isinstance(value, str) or len(value) > 255 or not value.isprintable():
            raise exceptions.ValidationError(detail=f"{name} has to be a text of at most 255 printable characters.")
        return value.strip()
    return None


def an_id(wanted: dict[str, Any], name: str) -> str | None:
    value = wanted.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str) or not validation.is_uuid(value):
        raise exceptions.ValidationError(detail=f"Invalid {name}: it has to be a uuid.")
    return value


def size(value: Any, name: str = "size") -> int:
    """GB; 0: not said."""
    if value is None:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_GB:
        raise exceptions.ValidationError(detail=f"Invalid input for field/attribute {name}: a number of GB, above 0.")
    return int(value)


def metadata(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise exceptions.ValidationError(detail="metadata has to be an object.")
    for name, item in value.items():
        if not 1 <= len(name) <= 255 or not isinstance(item, str) or len(item) > 255:
            raise exceptions.ValidationError(
                detail="Keys of metadata have 1 to 255 characters, values are texts of at most 255."
            )
    if len(value) > 128:
        raise exceptions.ValidationError(detail="There are at most 128 items of metadata.")
    return dict(value)


def flag(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise exceptions.ValidationError(detail=f"Invalid value for {name}: it has to be true or false.")


def page(req: Request, max_limit: int) -> dict[str, Any]:
    """Arguments of a list's query: filters, and which page of what order."""
    query = req.GET
    sort = query.get("sort")
    pairs = [part.partition(":")[::2] for part in sort.split(",")] if sort else []
    keys = [key for key, _ in pairs] or ([query["sort_key"]] if "sort_key" in query else [])
    dirs = [direction or "desc" for _, direction in pairs] or ([query["sort_dir"]] if "sort_dir" in query else [])
    limit = min(_number(query.get("limit"), "limit", max_limit), max_limit)
    return {
        "filters": _filters(req),
        "limit": limit,
        "marker": query.get("marker"),
        "sort_keys": ["name" if key == "display_name" else key for key in keys],
        "sort_dirs": dirs or ["desc"] * len(keys),
        "offset": _number(query.get("offset"), "offset", 0),
    }


def _filters(req: Request) -> VolumeFilters:
    query = req.GET
    every = any(query.get(name, "").lower() in ("1", "true") for name in ("all_tenants", "all_projects"))
    project = query.get("project_id") if req.context.is_admin and every else req.context.project_id
    bootable = query.get("bootable")
    return VolumeFilters(
        project_id=project,
        name=query.get("name", query.get("display_name")),
        status=query.get("status"),
        bootable=None if bootable is None else flag(bootable, "bootable"),
        volume_id=query.get("volume_id"),
        metadata=_pairs(query.get("metadata")),
    )


def _pairs(given: str | None) -> dict[str, str] | None:
    """Clients write a Python or a JSON dict."""
    if given is None:
        return None
    try:
        value = json.loads(given.replace("'", '"'))
    except ValueError as error:
        raise exceptions.ValidationError(detail="metadata has to be an object.") from error
    return metadata(value)


def _number(given: str | None, name: str, default: int) -> int:
    if given is None:
        return default
    if not (given.isascii() and given.isdecimal() and len(given) < 10):
        raise exceptions.ValidationError(detail=f"{name} must be an integer of 0 or above.")
    return int(given)
