"""Addresses in real tables: unique, released, exhausted exactly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import models
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.network import builtin_networks
from nova_lite.db.servers import instances
from nova_lite.network.driver import Addresses
from nova_lite.network.local import LocalNetworks
from nova_lite.objects import VIF, NetworkRequest, ipv6
from tests.support import make

ME = make.context()


def allocate(uow: UnitOfWork, conf: cfg.ConfigOpts, instance_uuid: str, **request: str) -> list[VIF]:
    backend, store = LocalNetworks(conf), builtin_networks.Store(uow)
    wanted = [NetworkRequest(**request)] if request else "auto"
    return backend.allocate(store, instance_uuid, backend.resolve(store, ME, wanted))


def test_allocate_and_deallocate(db: Database, conf: cfg.ConfigOpts) -> None:
    network = db.write(builtin_networks.create, make.network())
    uuid = db.write(make.instance)
    (vif,) = db.write(allocate, conf, uuid)
    assert vif.network == network and vif.mac_address.startswith("fa:16:3e:")
    assert db.write(allocate, conf, uuid) == [vif] == db.read(instances.get, ME, uuid).vifs
    with pytest.raises(exceptions.NetworkInUse, match="private"):
        db.write(builtin_networks.delete, "private")
    for _ in range(2):
        db.write(lambda uow: LocalNetworks(conf).deallocate(builtin_networks.Store(uow), uuid))
    assert db.read(instances.get, ME, uuid).vifs == []
    assert db.write(builtin_networks.delete, network.id) == network
    with pytest.raises(exceptions.NetworkNotFound):
        db.write(builtin_networks.delete, network.id)


def test_an_instance_read_before_shows_its_new_ports(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(builtin_networks.create, make.network())

    def boot(uow: UnitOfWork) -> int:
        row = instances.get_row(uow, ME, make.instance(uow))
        assert instances.to_object(uow, row).vifs == []
        allocate(uow, conf, row.uuid)
        return len(instances.to_object(uow, row).vifs)

    assert db.write(boot) == 1


def test_threads_empty_the_pool_exactly(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(builtin_networks.create, make.network())
    uuids = [db.write(make.instance) for _ in range(12)]

    def boot(uuid: str) -> str | None:
        try:
            return db.write(allocate, conf, uuid)[0].address
        except exceptions.NoMoreFixedIps:
            return None

    with ThreadPoolExecutor(8) as pool:
        given = [address for address in pool.map(boot, uuids) if address]
    assert sorted(given) == [f"10.0.0.{number}" for number in range(2, 7)]


def test_two_want_the_same_address(db: Database, conf: cfg.ConfigOpts) -> None:
    """Each of two transactions found it free; the table decides."""
    network = db.write(builtin_networks.create, make.network(project_id=ME.project_id))
    first, second = db.write(make.instance), db.write(make.instance)
    request = {"network_id": network.id, "fixed_ip": "10.0.0.5"}
    db.write(allocate, conf, first, **request)
    with pytest.raises(exceptions.FixedIpInUse):
        db.write(allocate, conf, second, **request)

    def late(uow: UnitOfWork) -> None:
        LocalNetworks(conf).allocate(builtin_networks.Store(uow), second, [NetworkRequest(**request)])

    with pytest.raises(exceptions.FixedIpInUse):
        db.write(late)
    assert db.read(instances.get, ME, second).vifs == []


def test_port_of_an_unknown_instance_is_an_error(db: Database) -> None:
    network = db.write(builtin_networks.create, make.network())

    def add(uow: UnitOfWork) -> bool:
        return builtin_networks.Store(uow).add_port(
            "nobody", network.id, 0, Addresses("10.0.0.2", "fa:16:3e:00:00:01"), None
        )

    with pytest.raises(sa.exc.IntegrityError):
        db.write(add)


def test_network_visibility_by_project(db: Database) -> None:
    for name, project in (("shared", None), ("mine", "p1"), ("theirs", "p2")):
        db.write(builtin_networks.create, make.network(name, project_id=project))
    assert [network.name for network in db.read(builtin_networks.list_, ME)] == ["mine", "shared"]
    assert len(db.read(builtin_networks.list_, make.ADMIN)) == 3
    db.write(builtin_networks.create, make.network("mine", project_id="p2"))
    assert [network.project_id for network in db.read(builtin_networks.list_, ME) if network.name == "mine"] == ["p1"]
    with pytest.raises(exceptions.Conflict, match="2 networks have the name mine"):
        db.write(builtin_networks.delete, "mine")


def test_network_default_is_one_per_project(db: Database) -> None:
    for name, project in (("a", None), ("b", "p1"), ("c", None)):
        db.write(builtin_networks.create, make.network(name, project_id=project, is_default=True))
    assert {network.name for network in db.read(builtin_networks.list_, make.ADMIN) if network.is_default} == {"b", "c"}


def test_half_of_an_allocation_is_taken_back(db: Database, conf: cfg.ConfigOpts) -> None:
    first = db.write(builtin_networks.create, make.network("a"))
    full = db.write(builtin_networks.create, make.network("b", start="10.0.0.2", end="10.0.0.2"))
    requests = [NetworkRequest(network_id=first.id), NetworkRequest(network_id=full.id)]

    def boot(uow: UnitOfWork, uuid: str) -> list[VIF]:
        return LocalNetworks(conf).allocate(builtin_networks.Store(uow), uuid, requests)

    assert [vif.network.name for vif in db.write(boot, db.write(make.instance))] == ["a", "b"]
    with pytest.raises(exceptions.NoMoreFixedIps):
        db.write(boot, db.write(make.instance))
    assert db.read(lambda uow: uow.session.query(models.Port).count()) == 2


def test_ipv6_addresses_are_rows(db: Database, conf: cfg.ConfigOpts) -> None:
    """Taken with the IPv4 address, in the same statement; the table holds each once."""
    network = db.write(builtin_networks.create, make.network(cidr6="fd00:1::/64"))

    def allocate(uow: UnitOfWork) -> str:
        uuid = make.instance(uow)
        LocalNetworks(conf).allocate(
            builtin_networks.Store(uow, new={uuid}), uuid, [NetworkRequest(network_id=network.id)]
        )
        return uuid

    made = [db.read(instances.get, ME, db.write(allocate)).vifs[0] for _ in range(3)]
    found = [vif.more[0].address for vif in made]
    assert found == [ipv6.address_of("fd00:1::/64", vif.mac_address) for vif in made]
    rows = db.read(lambda uow: set(uow.session.scalars(sa.select(models.Port.address6))))
    assert rows == set(found) and len(rows) == 3

    def again(uow: UnitOfWork) -> str | None:
        addresses = Addresses("10.0.0.6", "fa:16:3e:99:99:99", found[0])
        return builtin_networks.Store(uow).add_port(make.instance(uow), network.id, 0, addresses, None)

    assert db.write(again) is None
