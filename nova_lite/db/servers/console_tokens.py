"""Console tokens, stored as hashes only.

A token becomes void once it was used, its time is over, or its instance was deleted, moved, or rebuilt. Tokens of
`SEVERAL_CONNECTIONS` can be used until then.
"""

from __future__ import annotations

import datetime

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import ConsoleAuthToken, Instance
from nova_lite.db.servers import instances
from nova_lite.objects import Console, ConsoleTarget

#: Number of expired tokens that one call of `expire` removes.
BATCH = 1000
#: Types of consoles whose clients open several connections with one token: a SPICE client has one for each channel.
SEVERAL_CONNECTIONS = ("spice-html5",)
#: Most unused console URLs of a server. A further one voids the oldest.
TOKENS_PER_INSTANCE = 20


def create(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    instance_uuid: str,
    compute_host: str,
    token_hash: str,
    console: Console,
) -> None:
    """Store a token for a console that ``compute_host`` reported. Raises `InstanceNotReady` if the instance has left
    that host.
    """
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    if instance.host != compute_host:
        raise exceptions.InstanceNotReady(instance_id=instance_uuid)
    _make_room(uow, instance_uuid, TOKENS_PER_INSTANCE)
    uow.session.add(
        ConsoleAuthToken(
            token_hash=token_hash,
            instance_uuid=instance_uuid,
            generation=instance.generation,
            compute_host=compute_host,
            console_type=console.console_type,
            host=console.host,
            port=console.port,
            tls_port=console.tls_port,
            internal_access_path=console.internal_access_path,
            access_url_base=console.access_url_base,
            created_at=uow.now,
            expires_at=uow.now + datetime.timedelta(seconds=conf.consoleauth.token_ttl),
        )
    )


def _make_room(uow: UnitOfWork, instance_uuid: str, limit: int) -> None:
    """Delete the oldest tokens beyond the limit. Runs under the lock of the instance's row."""
    row = ConsoleAuthToken
    newest_first = sa.select(row.id).where(row.instance_uuid == instance_uuid).order_by(row.id.desc())
    surplus = uow.session.scalars(newest_first.offset(limit - 1)).all()
    if surplus:
        uow.change(sa.delete(row).where(row.id.in_(surplus)))


def get(uow: UnitOfWork, token_hash: str) -> ConsoleTarget:
    """Return the target of a token. Raises `ConsoleTokenNotFound`."""
    return _to_object(_find(uow, token_hash))


def take(uow: UnitOfWork, token_hash: str, console_types: list[str], page_scheme: str | None = None) -> ConsoleTarget:
    """Consume a token, unless it is for several connections, and return its target.

    Raises `ConsoleTokenNotFound`, also for a console of another type. Raises `ConsolePageRefused` for a page of another
    scheme than the console's. In both cases the token stays.
    """
    row = _find(uow, token_hash)
    if row.console_type not in console_types:
        raise exceptions.ConsoleTokenNotFound()
    target = _to_object(row)
    if page_scheme is not None and not target.console.is_shown_by(page_scheme):
        raise exceptions.ConsolePageRefused()
    if row.console_type not in SEVERAL_CONNECTIONS:
        consumed = uow.change(sa.delete(ConsoleAuthToken).where(ConsoleAuthToken.id == row.id))
        if consumed != 1:
            raise exceptions.ConsoleTokenNotFound()
    return target


def expire(uow: UnitOfWork) -> int:
    """Delete expired tokens and return their number, at most `BATCH`."""
    row = ConsoleAuthToken
    old = uow.session.scalars(sa.select(row.id).where(row.expires_at <= uow.now).limit(BATCH)).all()
    if old:
        uow.change(sa.delete(row).where(row.id.in_(old)))
    return len(old)


def _find(uow: UnitOfWork, token_hash: str) -> ConsoleAuthToken:
    row = ConsoleAuthToken
    query = sa.select(row).join(Instance, Instance.uuid == row.instance_uuid)
    query = query.where(row.token_hash == token_hash, row.expires_at > uow.now, ~Instance.deleted)
    query = query.where(Instance.host == row.compute_host, Instance.generation == row.generation)
    found = uow.session.scalars(query).first()
    if found is None:
        raise exceptions.ConsoleTokenNotFound()
    return found


def _to_object(row: ConsoleAuthToken) -> ConsoleTarget:
    console = Console(
        console_type=row.console_type,
        host=row.host,
        port=row.port,
        tls_port=row.tls_port,
        access_url_base=row.access_url_base,
        internal_access_path=row.internal_access_path,
    )
    return ConsoleTarget(instance_uuid=row.instance_uuid, compute_host=row.compute_host, console=console)
