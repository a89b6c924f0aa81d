"""Ports and networks of projects' own, as rows: on each kind of database."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.hosts import hosts
from nova_lite.db.network import builtin_networks, network_quotas, networks, ports, security_groups
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import NetworkRecord, NetworkRequest, Port
from tests.support import make

ME, OTHER, ADMIN = make.context(), make.context(project="p2", user="u2"), make.ADMIN


def port_on(network_id: str, **values: object) -> Port:
    return Port(id=str(uuid.uuid4()), network_id=network_id, **values)  # type: ignore[arg-type]


def record(**values: object) -> NetworkRecord:
    return NetworkRecord(**{"id": str(uuid.uuid4()), "name": "n", "cidr": "", "project_id": "p1", **values})  # type: ignore[arg-type]


def test_a_port_is_shown_changed_and_deleted(db: Database, conf: cfg.ConfigOpts) -> None:
    network = db.write(builtin_networks.create, make.network())
    made = db.write(ports.create, conf, ME, port_on(network.id, name="a", address="10.0.0.3"))
    other = db.write(ports.create, conf, OTHER, port_on(network.id, address="10.0.0.5"))
    assert (made.project_id, made.address, made.kept, made.instance_uuid) == ("p1", "10.0.0.3", True, None)
    assert [port.id for port in db.read(ports.list_, ME, {})] == [made.id]
    assert {port.id for port in db.read(ports.list_, ADMIN, {})} == {made.id, other.id}
    assert [port.id for port in db.read(ports.list_, ADMIN, {"project_id": ["p2"], "name": ["", "x"]})] == [other.id]
    with pytest.raises(exceptions.NoSuchPort):
        db.read(ports.get, ME, other.id)
    changed = db.write(ports.update, ME, made.id, {"name": "b", "address": "10.0.0.4", "security_groups": []})
    assert (changed.name, changed.address, changed.security_groups) == ("b", "10.0.0.4", [])
    with pytest.raises(exceptions.FixedIpInUse):
        db.write(ports.update, ME, made.id, {"address": other.address})
    with pytest.raises(exceptions.FixedIpInUse):
        db.write(ports.create, conf, ME, port_on(network.id, address="10.0.0.4"))
    with pytest.raises(exceptions.MacAddressInUse):
        db.write(ports.create, conf, ME, port_on(network.id, mac_address=made.mac_address))
    with pytest.raises(exceptions.NetworkInUse):
        db.write(builtin_networks.delete, network.id)
    db.write(ports.delete, ME, made.id)
    assert db.read(ports.list_, ME, {}) == []


def test_port_concurrent_requests_one_succeeds(db: Database, conf: cfg.ConfigOpts) -> None:
    network = db.write(builtin_networks.create, make.network())
    port = db.write(ports.create, conf, ME, port_on(network.id))
    servers = [db.write(make.instance), db.write(make.instance)]
    backend, said = LocalNetworks(conf), list[str]()
    wanted = [NetworkRequest(network_id=network.id, port_id=port.id)]

    def take(server: str) -> None:
        def run(uow: UnitOfWork) -> None:
            backend.reserve(builtin_networks.Store(uow), server, wanted)

        try:
            db.write(run)
        except exceptions.PortInUse:
            said.append("in use")
        else:
            said.append(server)

    _together(*(lambda server=server: take(server) for server in servers))
    assert len(said) == 2 and said.count("in use") == 1
    owner = db.read(ports.get, ME, port.id).instance_uuid
    assert owner in said
    with pytest.raises(exceptions.PortInUse):
        db.write(ports.delete, ME, port.id)
    db.write(lambda uow: backend.deallocate(builtin_networks.Store(uow), str(owner)))
    assert db.read(ports.get, ME, port.id).instance_uuid is None


def _together(*calls: Callable[[], None]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)


def test_no_two_subnets_overlap_while_a_host_is_older(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(hosts.record, conf, make.report())
    conf.set_override("project_ranges", ["10.64.0.0/16"], "network")
    made = [db.write(networks.create, conf, ME, record(name="same")) for _ in range(2)]
    assert [network.name for network in db.read(networks.list_, ME)] == ["same", "same"]
    assert db.read(builtin_networks.list_, ME) == [], "servers may not use what has no subnet"
    said: list[str] = []

    def give(network_id: str) -> None:
        try:
            db.write(networks.create_subnet, conf, ME, record(id=network_id, cidr="10.64.0.0/24"))
        except exceptions.InvalidInput as error:
            said.append(error.message)

    _together(*(lambda network=network: give(network.id) for network in made))
    (sentence,) = said
    assert "overlaps with another subnet, and networks have different ranges until" in sentence
    (usable,) = db.read(builtin_networks.list_, ME)
    assert (usable.gateway, usable.start, usable.end) == ("10.64.0.1", "10.64.0.2", "10.64.0.254")
    assert usable.subnet_id not in (None, usable.id)
    with pytest.raises(exceptions.SubnetNotFound):
        db.write(networks.delete_subnet, OTHER, usable.subnet_id)
    port = db.write(ports.create, conf, ME, port_on(usable.id))
    with pytest.raises(exceptions.NetworkInUse):
        db.write(networks.delete_subnet, ME, usable.subnet_id)
    db.write(ports.delete, ME, port.id)
    db.write(networks.delete_subnet, ME, usable.subnet_id)
    with pytest.raises(exceptions.InvalidInput, match="has no subnet"):
        db.write(ports.create, conf, ME, port_on(usable.id, address="10.64.1.5"))
    for network in made:
        db.write(networks.delete, ME, network.id)
    assert db.read(networks.list_, ADMIN) == []


def test_quotas(db: Database, conf: cfg.ConfigOpts) -> None:
    network = db.write(builtin_networks.create, make.network())
    db.write(network_quotas.set_limits, conf, "p1", {"port": 1, "network": 1})
    db.write(ports.create, conf, ME, port_on(network.id))
    db.write(networks.create, conf, ME, record())
    with pytest.raises(exceptions.QuotaExceeded, match="for port:"):
        db.write(ports.create, conf, ME, port_on(network.id))
    with pytest.raises(exceptions.QuotaExceeded, match="network"):
        db.write(networks.create, conf, ME, record())
    found = db.read(network_quotas.get, conf, "p1").quotas
    assert {name: (item.limit, item.used) for name, item in found.items() if name in ("port", "network", "subnet")} == {
        "port": (1, 1),
        "network": (1, 1),
        "subnet": (1, 0),
    }
    db.write(network_quotas.set_limits, conf, "p1", {"port": None})
    assert db.read(network_quotas.get, conf, "p1").quotas["port"].limit == conf.network.fixed_ips_per_project
    with pytest.raises(exceptions.InvalidInput):
        db.write(network_quotas.set_limits, conf, "p1", {"vpn": 1})


def test_change_is_checked_against_the_port_as_it_is_locked(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request turns off the port's security right before this one gets the lock."""
    network = db.write(builtin_networks.create, make.network())
    made = db.write(ports.create, conf, ME, port_on(network.id))
    original = ports.locked

    def locked(uow: UnitOfWork, *args: Any) -> Any:
        values = {"port_security_enabled": False, "security_groups": []}
        uow.change(sa.update(models.Port).where(models.Port.id == made.id).values(values))
        return original(uow, *args)

    monkeypatch.setattr(ports, "locked", locked)
    with pytest.raises(exceptions.PortSecurityRequiredForGroups):
        db.write(ports.update, ME, made.id, {"security_groups": ["default"]})


def test_admin_gives_a_port_a_group_of_another_project(db: Database, conf: cfg.ConfigOpts) -> None:
    network = db.write(builtin_networks.create, make.network())
    group = db.write(security_groups.create, conf, OTHER, "lb", None)
    port = db.write(ports.create, conf, ME, port_on(network.id))
    changed = db.write(ports.update, ADMIN, port.id, {"security_groups": [group.id]})
    assert changed.security_groups == [group.id]
    assert db.read(ports.get, ME, port.id).security_groups == [group.id]
    with pytest.raises(exceptions.SecurityGroupInUse, match=port.id):
        db.write(security_groups.delete, OTHER, group.id)
    db.write(ports.update, ME, port.id, {"security_groups": []})
    db.write(security_groups.delete, OTHER, group.id)
