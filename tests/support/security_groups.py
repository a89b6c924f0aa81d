"""Security groups, their rules, and servers that have them, in a database."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.network import builtin_networks, security_groups
from nova_lite.network.driver import Addresses
from nova_lite.objects import SecurityGroup, SecurityGroupRule
from tests.support import make


def made(db: Database, conf: cfg.ConfigOpts, name: str = "web", **context: Any) -> SecurityGroup:
    return db.write(security_groups.create, conf, make.context(**context), name, "for tests")


def tcp(group: str, port: int = 80, **values: Any) -> SecurityGroupRule:
    values = {"protocol": "TCP", "port_range_min": port, "port_range_max": port} | values
    return SecurityGroupRule(id="", security_group_id=group, **values)


def server(db: Database, number: int, *groups: str, **values: Any) -> str:
    """Create a server with an interface 10.0.0.``number``."""

    def write(uow: UnitOfWork) -> str:
        network = builtin_networks.Store(uow).networks() or [builtin_networks.create(uow, make.network())]
        uuid = make.instance(uow, security_groups=list(groups), **values)
        mac_address = f"fa:16:3e:00:00:{number:02x}"
        addresses = Addresses(f"10.0.0.{number}", mac_address)
        assert builtin_networks.Store(uow).add_port(uuid, network[0].id, 0, addresses, None)
        return uuid

    return db.write(write)
