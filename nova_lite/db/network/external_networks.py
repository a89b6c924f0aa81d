"""External networks of the network API: pools of floating addresses that admins make, and their subnets.

A pool has no ports. So a network can become external while no port is on it, and never the other way round.
"""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import FloatingIp, Network, Router
from nova_lite.db.core.models import FloatingIpPool as Row
from nova_lite.db.network import builtin_networks, networks, overlaps, rbac
from nova_lite.network import factory
from nova_lite.objects import FloatingIpPool, NetworkRecord
from nova_lite.objects.network_api_resources import EXTERNAL

UPDATABLE = ("name", "description", "subnet_name")


def create(uow: UnitOfWork, context: RequestContext, pool: FloatingIpPool) -> FloatingIpPool:
    """Create an external network without a subnet, which all projects may use until an admin deletes that policy.

    The network with this id becomes the external one, with its subnet.
    Raises `NetworkExists` for a name that another external network has.
    """
    known = uow.session.get(Row, pool.id)
    if known is not None and known.project_id == pool.project_id:
        return rows.to_object(FloatingIpPool, known)
    values = rows.values_of(pool, Row) | {"cidr": "", "ranges": None, "created_at": uow.now}
    if uow.session.get(Network, pool.id) is not None:
        values |= _taken_over(uow, context, pool.id)
    row = Row(**values)
    row.name = row.name or row.id  # names are unique, and an empty one is the id
    rows.insert(uow, row, exceptions.NetworkExists(name=row.name))
    rbac.share(uow, "network", row.id, row.project_id or "", EXTERNAL)
    return rows.to_object(FloatingIpPool, row)


def _taken_over(uow: UnitOfWork, context: RequestContext, network_id: str) -> dict[str, Any]:
    """Delete a network that becomes external, and return its data for the external network. Raises `NetworkInUse`."""
    old = networks.locked_network(uow, context, network_id)
    if old.is_segmented:
        raise exceptions.Conflict(f"Network {old.id} has several subnets: an external network has one here.")
    if old.cidr6:
        raise exceptions.InvalidInput(
            reason="a network with IPv6 does not become external: floating addresses are IPv4"
        )
    found: dict[str, Any] = {"name": old.name, "description": old.description, "project_id": old.project_id}
    if old.project_id is None:
        raise exceptions.InvalidInput(reason="a network of all projects does not become external: it has servers")
    if old.cidr:
        of_subnet = rows.to_object(NetworkRecord, old)
        found |= {"cidr": old.cidr, "subnet_name": old.subnet_name, "gateway": old.gateway, "subnet_id": old.subnet_id}
        found["ranges"] = factory.pools_of(of_subnet)
    builtin_networks.remove(uow, old)
    rbac.forget(uow, "network", network_id)
    uow.session.flush()
    if "cidr" in found:
        overlaps.check_pool(uow, ip.parse_network4(found["cidr"]))
    return found


def update(uow: UnitOfWork, context: RequestContext, pool_id: str, changes: dict[str, Any]) -> FloatingIpPool:
    """Change some of `UPDATABLE`."""
    row = _locked(uow, context, pool_id)
    for name in changes.keys() & set(UPDATABLE):
        setattr(row, name, changes[name])
    row.name = row.name or row.id
    rows.insert(uow, row, exceptions.NetworkExists(name=row.name))
    return rows.to_object(FloatingIpPool, row)


def delete(uow: UnitOfWork, context: RequestContext, pool_id: str) -> None:
    """Delete an external network with the floating addresses that lead nowhere, as Neutron does.

    Raises `NetworkInUse` while a floating address leads to a port, or a router has its gateway there.
    """
    row = _locked(uow, context, pool_id)
    found = uow.session.scalars(sa.select(FloatingIp).where(FloatingIp.pool_id == row.id).with_for_update()).all()
    routers = sa.select(Router.id).where(Router.pool_id == row.id).limit(1)
    if any(item.port_id is not None for item in found) or uow.session.scalars(routers).first() is not None:
        raise exceptions.NetworkInUse(name=row.name)
    for item in found:
        uow.session.delete(item)
        quotas.give_back(uow, item.project_id, {"floating_ips": 1})
    uow.session.flush()
    rbac.forget(uow, "network", row.id)
    uow.session.delete(row)
    uow.session.flush()


def create_subnet(uow: UnitOfWork, context: RequestContext, subnet: NetworkRecord) -> FloatingIpPool:
    """Give the external network ``subnet.id`` its range. Raises a 400, or `Conflict` if it has one already."""
    row = _locked(uow, context, subnet.id)
    if row.cidr:
        raise exceptions.Conflict(f"Network {row.id} has its subnet: a network has one here.")
    addresses = factory.pool_range(subnet.cidr)
    overlaps.check_pool(uow, addresses, row.id)
    pools = [] if subnet.no_pools else subnet.pools or None
    factory.add_range(subnet, addresses, subnet.gateway, subnet.start, subnet.end)
    factory.set_pools(subnet, pools)
    row.cidr, row.gateway, row.subnet_name = subnet.cidr, subnet.gateway, subnet.subnet_name
    row.ranges, row.subnet_id = factory.pools_of(subnet), str(uuid.uuid4())
    uow.session.flush()
    return rows.to_object(FloatingIpPool, row)


def delete_subnet(uow: UnitOfWork, context: RequestContext, pool_id: str) -> None:
    """Take the range from an external network. Raises `Conflict` while a project has an address of it."""
    row = _locked(uow, context, pool_id)
    if uow.session.scalars(sa.select(FloatingIp.id).where(FloatingIp.pool_id == row.id).limit(1)).first() is not None:
        subnet_id = row.subnet_id or row.id
        raise exceptions.Conflict(f"Unable to complete operation on subnet {subnet_id}: projects have addresses of it.")
    row.cidr, row.gateway, row.subnet_name, row.ranges = "", None, None, None
    uow.session.flush()


def _locked(uow: UnitOfWork, context: RequestContext, pool_id: str) -> Row:
    """Return an external network that the caller may change, locked. Raises `NetworkNotFound` or `Forbidden`."""
    row = uow.session.get(Row, pool_id, with_for_update=True, populate_existing=True)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.NetworkNotFound(network_id=pool_id[:64])
    if row.project_id is None:
        raise exceptions.Forbidden(
            "The operator changes and deletes this pool of floating addresses (nova-lite-manage)."
        )
    return row
