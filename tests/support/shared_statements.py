"""Compiled SQL that all engines of a process share."""

from __future__ import annotations

import functools

import sqlalchemy as sa
from sqlalchemy.util import LRUCache


@functools.cache
def _counted_as_one(kind: type[sa.Dialect]) -> type[sa.Dialect]:
    """Make a dialect whose objects compare equal, so that they share compiled statements."""
    equal = {"__eq__": lambda self, other: isinstance(other, kind), "__hash__": lambda self: hash(kind)}
    return type(kind.__name__, (kind,), {**equal, "supports_statement_cache": True})


def share(engine: sa.Engine, compiled: LRUCache[object, object]) -> None:
    """Let an engine use the statements of a cache. Engines of other kinds of databases may use it, too."""
    engine.dialect.__class__ = _counted_as_one(type(engine.dialect))
    engine._compiled_cache = compiled
