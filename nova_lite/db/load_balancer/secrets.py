"""Secrets of projects, containers of them, and the copies that listeners have of their certificates.

A payload is encrypted by a key of its own, among the keys of encrypted volumes, which a master key wraps. API,
conductors and hosts seal payloads to each other, so that the message broker cannot read them. A listener has a copy,
which stays when its secret is deleted.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from nova_lite.base import exceptions, sealing
from nova_lite.base.context import RequestContext
from nova_lite.base.master_keys import MasterKeys, Unwrappable
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Secret as Row
from nova_lite.db.core.models import VolumeKey
from nova_lite.db.identity import identity_records
from nova_lite.db.load_balancer import limits
from nova_lite.db.volume import volume_keys
from nova_lite.load_balancer import certificates
from nova_lite.load_balancer.objects import Listener, Secret

#: Secrets and containers of a project.
MAX_SECRETS = 1000
#: Name of the only key of a cipher.
_ONLY = ""
_CIPHER = {
    "provider": "secret",
    "cipher": "aes-256-gcm",
    "key_size": 256,
    "control_location": volume_keys.FRONT_END,
}


class Kind(enum.StrEnum):
    SECRET = "secret"  # noqa: S105 a name
    CONTAINER = "container"
    LISTENER = "listener"


def public_key(uow: UnitOfWork) -> str:
    """Return the key to which the API seals payloads for the conductors."""
    return sealing.public_key(identity_records.private_key(uow))


# --- secrets and containers


def list_(uow: UnitOfWork, context: RequestContext, kind: Kind) -> list[Secret]:
    """Return the secrets or containers of the caller's project, oldest first."""
    query = sa.select(Row).where(Row.kind == kind.value, Row.project_id == (context.project_id or ""))
    found = [_document(row) for row in uow.session.scalars(query.order_by(Row.created_at, Row.id))]
    return [secret for secret in found if not _is_expired(uow, secret)]


def get(uow: UnitOfWork, context: RequestContext, kind: Kind, id: str) -> Secret:
    return _document(_row(uow, context, kind, id))


def payload(uow: UnitOfWork, context: RequestContext, id: str, receiver: str) -> str:
    """Return the payload of a secret, sealed to the public key ``receiver``."""
    row = _row(uow, context, Kind.SECRET, id)
    if row.payload is None:
        raise exceptions.NotFound("Not Found. Sorry but your secret has no payload.")
    return _sealed(receiver, _decrypted(uow, row))


def create(uow: UnitOfWork, context: RequestContext, kind: Kind, secret: Secret, box: str | None = None) -> None:
    """Create a secret or a container. ``box``: the sealed payload. It repeats itself by its id."""
    if uow.session.get(Row, secret.id) is not None:
        return
    limits.lock(uow, secret.project_id)
    mine = (Row.project_id == secret.project_id, Row.kind != Kind.LISTENER.value)
    used = uow.session.scalar(sa.select(sa.func.count()).where(*mine)) or 0
    if used >= MAX_SECRETS:
        raise exceptions.Forbidden(f"Quota reached. A project has at most {MAX_SECRETS} secrets and containers.")
    for part in (secret.parts or {}).values():
        _row(uow, context, Kind.SECRET, part)
    secret.created_at = uow.now
    row = Row(id=secret.id, project_id=secret.project_id, kind=kind.value, created_at=uow.now, updated_at=uow.now)
    row.document = msgspec.to_builtins(secret)
    if box is not None:
        _encrypt(uow, row, _opened(uow, box))
    uow.session.add(row)
    uow.session.flush()


def set_payload(uow: UnitOfWork, context: RequestContext, id: str, content_type: str, box: str) -> None:
    """Give a secret its payload, which then never changes."""
    row = _row(uow, context, Kind.SECRET, id)
    data = _opened(uow, box)
    if row.payload is not None:
        if _decrypted(uow, row) == data:
            return  # a repeated request
        raise exceptions.Conflict("Secret already has data, cannot modify it.")
    _encrypt(uow, row, data)
    row.document = row.document | {"content_type": content_type}
    row.updated_at = uow.now


def set_metadata(
    uow: UnitOfWork, context: RequestContext, id: str, changes: dict[str, str | None], replace: bool = False
) -> None:
    """Change metadata of a secret; None: remove this key. ``replace``: others go, too."""
    row = _row(uow, context, Kind.SECRET, id)
    changed = ({} if replace else row.document["metadata"]) | changes
    row.document = row.document | {"metadata": {key: text for key, text in changed.items() if text is not None}}
    row.updated_at = uow.now


def delete(uow: UnitOfWork, context: RequestContext, kind: Kind, id: str) -> None:
    """Delete a secret or a container. The secrets of a container stay."""
    forget(uow, [_row(uow, context, kind, id).id])


def _row(uow: UnitOfWork, context: RequestContext, kind: Kind, id: str) -> Row:
    row = uow.session.get(Row, id, populate_existing=True)
    is_mine = row is not None and row.kind == kind and (context.is_admin or row.project_id == context.project_id)
    if row is None or not is_mine or _is_expired(uow, _document(row)):
        raise exceptions.NotFound(f"Not Found. Sorry but your {kind} is in another castle.")
    return row


def _is_expired(uow: UnitOfWork, secret: Secret) -> bool:
    return secret.expiration is not None and secret.expiration <= uow.now


def _document(row: Row) -> Secret:
    return msgspec.structs.replace(msgspec.convert(row.document, Secret), updated_at=row.updated_at)


# --- copies of listeners


def keep(uow: UnitOfWork, project_id: str, listener: Listener, box: str) -> None:
    """Keep a copy of a listener's certificates. ``box``: their PEM texts as JSON, sealed."""
    data = _opened(uow, box)
    listener.certificates = [certificates.digest(pem) for pem in msgspec.json.decode(data, type=list[str])]
    forget(uow, [listener.id])
    row = Row(id=listener.id, project_id=project_id, kind=Kind.LISTENER.value, document={}, created_at=uow.now)
    _encrypt(uow, row, data)
    uow.session.add(row)
    uow.session.flush()


def for_host(uow: UnitOfWork, listeners: Iterable[Listener], receiver: str) -> dict[str, str]:
    """Return the copies of these listeners, sealed to the host."""
    found = uow.session.scalars(sa.select(Row).where(Row.id.in_([one.id for one in listeners])))
    return {row.id: _sealed(receiver, _decrypted(uow, row)) for row in found}


def forget(uow: UnitOfWork, ids: list[str]) -> None:
    """Destroy secrets, containers, or the copies of listeners, with their keys."""
    mine = sa.select(Row.id).where(Row.id.in_(ids))
    uow.change(sa.delete(VolumeKey).where(VolumeKey.id.in_(mine)))
    uow.change(sa.delete(Row).where(Row.id.in_(ids)))


# --- encryption


def _encrypt(uow: UnitOfWork, row: Row, data: bytes) -> None:
    masters = volume_keys.masters_of(uow.conf, "secrets", "use HTTPS, which passes TLS through")
    key = volume_keys.new_passphrase()
    volume_keys.insert(uow, masters, row.id, key, _CIPHER)
    _, row.payload = _cipher(key).wrap(row.id, data)


def _decrypted(uow: UnitOfWork, row: Row) -> bytes:
    masters = volume_keys.masters_of(uow.conf, "secrets", "tell the operator")
    try:
        key = volume_keys.read(uow, masters, row.id).passphrase
        return _cipher(key).unwrap(row.id, _ONLY, row.payload or "")
    except (exceptions.VolumeKeyUnavailable, Unwrappable) as error:
        raise exceptions.ServiceUnavailable(f"The payload of secret {row.id} cannot be read.") from error


def _cipher(key: str) -> MasterKeys:
    return MasterKeys({_ONLY: bytes.fromhex(key)})


def _opened(uow: UnitOfWork, box: str) -> bytes:
    try:
        return sealing.unseal(identity_records.private_key(uow), box)
    except sealing.Unreadable as error:
        raise exceptions.Conflict("The key of the conductors has changed. Send the request again.") from error


def _sealed(receiver: str, data: bytes) -> str:
    try:
        return sealing.seal(receiver, data)
    except sealing.Unreadable as error:
        raise exceptions.InvalidInput(reason="the receiver is no public key.") from error
