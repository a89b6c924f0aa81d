"""Translates `InstanceFilters` to SQL."""

from __future__ import annotations

import datetime
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db import patterns
from nova_lite.db.models import Instance, InstanceTag, Port
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


def _conditions(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    yield from _deleted(filters)
    for columns, compare in _COMPARISONS:
        for name, column in columns.items():
            value = getattr(filters, name)
            if value is not None:
                yield compare(column, value)
    if filters.name is not None:
        yield Instance.display_name.regexp_match(patterns.checked(filters.name))
    yield from _addresses(filters)
    yield from _changes(filters)
    yield from _metadata(filters.metadata or {})
    yield from _tags(filters)


def _deleted(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    """Select deleted or existing instances; both if the caller filters by change time. Soft-deleted ones appear on
    request only.
    """
    if filters.deleted:
        soft = Instance.soft_deleted_at.is_not(None) if filters.soft_deleted else sa.false()
        yield sa.or_(Instance.deleted == sa.true(), soft)
    elif filters.changes_since is None and filters.changes_before is None:
        yield Instance.deleted == sa.false()
        if not filters.soft_deleted:
            yield Instance.soft_deleted_at.is_(None)


def _addresses(filters: InstanceFilters) -> Iterator[sa.ColumnElement[bool]]:
    of_instance = Port.instance_uuid == Instance.uuid
    if filters.ip is not None:
        yield sa.exists().where(of_instance, Port.address.regexp_match(patterns.checked(filters.ip)))
    if filters.ip6 is not None:
        yield sa.exists().where(of_instance, Port.address6.regexp_match(patterns.checked(filters.ip6)))


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
