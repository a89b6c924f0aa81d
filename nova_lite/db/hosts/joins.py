"""Tokens and requests of machines that become hosts, and the published list of trusted keys.

A token's first valid request binds it to the host's name and key. The same host may repeat its request at any time,
with this token: an interrupted set-up continues. No other machine can use the token then, since each request is signed
by the host's own key as well. With its key, a host that has joined may use another token as well: it is admitted again.

A machine may be a controller and a compute host at once, or have several roles. It joins as each of them, with a token
and a row of its own.
"""

from __future__ import annotations

import datetime
import time
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip, join_requests
from nova_lite.base.join_requests import COMPUTE_HOST, CONTROLLER, JoinBody
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, JoinedHost, JoinToken, PublishedTrust, Service
from nova_lite.db.hosts import compute_nodes, services
from nova_lite.objects import JoinRequest, JoinState, JoinTokenInfo, PendingJoin, TrustList
from nova_lite.objects.join import JOINED, PENDING, REMOVING

_ONLY = 1
#: Days after which the record of a token that is over goes.
_KEPT = datetime.timedelta(days=30)
_OVERLAP = datetime.timedelta(seconds=join_requests.KEY_OVERLAP)


class _Known(msgspec.Struct):
    """Parts of a `JoinBody` that was checked. ``controller``, ``front_end``: None for a compute host."""

    host: str
    addresses: list[str]
    controller: dict[str, Any] | None = None
    front_end: dict[str, Any] | None = None

    @property
    def kind(self) -> str:
        if self.front_end is not None:
            return str(self.front_end["role"])
        return COMPUTE_HOST if self.controller is None else CONTROLLER


# --- tokens


def create_token(uow: UnitOfWork, public_key: str, lifetime: int) -> JoinTokenInfo:
    """Store a token's public key for ``lifetime`` seconds, and forget tokens that are over for long."""
    uow.change(sa.delete(JoinToken).where(JoinToken.expires_at < uow.now - _KEPT))
    expires = uow.now + datetime.timedelta(seconds=lifetime)
    row = JoinToken(
        id=join_requests.token_id(public_key), public_key=public_key, created_at=uow.now, expires_at=expires
    )
    uow.session.add(row)
    return rows.to_object(JoinTokenInfo, row)


def list_tokens(uow: UnitOfWork) -> list[JoinTokenInfo]:
    """Return the tokens that can be used, or could be in the last 30 days. Older ones wait for the next token."""
    query = sa.select(JoinToken).where(JoinToken.expires_at >= uow.now - _KEPT)
    query = query.order_by(JoinToken.created_at, JoinToken.id)
    return [rows.to_object(JoinTokenInfo, row) for row in uow.session.scalars(query)]


def revoke_token(uow: UnitOfWork, token_id: str) -> None:
    """Make a token useless. A host that used it stays. Raises `JoinTokenNotFound`."""
    row = _token(uow, token_id)
    if row is None:
        raise exceptions.JoinTokenNotFound(token_id=token_id[:64])
    row.revoked_at = row.revoked_at or uow.now


def _token(uow: UnitOfWork, token_id: str) -> JoinToken | None:
    query = sa.select(JoinToken).where(JoinToken.id == token_id).with_for_update()
    return uow.session.scalars(query).first() if join_requests.is_token_id(token_id) else None


# --- requests


def join(uow: UnitOfWork, conf: cfg.ConfigOpts, request: JoinRequest) -> JoinState:
    """Accept a request, or return what became of it.

    Raises `JoinTokenInvalid` for whoever does not have the token. Who has it learns the reason: `JoinRefused`,
    `JoinedHostExists`, `InvalidInput`.
    """
    token = _token(uow, request.token)
    if not request.token:
        return _renew(uow, conf, request)
    if token is None or not join_requests.verifies(token.public_key, request.token_signature, request.body):
        raise exceptions.JoinTokenInvalid()
    body = join_requests.parse_body(request.body)
    plain = _checked(conf, request, body)
    row = _row(uow, body.host, body.kind)
    if row is not None and (row.token_id, row.public_key) == (token.id, body.key):
        if row.body != plain:
            _check_addresses(uow, body)
        return _repeated(uow, row, plain)
    _check_token(uow, token)
    if row is not None and row.public_key == body.key:
        return _admitted_again(uow, row, token, body, plain)
    if (known := _same_name(uow, body)) is not None:
        raise exceptions.JoinedHostExists(host=known)
    _check_addresses(uow, body)
    name = _name(body.host, body.kind)
    row = JoinedHost(host=name, token_id=token.id, public_key=body.key, state=PENDING, body=plain)
    row.reply = row.signature = row.problem = ""
    row.created_at = uow.now
    rows.insert(uow, row, exceptions.JoinedHostExists(host=body.host))
    token.used_at, token.host = uow.now, body.host
    return JoinState(state=PENDING)


def _admitted_again(uow: UnitOfWork, row: JoinedHost, token: JoinToken, body: JoinBody, plain: str) -> JoinState:
    """Use another token for a host that has joined, and has its key still. The reply may be of another authority."""
    _check_addresses(uow, body)
    if row.state == JOINED:
        row.previous_key = None
    state = _repeated(uow, row, plain)
    row.token_id, row.body, row.state, row.reply, row.signature, row.problem = token.id, plain, PENDING, "", "", ""
    row.updated_at = token.used_at = uow.now
    token.host = body.host
    return JoinState(state=PENDING, up=state.up)


def _renew(uow: UnitOfWork, conf: cfg.ConfigOpts, request: JoinRequest) -> JoinState:
    """Replace the keys of a host that has joined. Its key signs the request.

    The key that was replaced may repeat that request, for as long as it is trusted. It replaces no other key: an old
    backup of the host has it, too.
    """
    try:
        body = join_requests.parse_body(request.body)
    except exceptions.InvalidInput as error:
        raise exceptions.JoinTokenInvalid() from error
    row = _row(uow, body.host, body.kind)
    signers = [] if row is None else [row.public_key, *_replaced_key(uow, row, body)]
    if row is None or not any(join_requests.verifies(key, request.token_signature, request.body) for key in signers):
        raise exceptions.JoinTokenInvalid()
    plain = _checked(conf, request, body)
    if row.body != plain:
        _check_addresses(uow, body)
    if body.key == row.previous_key:
        raise exceptions.JoinRefused(reason=f"This key of host {body.host} was replaced. Make another.")
    if body.key != row.public_key:
        if row.state != JOINED:
            raise exceptions.JoinRefused(reason=f"Host {body.host} has another request under way; repeat that one.")
        row.previous_key, row.public_key = row.public_key, body.key
    elif row.state == JOINED and row.body != plain:
        row.previous_key = None  # The request replaces no key.
    return _repeated(uow, row, plain)


def _replaced_key(uow: UnitOfWork, row: JoinedHost, body: JoinBody) -> list[str]:
    """Return the replaced key, if it may sign this request."""
    is_over = row.state == JOINED and (row.updated_at is None or uow.now - row.updated_at > _OVERLAP)
    return [row.previous_key] if row.previous_key and body.key == row.public_key and not is_over else []


def _checked(conf: cfg.ConfigOpts, request: JoinRequest, body: JoinBody) -> str:
    """Check the signature of the host's own key, and the clock. Return the body without the time."""
    if not join_requests.verifies(body.key, request.key_signature, request.body):
        raise exceptions.InvalidInput(reason="the request is not signed by the host's own key.")
    _check_clock(conf, body)
    return msgspec.json.encode(msgspec.structs.replace(body, sent=0.0)).decode()


def _repeated(uow: UnitOfWork, row: JoinedHost, body: str) -> JoinState:
    host = _host(row.host)
    if row.state == REMOVING:
        raise exceptions.JoinRefused(reason=f"Host {host} is being removed; it then needs another token.")
    if row.body != body:
        row.body, row.state, row.reply, row.signature, row.problem = body, PENDING, "", "", ""
        row.updated_at = uow.now
    service = services.find(uow, host, services.COMPUTE)
    return JoinState(
        state=row.state,
        reply=row.reply,
        signature=row.signature,
        problem=row.problem,
        up=service is not None and service.up,
    )


def _check_token(uow: UnitOfWork, token: JoinToken) -> None:
    if token.revoked_at is not None:
        why = "was revoked"
    elif token.used_at is not None:
        why = f"was used by host {token.host} at {_shown(token.used_at)}"
    elif token.expires_at <= uow.now:
        why = f"expired at {_shown(token.expires_at)}"
    else:
        return
    raise exceptions.JoinRefused(reason=f"The token {why}. Make another on the controller: nova-lite-manage host token")


def _shown(moment: datetime.datetime) -> str:
    return f"{moment.isoformat(' ', 'seconds')} UTC"


def _check_clock(conf: cfg.ConfigOpts, body: JoinBody) -> None:
    seconds = round(body.sent - time.time())
    if abs(seconds) > conf.rpc.clock_skew:
        direction = "ahead of" if seconds > 0 else "behind"
        raise exceptions.JoinRefused(
            reason=f"The clock of {body.host} is {abs(seconds)} s {direction} the controller's; "
            f"{conf.rpc.clock_skew} s are allowed. Set it, for example by NTP."
        )


def _same_name(uow: UnitOfWork, body: JoinBody) -> str | None:
    """Return the machine of this kind and name. Certificates are compared without regard to upper case."""
    name = _name(body.host, body.kind)
    queries = [(sa.select(JoinedHost.host), JoinedHost.host, name)]
    if body.kind == COMPUTE_HOST:
        of_service = sa.select(Service.host).where(Service.binary == services.COMPUTE)
        queries.append((of_service, Service.host, name))
    for query, column, wanted in queries:
        found = uow.session.scalars(query.where(sa.func.lower(column) == wanted.lower())).first()
        if found is not None:
            return _host(found)
    return None


def _check_addresses(uow: UnitOfWork, body: JoinBody) -> None:
    """Raise `JoinRefused` for an address of another host, as which this host could pass with a certificate for it."""
    rows_of = [msgspec.json.decode(text, type=_Known) for text in uow.session.scalars(sa.select(JoinedHost.body))]
    known = [(row.host, row.addresses) for row in rows_of if row.host != body.host]
    known += [(host, [address]) for host, address in compute_nodes.addresses_by_host(uow).items() if host != body.host]
    wanted = {ip.parse(address) for address in body.addresses}
    for host, addresses in known:
        for address in addresses:
            if ip.is_address(address) and ip.parse(address) in wanted:
                raise exceptions.JoinRefused(
                    reason=f"Address {address} is that of host {host}. If that host is gone, remove it first: "
                    f"nova-lite-manage host remove {host}"
                )


def _name(host: str, kind: str) -> str:
    """Return the name of a machine's row as a kind. No host name has a space."""
    return host if kind == COMPUTE_HOST else f"{kind} {host}"


def _host(name: str) -> str:
    """Return the host of a row's name."""
    return name.rpartition(" ")[2]


def _row(uow: UnitOfWork, host: str, kind: str) -> JoinedHost | None:
    """Return the row of a machine as a kind."""
    return uow.session.scalar(sa.select(JoinedHost).where(JoinedHost.host == _name(host, kind)).with_for_update())


def _kind(row: JoinedHost | PendingJoin) -> str:
    return msgspec.json.decode(row.body, type=_Known).kind


# --- the registrar's work


def pending(uow: UnitOfWork) -> list[PendingJoin]:
    """Return the hosts that the registrar has to admit or to remove."""
    query = sa.select(JoinedHost).where(JoinedHost.state.in_((PENDING, REMOVING))).order_by(JoinedHost.created_at)
    found = [rows.to_object(PendingJoin, row) for row in uow.session.scalars(query)]
    return [msgspec.structs.replace(work, host=_host(work.host)) for work in found]


def finish(uow: UnitOfWork, work: PendingJoin, reply: str, signature: str, problem: str) -> None:
    """Store what the registrar did. Work that has changed in the meantime is not finished by it."""
    row = _row(uow, work.host, _kind(work))
    if row is None or (row.state, row.body) != (work.state, work.body):
        return
    row.updated_at = uow.now
    if problem:
        row.problem = problem
    elif row.state == REMOVING:
        uow.session.delete(row)
    else:
        row.state, row.reply, row.signature, row.problem = JOINED, reply, signature, ""


def remove_controller(uow: UnitOfWork, host: str, kind: str = CONTROLLER) -> None:
    """Make the registrar revoke the keys and accounts of a controller, or of a front end with the role ``kind``.

    Raises `JoinedHostNotFound` for an unknown one.
    """
    row = _row(uow, host, kind)
    if row is None and not _was_joined(uow, host):
        raise exceptions.JoinedHostNotFound(host=host[:255])
    if row is not None:
        _begin_removal(uow, row)


def remove(uow: UnitOfWork, host: str) -> None:
    """Make the registrar revoke a host's key and account. Changes nothing if that is done already.

    Raises `JoinedHostNotFound` for an unknown host, and `JoinRefused` while it has servers.
    """
    row = _row(uow, host, COMPUTE_HOST)
    service = services.find(uow, host, services.COMPUTE)
    if row is None and (service is None or not _was_joined(uow, host)):
        raise exceptions.JoinedHostNotFound(host=host[:255])
    query = sa.select(sa.func.count()).select_from(Instance).where(Instance.host == host, ~Instance.deleted)
    if count := uow.session.scalar(query):
        raise exceptions.JoinRefused(
            reason=f"Host {host} has {count} server(s): drain it first (nova-lite-manage host drain {host}), or, if it "
            f"is lost, nova-lite-manage host retire {host}"
        )
    if row is not None:
        _begin_removal(uow, row)


def _begin_removal(uow: UnitOfWork, row: JoinedHost) -> None:
    row.state, row.reply, row.signature, row.problem = REMOVING, "", "", ""
    row.updated_at = uow.now


def _was_joined(uow: UnitOfWork, host: str) -> bool:
    return uow.session.scalars(sa.select(JoinToken.id).where(JoinToken.host == host)).first() is not None


def removal(uow: UnitOfWork, host: str, kind: str) -> str | None:
    """Return the problem of a removal, empty while there is none; None once the machine of this kind is gone."""
    row = uow.session.get(JoinedHost, _name(host, kind))
    return None if row is None else row.problem


# --- trusted keys


def publish(uow: UnitOfWork, trust: TrustList) -> None:
    """Store the signed list, unless a newer one is there."""
    row = uow.session.get(PublishedTrust, _ONLY, with_for_update=True)
    values = {name: getattr(trust, name) for name in trust.__struct_fields__}
    if row is None:
        rows.insert(uow, PublishedTrust(id=_ONLY, **values), exceptions.Conflict("Another list was published."))
    elif row.serial < trust.serial:
        for name, value in values.items():
            setattr(row, name, value)


def published(uow: UnitOfWork) -> TrustList | None:
    row = uow.session.get(PublishedTrust, _ONLY)
    return None if row is None else rows.to_object(TrustList, row)
