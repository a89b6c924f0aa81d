"""Metadata of servers and of images: all of it, and one item."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t

ALL = t.wrapped("metadata", t.METADATA)
ITEM = t.wrapped("meta", {**t.METADATA, "minProperties": 1, "maxProperties": 1})
