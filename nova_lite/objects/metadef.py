"""Metadata definitions of the image service: what properties of images, flavors and volumes mean, for clients."""

from __future__ import annotations

import datetime
from typing import Any

import msgspec

#: Kinds of parts of a namespace: the fields of `MetadefNamespace` that map names to parts.
PARTS = ("objects", "properties", "tags", "resource_types")


class MetadefNamespace(msgspec.Struct, kw_only=True):
    """Namespace of definitions. ``objects``, ``properties``, ``tags`` and ``resource_types``: its parts by name."""

    id: str
    namespace: str
    display_name: str | None = None
    description: str | None = None
    visibility: str = "private"
    protected: bool = False
    owner: str | None = None
    objects: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    properties: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    tags: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    resource_types: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    created_at: datetime.datetime | None = None
    updated_at: datetime.datetime | None = None
