"""``/images/{id}/metadata``."""

from __future__ import annotations

from nova_lite.api.compute.schemas import types as t
from nova_lite.api.microversions import Versioned

METADATA: Versioned[t.Schema] = Versioned({1: t.wrapped("metadata", t.METADATA)})
METADATA_ITEM: Versioned[t.Schema] = Versioned(
    {1: t.wrapped("meta", {**t.METADATA, "minProperties": 1, "maxProperties": 1})}
)
