"""Key pairs: public keys, by user."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models, paging, quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.rows import insert, to_object, values_of
from nova_lite.objects import KeyPair

#: Key pairs are counted per user. The limit is the user's, or else that of the project the user works in.
QUOTA = {"key_pairs": 1}


def list_(uow: UnitOfWork, user_id: str, limit: int | None = None, marker: str | None = None) -> list[KeyPair]:
    """Return key pairs by name, in pages. ``marker``: last name of the previous page."""
    order = paging.Order({"name": models.KeyPair.name}, ["name"], ["asc"], tie_breaker=models.KeyPair.id)
    start = paging.start(marker, lambda name: find(uow, user_id, name))
    query = sa.select(models.KeyPair).where(models.KeyPair.user_id == user_id)
    return [to_object(KeyPair, row) for row in uow.session.scalars(order.page(query, start, limit))]


def get(uow: UnitOfWork, user_id: str, name: str) -> KeyPair:
    row = find(uow, user_id, name)
    if row is None:
        raise exceptions.KeypairNotFound(name=name, user_id=user_id)
    return to_object(KeyPair, row)


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, keypair: KeyPair) -> KeyPair:
    """Create a key pair. Raises `KeypairExists` or `KeypairLimitExceeded`."""
    if find(uow, keypair.user_id, keypair.name) is not None:
        raise exceptions.KeypairExists(name=keypair.name)
    try:
        quotas.take_by_user(uow, conf, context.project_id or "", keypair.user_id, QUOTA)
    except exceptions.QuotaExceeded as error:
        raise exceptions.KeypairLimitExceeded() from error
    row = models.KeyPair(**values_of(keypair, models.KeyPair) | {"id": None, "created_at": uow.now})
    insert(uow, row, exceptions.KeypairExists(name=keypair.name))
    return to_object(KeyPair, row)


def delete(uow: UnitOfWork, user_id: str, name: str) -> None:
    mine = (models.KeyPair.user_id == user_id, models.KeyPair.name == name)
    if not uow.change(sa.delete(models.KeyPair).where(*mine)):
        raise exceptions.KeypairNotFound(name=name, user_id=user_id)
    quotas.give_back(uow, user_id, QUOTA)


def find(uow: UnitOfWork, user_id: str, name: str) -> models.KeyPair | None:
    return uow.session.scalars(sa.select(models.KeyPair).filter_by(user_id=user_id, name=name)).first()
