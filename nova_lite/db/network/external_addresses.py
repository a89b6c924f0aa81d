"""Addresses of external networks, each of which one project has as a floating address, or one router as its own.

Both are in one table, so that no two have the same address. Only hosts give a router's address to packets, and no
quota counts it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions, ip
from nova_lite.base.ids import new_id
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import FloatingIp as Row
from nova_lite.db.core.models import FloatingIpPool as PoolRow
from nova_lite.db.core.models import Router
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.objects import FloatingIpPool, RouterAddress

#: Addresses that `take` looks up at a time.
STEP = 256

#: Addresses of the router of a query, separated by spaces.
OF_ROUTER = (
    sa.select(sa.func.aggregate_strings(Row.address, " ")).where(Row.gateway_router_id == Router.id).scalar_subquery()
)


def take(uow: UnitOfWork, pool: FloatingIpPool, values: dict[str, Any], address: str = "") -> bool:
    """Insert a row with this address, or with the lowest free one. Return False if another row has the address.

    Raises `InvalidInput` for an address of another range, and `NoMoreFloatingIps`.
    """
    if not pool.cidr:
        raise exceptions.NoMoreFloatingIps(pool=pool.name)
    values = {"id": new_id(), "pool_id": pool.id, "created_at": uow.now, **values}
    if address:
        if ip.parse(address) not in ip.parse_network4(pool.cidr) or address == pool.gateway:
            raise exceptions.InvalidInput(reason=f"{address} is not an address of {pool.name}")
        return insert_unless_taken(uow, Row, {**values, "address": address})
    # Free addresses are looked up in steps, so that a pool is read no further than it is used.
    every = _addresses(pool)
    while step := list(itertools.islice(every, STEP)):
        taken = set(uow.session.scalars(sa.select(Row.address).where(Row.address.in_(step))))
        for free in step:
            if free not in taken and insert_unless_taken(uow, Row, {**values, "address": free}):
                return True
    raise exceptions.NoMoreFloatingIps(pool=pool.name)


def _addresses(pool: FloatingIpPool) -> Iterator[str]:
    """Yield the addresses of a pool that may be taken, lowest first."""
    for item in pool.ranges or ():
        first, last = (ip.parse4(item[end]) for end in ("start", "end"))
        yield from (str(first + number) for number in range(int(last) - int(first) + 1))
    if pool.ranges is None:
        # Python leaves out the first and the last address, which are those of the network itself.
        yield from (text for text in map(str, ip.parse_network4(pool.cidr).hosts()) if text != pool.gateway)


# --- addresses of routers


def of_routers(uow: UnitOfWork, router_ids: Collection[str]) -> dict[str, list[RouterAddress]]:
    """Return the addresses of routers by their ids, in the order of addresses."""
    found: dict[str | None, list[RouterAddress]] = {}
    query = sa.select(Row.gateway_router_id, sa.func.coalesce(PoolRow.subnet_id, PoolRow.id), Row.address)
    query = query.join(PoolRow, PoolRow.id == Row.pool_id).where(Row.gateway_router_id.in_(router_ids))
    for router_id, subnet_id, address in uow.session.execute(query) if router_ids else ():
        found.setdefault(router_id, []).append(RouterAddress(subnet_id=subnet_id, address=address))
    return {key: sorted(found.get(key, ()), key=lambda item: ip.parse4(item.address)) for key in router_ids}


def settle(uow: UnitOfWork, router: Router, wanted: Sequence[RouterAddress]) -> None:
    """Give a router these addresses of its external network, and no others. One without an address is any.

    Raises `InvalidInput` for a subnet or an address of another network, `FixedIpInUse` or `NoMoreFloatingIps`.
    """
    query = sa.select(Row.address, Row.pool_id).where(Row.gateway_router_id == router.id)
    # The locked router keeps others from changing them.
    before = uow.session.execute(query).all()
    known = sorted((address for address, pool_id in before if pool_id == router.pool_id), key=ip.parse4)
    given = {item.address for item in wanted if item.address}
    others = [address for address in known if address not in given][: sum(not item.address for item in wanted)]
    kept = {*known} & given | {*others}
    if len(kept) < len(before):
        uow.change(sa.delete(Row).where(Row.gateway_router_id == router.id, Row.address.not_in(kept)))
    if not wanted:
        return
    pool = uow.session.get_one(PoolRow, router.pool_id, with_for_update={"read": True}, populate_existing=True)
    for item in wanted:
        if item.subnet_id not in (None, pool.subnet_id or pool.id):
            raise exceptions.InvalidInput(reason=f"subnet {item.subnet_id} is not one of network {pool.id}")
    values = {"project_id": router.project_id, "gateway_router_id": router.id}
    new = sorted(given - kept) + [""] * (len(wanted) - len(given) - len(others))
    for address in new:
        if not take(uow, rows.to_object(FloatingIpPool, pool), values, address):
            raise exceptions.FixedIpInUse(address=address, network_id=pool.id)
