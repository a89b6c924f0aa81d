"""Rows and values that the tests of queries start from."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from oslo_config import cfg

from nova_lite import conf as nova_conf
from nova_lite import objects
from nova_lite.base.context import RequestContext
from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork

FLAVOR = {"flavorid": "1", "name": "m1", "vcpus": 1, "memory_mb": 64, "root_gb": 1}


def conf(url: str, state_path: Path | str = "/nonexistent") -> cfg.ConfigOpts:
    made = cfg.ConfigOpts()
    nova_conf.register_opts(made)
    made([])
    made.set_override("connection", url, "database")
    made.set_override("state_path", str(state_path))
    return made


def context(project: str = "p1", user: str = "u1", admin: bool = False) -> RequestContext:
    return RequestContext(user_id=user, project_id=project, is_admin=admin, overwrite=False)


ADMIN = context("admin", "admin", admin=True)


def instance(uow: UnitOfWork, **values: Any) -> str:
    """Create an ACTIVE instance on no host and return its uuid."""
    tags = [models.InstanceTag(tag=tag) for tag in values.pop("tag_names", ())]
    defaults: dict[str, Any] = {
        "uuid": str(uuid.uuid4()),
        "project_id": "p1",
        "user_id": "u1",
        "display_name": "vm",
        "hostname": "vm",
        "reservation_id": "r-1",
        "vm_state": "active",
        "flavorid": "1",
        "flavor": FLAVOR,
        "vcpus": 1,
        "memory_mb": 64,
        "disk_gb": 1,
        "created_at": uow.now,
    }
    row = models.Instance(**(defaults | values), tags=tags)
    uow.session.add(row)
    uow.session.flush()
    return row.uuid


def inventory(node: str = "n1", **values: Any) -> objects.Inventory:
    defaults: dict[str, Any] = {"node": node, "vcpus": 4, "memory_mb": 1024, "disk_gb": 50, "hypervisor_type": "fake"}
    return objects.Inventory(**(defaults | values))


def report(host: str = "h1", **values: Any) -> objects.HostReport:
    defaults: dict[str, Any] = {"host": host, "boot_id": "b1", "inventories": [inventory()]}
    return objects.HostReport(**(defaults | values))


def network(name: str = "private", **values: Any) -> objects.Network:
    """Make a network 10.0.0.0/29: .1 is the gateway, .2 to .6 are free."""
    defaults: dict[str, Any] = {
        "id": str(uuid.uuid4()),
        "name": name,
        "cidr": "10.0.0.0/29",
        "gateway": "10.0.0.1",
        "bridge": "br0",
        "start": "10.0.0.2",
        "end": "10.0.0.6",
    }
    return objects.Network(**(defaults | values))


def flavor(**values: Any) -> objects.Flavor:
    return objects.Flavor(**(FLAVOR | values))


def image(**values: Any) -> objects.Image:
    defaults: dict[str, Any] = {"id": str(uuid.uuid4()), "name": "cirros", "size": 3, "checksum": "abc"}
    return objects.Image(**(defaults | values))


def action(uow: UnitOfWork, instance_uuid: str, **values: Any) -> models.InstanceAction:
    """Create an open create action."""
    defaults: dict[str, Any] = {
        "action": "create",
        "instance_uuid": instance_uuid,
        "request_id": "req-1",
        "step": "schedule",
        "lease_expires_at": uow.now,
        "deadline": uow.now,
        "start_time": uow.now,
    }
    row = models.InstanceAction(**(defaults | values))
    uow.session.add(row)
    uow.session.flush()
    return row
