"""Further addresses of ports, besides the first one of each IP version.

Each is a row of ``ports`` with a ``primary_id``: so the constraints that keep two ports from having one address of a
network keep it here, too, also in transactions of older conductors. Such a row has no project, server or host, and
goes with its port. In place of a MAC address it has the end of its id, which is unique, too, and no MAC address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.base import exceptions, ids, randomness
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import FloatingIp, Port
from nova_lite.db.core.statements import insert_unless_taken
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import interfaces
from nova_lite.network import local
from nova_lite.network.address_pool import AddressPool
from nova_lite.objects import Network, ipv6
from nova_lite.objects.instance import version_of
from nova_lite.objects.network import ANY_ADDRESS, MAX_ADDRESSES

_MAC_LENGTH = 17
_RANDOM = randomness.Source()
_ROW = orm.aliased(Port)


#: Condition of a port, not of a further address. SQLite would read all ports by an index of ``primary_id``.
IS_PORT = sa.func.coalesce(Port.primary_id, "") == ""


def having(addresses: Collection[str]) -> sa.Select[Any]:
    """Select the ports that have one of these as a further address."""
    return sa.select(_ROW.primary_id).where(
        _ROW.primary_id.is_not(None), sa.or_(_ROW.address.in_(addresses), _ROW.address6.in_(addresses))
    )


def of(uow: UnitOfWork, port_id: str) -> list[str]:
    """Return the further addresses of a port."""
    return list(rows_of(uow, port_id))


def rows_of(uow: UnitOfWork, port_id: str) -> dict[str, str]:
    """Return the ids of the rows by address."""
    query: Any = sa.select(Port.address, Port.address6, Port.id).where(Port.primary_id == port_id)
    found = uow.session.execute(interfaces.by_primary(query, Port))
    return {address or address6 or "": row_id for address, address6, row_id in found}


def keep(uow: UnitOfWork, port_id: str, wanted: Iterable[str]) -> None:
    """Remove all but these further addresses of a port. Raises `Conflict` if a floating address leads to another."""
    kept = set(wanted)
    gone = [row_id for address, row_id in rows_of(uow, port_id).items() if address not in kept]
    if gone:
        if led := uow.session.scalars(sa.select(FloatingIp.address).where(FloatingIp.port_id.in_(gone))).first():
            raise exceptions.Conflict(f"Floating IP {led} leads to a fixed address that port {port_id} would lose.")
        uow.change(sa.delete(Port).where(Port.id.in_(gone)))


def add(uow: UnitOfWork, port: Port, network: Network, wanted: Iterable[str]) -> None:
    """Give a port the further addresses that it does not have yet. ``network``: the network or segment that it is on.

    Raises `InvalidInput`, `FixedIpInvalid`, `FixedIpInUse` or `NoMoreFixedIps`.
    """
    present = {*of(uow, port.id)}
    new = [item for item in wanted if item not in present]
    has = {4: port.address, 6: port.address6}
    if len(present) + len(new) + len([address for address in has.values() if address]) > MAX_ADDRESSES:
        raise exceptions.InvalidInput(reason=f"port {port.id} would have more than {MAX_ADDRESSES} fixed addresses")
    for item in new:
        version = next((key for key, text in ANY_ADDRESS.items() if text == item), None)
        if has[version or version_of(item)] is None:
            raise exceptions.InvalidInput(reason=f"port {port.id} has no first address of the version of {item}")
        _add(uow, port, network, version or version_of(item), None if version else item)


def _add(uow: UnitOfWork, port: Port, network: Network, version: int, wanted: str | None) -> None:
    store, pool = builtin_networks.Store(uow), _pool(network, version)
    for _ in range(local.MAX_COLLISIONS):
        address = (
            local.free_address(store, network, _RANDOM, version) if wanted is None else _valid(pool, network, wanted)
        )
        row_id = ids.new_id()
        values = {
            "id": row_id,
            "network_id": network.id,
            "primary_id": port.id,
            "mac_address": row_id[-_MAC_LENGTH:],
            "address" if version == 4 else "address6": address,
            "security_groups": [],
            "created_at": uow.now,
        }
        if insert_unless_taken(uow, Port, values):
            return
        if wanted is not None:
            raise exceptions.FixedIpInUse(address=wanted, network_id=network.public_id)
    raise exceptions.NoMoreFixedIps(network_id=network.public_id)


def _pool(network: Network, version: int) -> AddressPool:
    """Return the addresses of a subnet. Raises `InvalidInput` if interfaces derive theirs."""
    if version == 4:
        return AddressPool(network)
    if not network.cidr6 or ipv6.is_derived(network.subnet6):
        raise exceptions.InvalidInput(
            reason=f"ports of network {network.public_id} have no further IPv6 address, since its IPv6 subnet is "
            "configured for automatic addresses"
        )
    return AddressPool(ipv6.as_subnet(network))


def _valid(pool: AddressPool, network: Network, wanted: str) -> str:
    found = pool.parse(wanted)
    if found is None:
        raise exceptions.FixedIpInvalid(address=wanted, network_id=network.public_id)
    return str(found)
