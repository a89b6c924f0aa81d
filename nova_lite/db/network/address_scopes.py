"""Address scopes: sets of subnet pools whose prefixes do not overlap."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import AddressScope as Row
from nova_lite.db.core.models import SubnetPool
from nova_lite.db.network import rbac
from nova_lite.objects import AddressScope

_TYPE = "address_scope"

#: Number of scopes of a project: a list has all of them.
MAX_SCOPES = 100


def list_(uow: UnitOfWork, context: RequestContext, ids: Collection[str] | None = None) -> list[AddressScope]:
    """Return the scopes that the caller may see. ``ids``: only of these."""
    return rbac.visible_rows(uow, context, _TYPE, AddressScope, ids)


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, scope: AddressScope) -> AddressScope:
    """Create a scope. ``scope.shared``: for all projects. Raises `QuotaExceeded`."""
    rbac.require_room(uow, _TYPE, scope.project_id, MAX_SCOPES)
    uow.session.add(Row(**(rows.values_of(scope, Row) | {"created_at": uow.now, "updated_at": None})))
    uow.session.flush()
    if scope.shared:
        rbac.share(uow, _TYPE, scope.id, scope.project_id)
    return _shown(uow, context, scope.id)


def update(uow: UnitOfWork, context: RequestContext, scope_id: str, changes: dict[str, Any]) -> AddressScope:
    """Set ``name``, or share the scope with all projects."""
    row = _locked(uow, context, scope_id)
    if "name" in changes:
        row.name = changes["name"]
    if changes.get("shared"):
        rbac.share(uow, _TYPE, row.id, row.project_id)
    row.updated_at = uow.now
    uow.session.flush()
    return _shown(uow, context, row.id)


def delete(uow: UnitOfWork, context: RequestContext, scope_id: str) -> None:
    """Delete a scope. Raises `AddressScopeInUse` while a subnet pool is in it."""
    row = _locked(uow, context, scope_id)
    query = sa.select(SubnetPool.id).where(SubnetPool.address_scope_id == row.id).limit(1)
    if uow.session.scalars(query).first() is not None:
        raise exceptions.AddressScopeInUse(address_scope_id=row.id)
    rbac.forget(uow, _TYPE, row.id)
    uow.session.delete(row)
    uow.session.flush()


def check_changeable(uow: UnitOfWork, context: RequestContext, scope_id: str, pool: Any) -> None:
    """Check that the caller may change the prefixes of a pool in the scope. Raises `SubnetPoolInvalid` for a shared
    scope of another project.
    """
    row = uow.session.get(Row, scope_id)
    if row is not None and not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.SubnetPoolInvalid(
            reason=f"Illegal subnetpool update : subnetpool {pool.id} is in address scope {scope_id} of another "
            "project, which alone may change its prefixes and its scope.",
            neutron_type="IllegalSubnetPoolUpdate",
        )


def check_pool(uow: UnitOfWork, context: RequestContext, scope_id: str, pool: Any, prefixes: Sequence[str]) -> None:
    """Check that a subnet pool with these prefixes may be in the scope, which stays locked.

    Raises `AddressScopeNotFound`, `SubnetPoolInvalid` for another IP version or a shared scope of another project, or
    `AddressScopePrefixConflict`.
    """
    row = uow.session.get(Row, scope_id, with_for_update=True, populate_existing=True)
    project_id = context.project_id or ""
    own = row is not None and (context.is_admin or row.project_id == project_id)
    if row is None or not (own or rbac.is_shared(uow, _TYPE, scope_id, project_id)):
        raise exceptions.AddressScopeNotFound(address_scope_id=scope_id[:64])
    if row.ip_version != pool.ip_version:
        raise exceptions.SubnetPoolInvalid(
            reason=f"Illegal subnetpool association: subnetpool {pool.id} cannot associate with address scope "
            f"{scope_id} because subnetpool ip_version is not {row.ip_version}.",
            neutron_type="IllegalSubnetPoolIpVersionAssociationToAddressScope",
        )
    query = sa.select(SubnetPool.prefixes).where(SubnetPool.address_scope_id == scope_id, SubnetPool.id != pool.id)
    if _overlap(prefixes, (prefix for theirs in uow.session.scalars(query) for prefix in theirs)):
        raise exceptions.AddressScopePrefixConflict()


def _overlap(prefixes: Iterable[str], others: Iterable[str]) -> bool:
    """Check whether a prefix overlaps one of the others, in one pass over all of them. They have the same version."""
    networks = ((side, ip.parse_network(text)) for side, texts in enumerate((prefixes, others)) for text in texts)
    ends = [-1, -1]
    for first, last, side in sorted((int(network[0]), int(network[-1]), side) for side, network in networks):
        if first <= ends[1 - side]:
            return True
        ends[side] = max(ends[side], last)
    return False


def _shown(uow: UnitOfWork, context: RequestContext, scope_id: str) -> AddressScope:
    row = uow.session.get_one(Row, scope_id)
    return rows.to_object(AddressScope, row, shared=rbac.is_shared(uow, _TYPE, scope_id, context.project_id))


def _locked(uow: UnitOfWork, context: RequestContext, scope_id: str) -> Row:
    """Return the row of a scope of the caller's own, locked."""
    row: Row = rbac.locked(
        uow, context, _TYPE, scope_id, exceptions.AddressScopeNotFound(address_scope_id=scope_id[:64])
    )
    return row
