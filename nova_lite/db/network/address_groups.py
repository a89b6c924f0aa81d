"""Address groups: prefixes that rules of security groups name together.

Hosts know no address groups. They get a rule for each prefix (`expanded`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import AddressGroup as Row
from nova_lite.db.core.models import SecurityGroup, SecurityGroupRule
from nova_lite.db.network import rbac
from nova_lite.objects import AddressGroup
from nova_lite.objects import SecurityGroupRule as Rule
from nova_lite.objects.security_group import IPV4, IPV6

_TYPE = "address_group"

#: Number of groups of a project, and of addresses of a group: a list has all of them.
MAX_GROUPS, MAX_ADDRESSES = 100, 1000


def list_(uow: UnitOfWork, context: RequestContext, ids: Collection[str] | None = None) -> list[AddressGroup]:
    """Return the groups that the caller may see. ``ids``: only of these."""
    return rbac.visible_rows(uow, context, _TYPE, AddressGroup, ids)


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, group: AddressGroup) -> AddressGroup:
    """Create a group. Raises `QuotaExceeded`."""
    rbac.require_room(uow, _TYPE, group.project_id, MAX_GROUPS)
    uow.session.add(Row(**(rows.values_of(group, Row) | {"created_at": uow.now, "updated_at": None})))
    uow.session.flush()
    return _shown(uow, context, group.id)


def update(uow: UnitOfWork, context: RequestContext, group_id: str, changes: dict[str, Any]) -> AddressGroup:
    """Set ``name`` and ``description``, or change the addresses: ``add``, ``remove``."""
    row = _locked(uow, context, group_id)
    for name in changes.keys() & {"name", "description"}:
        setattr(row, name, changes[name])
    present = list(row.addresses)
    if repeated := [address for address in changes.get("add", ()) if address in present]:
        raise exceptions.AddressesAlreadyExist(addresses=repeated, address_group_id=row.id)
    if missing := [address for address in changes.get("remove", ()) if address not in present]:
        raise exceptions.AddressesNotFound(addresses=missing, address_group_id=row.id)
    if changes.keys() & {"add", "remove"}:
        row.addresses = [item for item in [*present, *changes.get("add", ())] if item not in changes.get("remove", ())]
        if len(row.addresses) > MAX_ADDRESSES:
            raise exceptions.InvalidInput(reason=f"an address group has at most {MAX_ADDRESSES} addresses")
        uow.publish(*map(FiltersChanged, _users(uow, row.id)))
    row.updated_at = uow.now
    uow.session.flush()
    return _shown(uow, context, row.id)


def delete(uow: UnitOfWork, context: RequestContext, group_id: str) -> None:
    """Delete a group. Raises `AddressGroupInUse` while a rule names it."""
    row = _locked(uow, context, group_id)
    if _users(uow, row.id):
        raise exceptions.AddressGroupInUse(address_group_id=row.id)
    rbac.forget(uow, _TYPE, row.id)
    uow.session.delete(row)
    uow.session.flush()


def use(uow: UnitOfWork, context: RequestContext, group_id: str) -> None:
    """Check that a rule of the caller's may name the group, which stays until the commit."""
    row = uow.session.get(Row, group_id, with_for_update=True, populate_existing=True)
    own = row is not None and (context.is_admin or row.project_id == context.project_id)
    if row is None or not (own or rbac.is_shared(uow, _TYPE, group_id, context.project_id)):
        raise exceptions.AddressGroupNotFound(address_group_id=group_id[:64])


def expanded(uow: UnitOfWork, rules: Collection[Rule]) -> list[Rule]:
    """Return rules for hosts: each rule that names an address group becomes one for each of the group's prefixes."""
    named = {rule.remote_address_group_id for rule in rules} - {None}
    if not named:
        return list(rules)
    query = sa.select(Row.id, Row.addresses).where(Row.id.in_(named))
    addresses: dict[tuple[str | None, int], list[str]] = {}
    for group_id, prefixes in uow.session.execute(query):
        for prefix in prefixes:
            addresses.setdefault((group_id, ip.parse_network(prefix).version), []).append(prefix)
    return [made for rule in rules for made in _with_prefixes(rule, addresses)]


def _with_prefixes(rule: Rule, addresses: Mapping[tuple[str | None, int], list[str]]) -> Iterable[Rule]:
    if rule.remote_address_group_id is None:
        return [rule]
    prefixes = addresses.get((rule.remote_address_group_id, {IPV4: 4, IPV6: 6}[rule.ethertype]), [])
    return [msgspec.structs.replace(rule, remote_ip_prefix=prefix, remote_address_group_id=None) for prefix in prefixes]


def _users(uow: UnitOfWork, group_id: str) -> set[str]:
    """Return the projects whose rules name the group."""
    query = sa.select(SecurityGroup.project_id).join(
        SecurityGroupRule, SecurityGroupRule.security_group_id == SecurityGroup.id
    )
    return set(uow.session.scalars(query.where(SecurityGroupRule.remote_address_group_id == group_id)))


def _shown(uow: UnitOfWork, context: RequestContext, group_id: str) -> AddressGroup:
    row = uow.session.get_one(Row, group_id)
    return rows.to_object(AddressGroup, row, shared=rbac.is_shared(uow, _TYPE, group_id, context.project_id))


def _locked(uow: UnitOfWork, context: RequestContext, group_id: str) -> Row:
    """Return the row of a group of the caller's own, locked."""
    row: Row = rbac.locked(
        uow, context, _TYPE, group_id, exceptions.AddressGroupNotFound(address_group_id=group_id[:64])
    )
    return row
