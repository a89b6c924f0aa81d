"""Key pairs: public keys, by user."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import exc

from nova_lite import exception
from nova_lite.conductor.db import models, paging, quotas
from nova_lite.conductor.db.engine import UnitOfWork
from nova_lite.context import RequestContext
from nova_lite.objects import KeyPair

#: Counted per user; the limit is that of the user, or else of the project the user works in.
QUOTA = {"key_pairs": 1}


def to_object(row: models.KeyPair) -> KeyPair:
    return KeyPair(
        id=row.id,
        name=row.name,
        user_id=row.user_id,
        type=row.type,
        public_key=row.public_key,
        fingerprint=row.fingerprint,
        created_at=row.created_at,
    )


def list_(uow: UnitOfWork, user_id: str, limit: int | None = None, marker: str | None = None) -> list[KeyPair]:
    """By name; ``marker`` is the last name of the page before."""
    order = paging.Order({"name": models.KeyPair.name}, ["name"], ["asc"], tie_breaker=models.KeyPair.id)
    start = None if marker is None else find(uow, user_id, marker)
    if marker is not None and start is None:
        raise exception.MarkerNotFound(marker=marker)
    query = sa.select(models.KeyPair).where(models.KeyPair.user_id == user_id)
    return [to_object(row) for row in uow.session.scalars(order.page(query, start, limit))]


def get(uow: UnitOfWork, user_id: str, name: str) -> KeyPair:
    return to_object(_get_row(uow, user_id, name))


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, keypair: KeyPair) -> KeyPair:
    """`KeypairExists`, or `KeypairLimitExceeded`."""
    if find(uow, keypair.user_id, keypair.name) is not None:
        raise exception.KeypairExists(name=keypair.name)
    try:
        quotas.take_by_user(uow, conf, context.project_id or "", keypair.user_id, QUOTA)
    except exception.QuotaExceeded as error:
        raise exception.KeypairLimitExceeded() from error
    row = models.KeyPair(
        user_id=keypair.user_id,
        name=keypair.name,
        type=keypair.type,
        public_key=keypair.public_key,
        fingerprint=keypair.fingerprint,
        created_at=uow.now,
    )
    try:
        with uow.session.begin_nested():
            uow.session.add(row)
    except exc.IntegrityError as error:
        raise exception.KeypairExists(name=keypair.name) from error
    return to_object(row)


def delete(uow: UnitOfWork, user_id: str, name: str) -> None:
    mine = (models.KeyPair.user_id == user_id, models.KeyPair.name == name)
    if not uow.change(sa.delete(models.KeyPair).where(*mine)):
        raise exception.KeypairNotFound(name=name, user_id=user_id)
    quotas.give_back(uow, user_id, QUOTA)


def _get_row(uow: UnitOfWork, user_id: str, name: str) -> models.KeyPair:
    row = find(uow, user_id, name)
    if row is None:
        raise exception.KeypairNotFound(name=name, user_id=user_id)
    return row


def find(uow: UnitOfWork, user_id: str, name: str) -> models.KeyPair | None:
    return uow.session.scalars(
        sa.select(models.KeyPair).where(models.KeyPair.user_id == user_id, models.KeyPair.name == name)
    ).first()
