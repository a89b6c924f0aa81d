"""Subnet pools: prefixes from which subnets get theirs.

A pool may name any prefixes. It gives each prefix once, and members only such within ``[network] project_ranges``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Network
from nova_lite.db.core.models import SubnetPool as Row
from nova_lite.db.network import address_scopes, rbac
from nova_lite.network import factory
from nova_lite.objects import NetworkRecord, SubnetPool

#: Name under which a project's own limit is stored.
RESOURCE = "subnet_pools"

#: Number of prefixes of a pool.
MAX_PREFIXES = 1000

_TYPE = "subnetpool"
#: Pools of a project without a quota of its own.
DEFAULT_LIMIT = 50
_LENGTHS = ("min_prefixlen", "max_prefixlen", "default_prefixlen")


def list_(uow: UnitOfWork, context: RequestContext, ids: Collection[str] | None = None) -> list[SubnetPool]:
    """Return the pools that the caller may see. ``ids``: only of these."""
    return rbac.visible_rows(uow, context, _TYPE, SubnetPool, ids)


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, pool: SubnetPool) -> SubnetPool:
    """Create a pool. Its prefixes are joined where they touch. ``pool.shared``: for all projects."""
    quotas.lock(uow, pool.project_id)
    limit = quotas.limits_of(uow, conf, pool.project_id, None).of_project.get(RESOURCE, DEFAULT_LIMIT)
    has = used(uow, pool.project_id)
    if 0 <= limit <= has:
        raise exceptions.QuotaExceeded(overs="subnetpool", requested=1, used=has, allowed=limit)
    row = Row(**(rows.values_of(pool, Row) | {"created_at": uow.now, "updated_at": None}))
    row.prefixes = joined(pool.prefixes)
    _check(uow, context, row, pool.shared)
    uow.session.add(row)
    uow.session.flush()
    if pool.shared:
        rbac.share(uow, _TYPE, pool.id, pool.project_id)
    return _shown(uow, context, pool.id)


def used(uow: UnitOfWork, project_id: str) -> int:
    return uow.session.scalar(sa.select(sa.func.count(Row.id)).where(Row.project_id == project_id)) or 0


def update(uow: UnitOfWork, context: RequestContext, pool_id: str, changes: dict[str, Any]) -> SubnetPool:
    """Set fields of a pool. ``prefixes`` may only grow; ``add`` and ``remove`` change them by parts."""
    row = locked(uow, context, pool_id)
    scope_id = row.address_scope_id
    for name in changes.keys() - {"prefixes", "add", "remove"}:
        setattr(row, name, changes[name])
    before = list(row.prefixes)
    if "prefixes" in changes:
        row.prefixes = joined(changes["prefixes"])
        if joined([*row.prefixes, *before]) != row.prefixes:
            raise exceptions.SubnetPoolInvalid(
                reason="Illegal subnetpool update : Existing prefixes must be a subset of the new prefixes.",
                neutron_type="IllegalSubnetPoolPrefixUpdate",
            )
    if "add" in changes:
        row.prefixes = joined([*before, *changes["add"]])
    if "remove" in changes:
        row.prefixes = _without(uow, row, changes["remove"])
    with uow.session.no_autoflush:
        if scope_id is not None and (row.prefixes, row.address_scope_id) != (before, scope_id):
            address_scopes.check_changeable(uow, context, scope_id, row)
        _check(uow, context, row, rbac.is_shared(uow, _TYPE, row.id, None))
    row.updated_at = uow.now
    uow.session.flush()
    return _shown(uow, context, row.id)


def delete(uow: UnitOfWork, context: RequestContext, pool_id: str) -> None:
    """Delete a pool. Raises `SubnetPoolInUse` while a subnet has a prefix of it."""
    row = locked(uow, context, pool_id)
    if _subnets(uow, row.id):
        raise exceptions.SubnetPoolInUse()
    rbac.forget(uow, _TYPE, row.id)
    uow.session.delete(row)
    uow.session.flush()


def locked(uow: UnitOfWork, context: RequestContext, pool_id: str) -> Row:
    """Return the row of a pool of the caller's own, locked."""
    row: Row = rbac.locked(uow, context, _TYPE, pool_id, exceptions.SubnetPoolNotFound(subnetpool_id=pool_id[:64]))
    return row


def _check(uow: UnitOfWork, context: RequestContext, row: Row, is_shared: bool) -> None:
    """Check the fields of a new or changed pool."""
    prefixes = [ip.parse_network(prefix) for prefix in row.prefixes]
    if len({prefix.version for prefix in prefixes}) > 1 or any(item.version != row.ip_version for item in prefixes):
        raise exceptions.SubnetPoolInvalid(
            reason="Cannot mix IPv4 and IPv6 prefixes in a subnet pool.", neutron_type="PrefixVersionMismatch"
        )
    for prefix in prefixes:
        factory.refuse_reserved(prefix)
    _check_number(len(prefixes))
    widest = 32 if row.ip_version == 4 else 128
    lowest, highest, default = (getattr(row, name) for name in _LENGTHS)
    for name, value, limit_name, limit, is_wrong in (
        ("max_prefixlen", highest, "ip_version_max", widest, highest > widest),
        ("min_prefixlen", lowest, "max_prefixlen", highest, lowest > highest),
        ("default_prefixlen", default, "min_prefixlen", lowest, default < lowest),
        ("default_prefixlen", default, "max_prefixlen", highest, default > highest),
    ):
        if is_wrong:
            raise exceptions.SubnetPoolInvalid(
                reason=f"Illegal prefix bounds: {name}={value}, {limit_name}={limit}.",
                neutron_type="IllegalSubnetPoolPrefixBounds",
            )
    if row.is_default:
        query = sa.select(Row.id).where(Row.is_default == sa.true(), Row.ip_version == row.ip_version)
        if uow.session.scalars(query.where(Row.id != row.id).with_for_update()).first() is not None:
            raise exceptions.InvalidInput(
                reason="A default subnetpool for this IP family has already been set. Only one default may exist per "
                "IP family"
            )
    if row.address_scope_id is not None:
        address_scopes.check_pool(uow, context, row.address_scope_id, row, row.prefixes)
        if is_shared and not rbac.is_shared(uow, "address_scope", row.address_scope_id, None):
            raise exceptions.SubnetPoolInvalid(
                reason=f"Illegal subnetpool association: subnetpool {row.id} cannot be associated with address scope "
                f"{row.address_scope_id}: a shared pool needs a shared scope."
            )


def _check_number(number: int) -> None:
    if number > MAX_PREFIXES:
        raise exceptions.SubnetPoolInvalid(
            reason=f"A subnet pool has at most {MAX_PREFIXES} prefixes, not {number}.", neutron_type="BadRequest"
        )


def joined(prefixes: Iterable[str]) -> list[str]:
    """Return prefixes without host bits, in order, joined where they overlap or touch."""
    networks = [ip.parse_network(prefix, strict=False) for prefix in prefixes]
    v4 = collapse_addresses(item for item in networks if isinstance(item, IPv4Network))
    v6 = collapse_addresses(item for item in networks if isinstance(item, IPv6Network))
    return [str(item) for item in (*v4, *v6)]


def _without(uow: UnitOfWork, row: Row, removed: list[str]) -> list[str]:
    """Return the prefixes of a pool without parts that no subnet has."""
    left: list[Any] = [ip.parse_network(prefix) for prefix in row.prefixes]
    subnets = sorted((ip.parse_network(cidr) for _, cidr in _subnets(uow, row.id)), key=lambda item: int(item[0]))
    lasts = [int(item[-1]) for item in subnets]
    for text in removed:
        gone = ip.parse_network(text, strict=False)
        nearest = bisect_left(lasts, int(gone[0])) if gone.version == row.ip_version else len(subnets)
        if nearest < len(subnets) and subnets[nearest].overlaps(gone):
            raise exceptions.SubnetPoolInvalid(
                reason=f"Illegal subnetpool update : prefix {gone} has addresses of subnet {subnets[nearest]}.",
                neutron_type="IllegalSubnetPoolPrefixUpdate",
            )
        holder = next((item for item in left if item.version == gone.version and gone.subnet_of(item)), None)
        if holder is None:
            raise exceptions.SubnetPoolInvalid(
                reason=f"Illegal subnetpool update : prefix {gone} is not within the prefixes of the pool.",
                neutron_type="IllegalSubnetPoolPrefixUpdate",
            )
        left = [item for item in left if item != holder] + list(holder.address_exclude(gone))
        _check_number(len(left))
    if not left:
        raise exceptions.SubnetPoolInvalid(
            reason="Illegal subnetpool update : a pool has a prefix at least.", neutron_type="EmptySubnetPoolPrefixList"
        )
    return joined(map(str, left))


def _subnets(uow: UnitOfWork, pool_id: str) -> list[tuple[str | None, str]]:
    """Return project and prefix of the subnets of a pool."""
    query = sa.union_all(
        sa.select(Network.project_id, Network.cidr).where(Network.subnet_pool_id == pool_id, Network.cidr != ""),
        sa.select(Network.project_id, Network.cidr6).where(Network.subnet6_pool_id == pool_id, Network.cidr6 != ""),
    )
    return [(row[0], row[1]) for row in uow.session.execute(query)]


def _shown(uow: UnitOfWork, context: RequestContext, pool_id: str) -> SubnetPool:
    row = uow.session.get_one(Row, pool_id)
    return rows.to_object(SubnetPool, row, shared=rbac.is_shared(uow, _TYPE, pool_id, context.project_id))


# --- subnets


def take_prefix(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    network: Network,
    subnet: NetworkRecord,
    pool_id: str | None,
) -> str:
    """Return the prefix of a new subnet from a pool: the requested ``cidr`` or ``cidr6``, or the first free one.

    The pool stays locked. Raises `SubnetPoolNotFound`, `SubnetAllocationError`, `SubnetPoolInvalid` for another length,
    or `SubnetPoolQuotaExceeded`.
    """
    row = uow.session.get(Row, pool_id, with_for_update=True, populate_existing=True)
    own = row is not None and (context.is_admin or row.project_id == context.project_id)
    if row is None or not (own or rbac.is_shared(uow, _TYPE, row.id, context.project_id)):
        raise exceptions.SubnetPoolNotFound(subnetpool_id=(pool_id or "")[:64])
    version, cidr = (4, subnet.cidr) if subnet.subnet6 is None else (6, subnet.cidr6)
    if row.ip_version != version:
        raise exceptions.SubnetPoolInvalid(
            reason=f"Subnet pool {row.id} has IPv{row.ip_version} prefixes, not IPv{version}.",
            neutron_type="BadRequest",
        )
    prefixes = [ip.parse_network(prefix) for prefix in row.prefixes]
    taken = _taken(uow, row, network)
    wanted: ip.Network
    if cidr:
        try:
            wanted = ip.parse_network(cidr)
        except ValueError as error:
            raise exceptions.InvalidInput(reason=f"{cidr!r} is not an IPv{version} network: {error}") from error
        _check_length(row, wanted.prefixlen)
        if (
            not any(ip.is_subnet(wanted, prefix) for prefix in prefixes)
            or _first_free([wanted], taken, wanted.prefixlen) is None
        ):
            raise exceptions.SubnetAllocationError(reason=f"{wanted} is not available in subnet pool {row.id}")
    else:
        length = row.default_prefixlen if subnet.prefixlen is None else subnet.prefixlen
        _check_length(row, length)
        found = _first_free(_usable(conf, context, prefixes), taken, length)
        if found is None:
            raise exceptions.SubnetAllocationError(
                reason=f"Insufficient prefix space to allocate subnet size /{length}"
            )
        wanted = found
    _check_quota(uow, row, network.project_id, wanted)
    return str(wanted)


def _check_length(row: Row, length: int) -> None:
    for name, limit, is_wrong in (
        ("minimum", row.min_prefixlen, length < row.min_prefixlen),
        ("maximum", row.max_prefixlen, length > row.max_prefixlen),
    ):
        if is_wrong:
            raise exceptions.SubnetPoolInvalid(
                reason=f"Unable to allocate subnet with prefix length {length}, {name} allowed prefix is {limit}.",
                neutron_type="MinPrefixSubnetAllocationError"
                if name == "minimum"
                else "MaxPrefixSubnetAllocationError",
            )


def _usable(conf: cfg.ConfigOpts, context: RequestContext, prefixes: list[ip.Network]) -> list[ip.Network]:
    """Return the parts of the prefixes in which the caller may make subnets."""
    if context.is_admin:
        return prefixes
    return [
        min(prefix, item, key=_size)
        for prefix in prefixes
        for item in ip.within(prefix, conf.network.project_ranges) or [prefix]
        if prefix.overlaps(item)
    ]


def _size(network: ip.Network) -> int:
    return network.num_addresses


def _taken(uow: UnitOfWork, row: Row, network: Network) -> list[tuple[int, int]]:
    """Return first and last address of the subnets of the pool and of the network, in order and apart."""
    column = Network.cidr if row.ip_version == 4 else Network.cidr6
    same = sa.or_(Network.id == network.public_id, Network.parent_id == network.public_id)
    own = uow.session.scalars(sa.select(column).where(same, column != ""))
    found = [ip.parse_network(cidr) for cidr in (*own, *(cidr for _, cidr in _subnets(uow, row.id)))]
    apart: list[tuple[int, int]] = []
    for first, last in sorted((int(item[0]), int(item[-1])) for item in found):
        if apart and first <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(last, apart[-1][1]))
        else:
            apart.append((first, last))
    return apart


def _first_free(prefixes: list[ip.Network], taken: list[tuple[int, int]], length: int) -> ip.Network | None:
    """Return the first network of this length within the prefixes that overlaps no range of ``taken``.

    It looks only at the ranges within each prefix: both may be many.
    """
    lasts = [last for _, last in taken]
    for prefix in prefixes:
        size = 1 << (prefix.max_prefixlen - length)
        start, end = int(prefix[0]), int(prefix[-1])
        place = -(-start // size) * size
        index = bisect_left(lasts, place)
        while index < len(taken) and taken[index][0] < place + size <= end + 1:
            place = (taken[index][1] // size + 1) * size
            index = bisect_left(lasts, place, index)
        if place + size - 1 <= end:
            return type(prefix)((place, length))
    return None


def _check_quota(uow: UnitOfWork, row: Row, project_id: str | None, wanted: ip.Network) -> None:
    """Check what the pool gives to one project: addresses, or prefixes of 64 bits."""
    if row.default_quota is None:
        return
    theirs = [ip.parse_network(cidr) for owner, cidr in _subnets(uow, row.id) if owner == project_id]
    unit = 1 if row.ip_version == 4 else 2**64
    if sum(item.num_addresses for item in (*theirs, wanted)) > row.default_quota * unit:
        raise exceptions.SubnetPoolQuotaExceeded()


def default_pool(uow: UnitOfWork, version: int) -> str:
    """Return the id of the default pool of an IP version. Raises `SubnetPoolInvalid`."""
    query = sa.select(Row.id).where(Row.is_default == sa.true(), Row.ip_version == version)
    if (found := uow.session.scalars(query).first()) is None:
        raise exceptions.SubnetPoolInvalid(
            reason=f"No default subnetpool found for IPv{version}", neutron_type="BadRequest"
        )
    return found
