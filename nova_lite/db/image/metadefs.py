"""Metadata definitions: namespaces, each one row with all of its parts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import MetadefNamespace as Row
from nova_lite.objects import MetadefNamespace
from nova_lite.objects.metadef import PARTS

#: Parts of one kind in a namespace, and namespaces of the cloud, at most.
MAX_PARTS, MAX_NAMESPACES = 1000, 1000

_FIELDS = ("namespace", "display_name", "description", "visibility", "protected", "owner")


def list_(uow: UnitOfWork, context: RequestContext) -> list[MetadefNamespace]:
    """Return the namespaces that the context's project may see, by name."""
    query = sa.select(Row).order_by(Row.namespace)
    if not context.is_admin:
        query = query.where(sa.or_(Row.visibility == "public", Row.owner == context.project_id))
    return [_to_object(row) for row in uow.session.scalars(query)]


def get(uow: UnitOfWork, context: RequestContext, namespace: str) -> MetadefNamespace:
    """Return a namespace. Raises `NotFound`, also for a private one of another project."""
    return _to_object(_row(uow, context, namespace))


def create(uow: UnitOfWork, namespace: MetadefNamespace) -> MetadefNamespace:
    """Raise `Conflict` if the name is taken, `Forbidden` if there are too many."""
    if (uow.session.scalar(sa.select(sa.func.count()).select_from(Row)) or 0) >= MAX_NAMESPACES:
        raise exceptions.Forbidden(f"This cloud has {MAX_NAMESPACES} namespaces, the most that are possible.")
    for kind in PARTS:
        _check_number(kind, getattr(namespace, kind))
    row = Row(**rows.values_of(namespace, Row) | {"created_at": uow.now, "updated_at": uow.now})
    rows.insert(uow, row, _taken(namespace.namespace))
    return _to_object(row)


def update(uow: UnitOfWork, context: RequestContext, namespace: str, changes: dict[str, Any]) -> MetadefNamespace:
    """Change the fields of a namespace, but not its parts."""
    row = _row(uow, context, namespace, lock=True)
    for field in _FIELDS:
        if field in changes:
            setattr(row, field, changes[field])
    row.updated_at = uow.now
    rows.insert(uow, row, _taken(row.namespace))
    return _to_object(row)


def change_parts(
    uow: UnitOfWork,
    context: RequestContext,
    namespace: str,
    kind: str,
    changes: dict[str, dict[str, Any] | None],
    new: list[str],
    clear: bool,
) -> MetadefNamespace:
    """Change the parts of one kind. None removes a part, which must exist.

    ``new``: names of parts that must not exist. ``clear``: remove all other parts. Raises `NotFound`, `Conflict`, or
    `Forbidden` for a protected namespace of which a part would be removed.
    """
    if kind not in PARTS:
        raise exceptions.InvalidInput(reason=f"a namespace has no {kind[:64]}")
    row = _row(uow, context, namespace, lock=True)
    known: dict[str, dict[str, Any]] = dict(getattr(row, kind))
    if row.protected and (clear or None in changes.values()):
        raise exceptions.Forbidden(f"Metadata definition namespace {namespace} is protected: unprotect it first.")
    for name in new:
        if name in known:
            raise exceptions.Conflict(f"The namespace {namespace} has {name[:80]} among its {kind} already.")
    for name, value in changes.items():
        if value is None and name not in known:
            raise exceptions.NotFound(f"The namespace {namespace} has no {name[:80]} among its {kind}.")
    now = uow.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    made = {name: known.get(name, {}).get("created_at", now) for name in changes}
    values = {
        name: {**value, "created_at": made[name], "updated_at": now}
        for name, value in changes.items()
        if value is not None
    }
    parts = {} if clear else {name: value for name, value in known.items() if name not in changes}
    parts |= values
    _check_number(kind, parts)
    setattr(row, kind, parts)
    row.updated_at = uow.now
    uow.session.flush()
    return _to_object(row)


def delete(uow: UnitOfWork, context: RequestContext, namespace: str) -> None:
    """Delete a namespace with its parts. Raises `Forbidden` for a protected one."""
    row = _row(uow, context, namespace, lock=True)
    if row.protected:
        raise exceptions.Forbidden(f"Metadata definition namespace {namespace} is protected and cannot be deleted.")
    uow.session.delete(row)


def _row(uow: UnitOfWork, context: RequestContext, namespace: str, lock: bool = False) -> Row:
    query = sa.select(Row).where(Row.namespace == namespace)
    row = uow.session.scalars(query.with_for_update() if lock else query).first()
    is_visible = row is not None and (
        bool(context.is_admin)
        or row.visibility == "public"
        or (row.owner is not None and row.owner == context.project_id)
    )
    if row is None or not is_visible:
        raise exceptions.NotFound(f"Metadata definition namespace {namespace[:80]} was not found.")
    return row


def _check_number(kind: str, parts: dict[str, Any]) -> None:
    if len(parts) > MAX_PARTS:
        raise exceptions.Forbidden(f"A namespace has at most {MAX_PARTS} {kind.replace('_', ' ')}.")


def _taken(namespace: str) -> exceptions.Conflict:
    return exceptions.Conflict(f"A metadata definition namespace with the name {namespace[:80]} exists already.")


def _to_object(row: Row) -> MetadefNamespace:
    return rows.to_object(MetadefNamespace, row)
