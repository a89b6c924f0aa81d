"""Shares that the operator has given to projects, and shares of servers."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from nova_lite.base import exceptions
from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.hardware import traits
from nova_lite.objects import Share, ShareMapping, ShareProtocol, ShareState, is_share_name


def create(uow: UnitOfWork, name: str, project_id: str, protocol: ShareProtocol) -> Share:
    """Create a share. Raises `InvalidInput` for a wrong name, and `Conflict` if another share has it."""
    if not is_share_name(name):
        raise exceptions.InvalidInput(
            reason=f"{name!r} is no name of a share: it has up to 64 letters, digits, - and _, a letter or digit first"
        )
    row = models.Share(id=str(uuid.uuid4()), name=name, project_id=project_id, protocol=protocol, created_at=uow.now)
    rows.insert(uow, row, exceptions.Conflict(f"There is a share {name} already."))
    return _to_object(row)


def list_(uow: UnitOfWork) -> list[Share]:
    return [_to_object(row) for row in uow.session.scalars(sa.select(models.Share).order_by(models.Share.name))]


def delete(uow: UnitOfWork, name: str) -> None:
    """Delete a share. Raises `NotFound`, and `Conflict` while servers have it."""
    row = uow.session.scalars(sa.select(models.Share).where(models.Share.name == name).with_for_update()).first()
    if row is None:
        raise exceptions.NotFound(f"There is no share {name}.")
    query = sa.select(models.Instance).where(models.Instance.shares.is_not(None), ~models.Instance.deleted)
    users = [instance.uuid for instance in uow.session.scalars(query) if _ids(instance) & {row.id}]
    if users:
        raise exceptions.Conflict(f"Share {name} is attached to servers: {', '.join(sorted(users))}.")
    uow.session.delete(row)


def get(uow: UnitOfWork, project_id: str, share_id: str) -> Share:
    """Return a share of the project, locked. Raises `ShareNotFound`."""
    query = sa.select(models.Share).where(models.Share.id == share_id, models.Share.project_id == project_id)
    row = uow.session.scalars(query.with_for_update()).first()
    if row is None:
        raise exceptions.ShareNotFound(share_id=share_id)
    return _to_object(row)


def _to_object(row: models.Share) -> Share:
    return rows.to_object(Share, row, protocol=ShareProtocol(row.protocol))


# --- of servers


def of(instance: models.Instance) -> list[ShareMapping]:
    return msgspec.convert(instance.shares or [], list[ShareMapping])


def _ids(instance: models.Instance) -> set[str]:
    return {mapping.share_id for mapping in of(instance)}


def keep(instance: models.Instance, mappings: Iterable[ShareMapping]) -> None:
    instance.shares = [msgspec.to_builtins(mapping) for mapping in mappings] or None


def settle(instance: models.Instance, before: ShareState, after: ShareState | None) -> None:
    """Give the shares in the state ``before`` the state ``after``. None: the server has them no longer."""
    changed = [
        mapping if mapping.state != before else msgspec.structs.replace(mapping, state=after)
        for mapping in of(instance)
        if mapping.state != before or after is not None
    ]
    keep(instance, changed)


def needed_traits(instance: models.Instance) -> list[str]:
    """Return the traits that a host needs for the shares of the instance."""
    return [traits.VIRTIOFS] if instance.shares else []
