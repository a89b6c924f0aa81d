"""Metadata of servers and of images: all of it, and one item."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.microversions import Versioned

ALL: Versioned[t.Schema] = Versioned({1: t.wrapped("metadata", t.METADATA)})
ITEM: Versioned[t.Schema] = Versioned({1: t.wrapped("meta", {**t.METADATA, "minProperties": 1, "maxProperties": 1})})
