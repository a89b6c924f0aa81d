"""Translates `InstanceFilters` to SQL."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.base import patterns
from nova_lite.db.core import paging
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceTag, Port
from nova_lite.db.servers import interfaces
from nova_lite.objects import InstanceFilters

_EXACT = {
    "project_id": Instance.project_id,
    "user_id": Instance.user_id,
    "power_state": Instance.power_state,
    "host": Instance.host,
    "node": Instance.node,
    "flavorid": Instance.flavorid,
    "image_ref": Instance.image_ref,
    "reservation_id": Instance.reservation_id,
    "availability_zone": Instance.availability_zone,
    "key_name": Instance.key_name,
    "description": Instance.display_description,
    "progress": Instance.progress,
}
_BOOLEAN = {"locked": Instance.locked, "config_drive": Instance.config_drive}
_ONE_OF = {"uuids": Instance.uuid, "vm_states": Instance.vm_state, "task_states": Instance.task_state}
_TIMES = {
    "created_at": Instance.created_at,
    "launched_at": Instance.launched_at,
    "terminated_at": Instance.terminated_at,
}


def _at(column: orm.InstrumentedAttribute[Any], moment: datetime.datetime) -> sa.ColumnElement[bool]:
    """Compare with a time. Clients see whole seconds, so a time without fraction matches its whole second."""
    if moment.microsecond:
        return column == moment
    return sa.and_(column >= moment, column < moment + datetime.timedelta(seconds=1))


Column = orm.InstrumentedAttribute[Any]

#: Servers that a name may select to be found by ids.
_RARE = 1000

#: Filters by field of an instance, with their comparisons.
_COMPARISONS: tuple[tuple[dict[str, Column], Callable[[Column, Any], sa.ColumnElement[bool]]], ...] = (
    (_EXACT, operator.eq),
    (_BOOLEAN, lambda flag, value: flag.is_(value)),
    (_ONE_OF, lambda word, values: word.in_(values)),
    (_TIMES, _at),
)

#: Metadata keys are written into a JSON path, so only keys that the API accepts get here.
_METADATA_KEY = re.compile(r"[a-zA-Z0-9\-_:. ]{1,255}")

#: Codes for "invalid regular expression" (MariaDB, PostgreSQL). Python has accepted the pattern, but the
#: database has another dialect.
BAD_PATTERN_CODES = {1139, "2201B"}


def apply(query: sa.Select[Any], filters: InstanceFilters) -> sa.Select[Any]:
    """Narrow a ``query`` over `Instance` by all of ``filters``."""
    return query.where(*_conditions(filters))


def fixed(filters: InstanceFilters) -> list[Column]:
    """Return the columns that have one value in all instances, and with which an index of the default order begins."""
    return [column for column, _ in _fixed(filters)]


def with_rare_name(uow: UnitOfWork, query: sa.Select[Any], filters: InstanceFilters) -> sa.Select[Any]:
    """Narrow a ``query`` for a name of all existing servers by their ids, if these are few.

    The names are read in an index of them alone. Otherwise a name that few have would read all servers, because the
    page is read in its order until it is full.
    """
    if filters.name is None or filters != InstanceFilters(name=filters.name, with_user_data=filters.with_user_data):
        return query
    found = sa.select(Instance.id).where(paging.Equal(Instance.deleted, sa.false()), _has_name(filters.name))
    ids = list(uow.rows(found.limit(_RARE + 1)).scalars())
    return query.where(Instance.id.in_(ids)) if len(ids) <= _RARE else query


def _has_name(pattern: str) -> sa.ColumnElement[bool]:
    return Instance.display_name.regexp_match(patterns.checked(pattern))


def _fixed(filters: InstanceFilters) -> list[tuple[Column, Any]]:
    """Return at most one filtered column, as no index begins with two of them, and that for deleted instances."""
    leading = (
        (Instance.project_id, filters.project_id),
        (Instance.key_name, filters.key_name),
        (Instance.user_id, filters.user_id),
        (Instance.task_state, _only(filters.task_states)),
        (Instance.image_ref, filters.image_ref),
        (Instance.flavorid, filters.flavorid),
        (Instance.availability_zone, filters.availability_zone),
        (Instance.vm_state, _only(filters.vm_states)),
    )
    found: list[tuple[Column, Any]] = [(column, value) for column, value in leading if value is not None][:1]
    return found if _of_any_time(filters) else [*found, (Instance.deleted, sa.false())]


def _only(values: list[str] | None) -> str | None:
    return values[0] if values is not None and len(values) == 1 else None


def _of_any_time(filters: InstanceFilters) -> bool:
    """Return whether deleted and existing instances are selected together."""
    return filters.deleted or filters.changes_since is not None or filters.changes_before is not None


def _conditions(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    yield from _deleted(filters)
    leading = {column.key: paging.Equal(column, value) for column, value in _fixed(filters)}
    yield from leading.values()
    for columns, compare in _COMPARISONS:
        for name, column in columns.items():
            value = getattr(filters, name)
            if value is not None and column.key not in leading:
                yield compare(column, value)
    if filters.name is not None:
        yield _has_name(filters.name)
    yield from _addresses(filters)
    yield from _changes(filters)
    yield from _metadata(filters.metadata or {})
    yield from _tags(filters)


def _deleted(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    """Select deleted instances, or leave soft-deleted ones out unless they are requested. `_fixed` leaves deleted ones
    out.
    """
    if filters.deleted:
        soft = Instance.soft_deleted_at.is_not(None) if filters.soft_deleted else sa.false()
        yield sa.or_(Instance.deleted == sa.true(), soft)
    elif not _of_any_time(filters) and not filters.soft_deleted:
        yield Instance.soft_deleted_at.is_(None)


def _addresses(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    further = orm.aliased(Port)
    for pattern, name in ((filters.ip, "address"), (filters.ip6, "address6")):
        if pattern is not None:
            checked = patterns.checked(pattern)
            is_one = getattr(further, name).regexp_match(checked)
            of_port = sa.select(further.id).where(further.primary_id == Port.id, is_one).correlate(Port)
            has_further = interfaces.by_primary(of_port, further).exists()
            matches = sa.or_(getattr(Port, name).regexp_match(checked), has_further)
            yield sa.exists().where(Port.instance_uuid == Instance.uuid, matches)


def _changes(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    """Compare the change time; an unchanged instance counts from its creation. The condition is written for an
    index.
    """
    untouched = Instance.updated_at.is_(None)
    since, before = filters.changes_since, filters.changes_before
    if since is not None:
        yield sa.or_(Instance.updated_at >= since, sa.and_(untouched, Instance.created_at >= since))
    if before is not None:
        yield sa.or_(Instance.updated_at <= before, sa.and_(untouched, Instance.created_at <= before))


def _metadata(wanted: dict[str, str]) -> Iterator[sa.ColumnElement[bool]]:
    for key, value in wanted.items():
        if _METADATA_KEY.fullmatch(key):
            yield Instance.metadata_[key].as_string() == value
        else:
            yield sa.false()


def _tags(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    if filters.tags:
        yield from (_has_tag([tag]) for tag in filters.tags)
    if filters.tags_any:
        yield _has_tag(filters.tags_any)
    if filters.not_tags:
        yield sa.not_(sa.and_(*(_has_tag([tag]) for tag in filters.not_tags)))
    if filters.not_tags_any:
        yield sa.not_(_has_tag(filters.not_tags_any))


def _has_tag(tags: list[str]) -> sa.ColumnElement[bool]:
    return sa.exists().where(InstanceTag.instance_id == Instance.id, InstanceTag.tag.in_(tags))
