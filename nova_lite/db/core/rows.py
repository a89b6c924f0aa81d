"""Conversion between rows and objects, and inserts that may collide."""

from __future__ import annotations

import functools
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc

from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Base

T = TypeVar("T", bound=msgspec.Struct)


def to_object(kind: type[T], row: Base, **computed: Any) -> T:
    """Build a ``kind`` from the row's columns of the same names and from ``computed`` values."""
    return kind(**({name: getattr(row, name) for name in shared_fields(kind, type(row))} | computed))


@functools.cache
def shared_fields(kind: type[msgspec.Struct], model: type[Base]) -> tuple[str, ...]:
    """Return the fields of ``kind`` that are columns of ``model``."""
    columns = sa.inspect(model).columns.keys()
    return tuple(name for name in kind.__struct_fields__ if name in columns)


def values_of(thing: msgspec.Struct, model: type[Base]) -> dict[str, Any]:
    """Return the columns of ``model`` that an object fills."""
    return {name: getattr(thing, name) for name in shared_fields(type(thing), model)}


def insert(uow: UnitOfWork, row: Base, taken: Exception) -> None:
    """Write a new or changed row; raise ``taken`` when another row has its unique key."""
    try:
        with uow.session.begin_nested():
            uow.session.add(row)
    except exc.IntegrityError as error:
        raise taken from error
