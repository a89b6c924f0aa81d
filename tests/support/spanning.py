"""Networks that span hosts, in a database."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Allocation, ComputeNode
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks
from nova_lite.network import factory
from nova_lite.network.driver import Addresses
from nova_lite.objects import Network
from tests.support import make


def span(db: Database, name: str = "wide", vni: int | None = 77, number: int = 0) -> Network:
    cidr = f"10.{number}.0.0/24"
    return db.write(builtin_networks.create, factory.new_network(name, cidr, vni=vni, bridge=f"br{number}"))


def host(db: Database, name: str, tunnel_ip: str | None) -> int:
    def write(uow: UnitOfWork) -> int:
        report = make.report(name, inventories=[make.inventory(name, tunnel_ip=tunnel_ip)])
        hosts.register_host(uow, uow.conf, report)
        return uow.session.scalars(sa.select(ComputeNode.id).where(ComputeNode.host == name)).one()

    return db.write(write)


def guest(
    db: Database, network: Network, number: int, *nodes: int, mac_address: str | None = None, **values: object
) -> str:
    """Create a guest on these compute nodes."""

    def write(uow: UnitOfWork) -> str:
        uuid = make.instance(uow, **values)
        own = mac_address or f"fa:16:3e:00:00:{number:02x}"
        address = network.cidr.replace("0/24", str(number))
        assert builtin_networks.Store(uow).add_port(uuid, network.id, 0, Addresses(address, own), None)
        for node in nodes:
            place = {"vcpus": 1, "memory_mb": 1, "disk_gb": 1, "created_at": uow.now}
            uow.session.add(Allocation(instance_uuid=uuid, compute_node_id=node, generation=1, **place))
        return uuid

    return db.write(write)
