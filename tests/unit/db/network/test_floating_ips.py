"""Floating addresses: pools, what projects take of them, and where they lead."""

from __future__ import annotations

import msgspec
import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Port
from nova_lite.db.network import builtin_networks, floating_ips, security_groups
from nova_lite.db.upkeep import invariants
from nova_lite.objects import FloatingIp
from tests.support import make, published
from tests.support.security_groups import server

ME, OTHER = make.context(), make.context("p2")


@pytest.fixture(autouse=True)
def pools(db: Database) -> None:
    db.write(floating_ips.create_pool, "public", "192.0.2.0/31")
    db.write(floating_ips.create_pool, "spare", "198.51.100.7/32")


def take(db: Database, conf: cfg.ConfigOpts, pool: str | None = None, project: str = "p1") -> FloatingIp:
    return db.write(floating_ips.allocate, conf, make.context(project), pool)


def address_of(db: Database, uuid: str) -> str | None:
    """Return the address as the server shows it."""
    (vif,) = db.read(lambda uow: builtin_networks.Store(uow).vifs(uuid))
    return vif.floating_address


def test_take_show_give_back(db: Database, conf: cfg.ConfigOpts) -> None:
    first, second = take(db, conf), take(db, conf, "spare")
    assert [(item.address, item.pool) for item in (first, second)] == [
        ("192.0.2.0", "public"),
        ("198.51.100.7", "spare"),
    ]
    assert db.read(floating_ips.list_, ME) == [first, second]
    assert db.read(floating_ips.get, ME, first.id) == db.read(floating_ips.get, ME, first.address) == first
    assert (db.read(floating_ips.list_, OTHER), db.read(floating_ips.get, make.ADMIN, first.id)) == ([], first)
    for call in (floating_ips.get, floating_ips.release):
        with pytest.raises(exceptions.FloatingIpNotFound):
            db.write(call, OTHER, first.id)
    db.write(floating_ips.release, ME, first.id)
    assert db.read(quotas.get, conf, "p1").quotas["floating_ips"].used == 1
    assert take(db, conf).address == first.address
    (public, _) = db.read(floating_ips.pools)
    assert take(db, conf, public.id, "p2").pool == "public"


def test_pools_run_dry_and_quotas_too(db: Database, conf: cfg.ConfigOpts) -> None:
    take(db, conf, "spare")
    with pytest.raises(exceptions.NoMoreFloatingIps, match="spare"):
        take(db, conf, "spare", "p2")
    with pytest.raises(exceptions.FloatingIpPoolNotFound):
        take(db, conf, "nosuch")
    conf.set_override("floating_ips", 1, "quota")
    with pytest.raises(exceptions.QuotaExceeded, match="floating_ips"):
        take(db, conf)
    assert db.read(invariants.find) == []


def test_a_pools_first_and_last_address_are_for_who_asks_for_them(db: Database, conf: cfg.ConfigOpts) -> None:
    pool = db.write(floating_ips.create_pool, "small", "203.0.113.0/30")
    assert [take(db, conf, "small").address for _ in range(2)] == ["203.0.113.1", "203.0.113.2"]
    with pytest.raises(exceptions.NoMoreFloatingIps, match="small"):
        take(db, conf, "small")
    wanted = FloatingIp(id="", address="203.0.113.3", pool="small", pool_id=pool.id, project_id="p1")
    assert db.write(floating_ips.allocate, conf, ME, None, wanted).address == "203.0.113.3"


@pytest.mark.parametrize("cidr", ["192.0.2.0/24", "x", "10.0.0.0/30", "2001:db8::/64"])
def test_pools_that_cannot_be(db: Database, cidr: str) -> None:
    db.write(builtin_networks.create, make.network())
    with pytest.raises(exceptions.InvalidInput):
        db.write(floating_ips.create_pool, "more", cidr)
    with pytest.raises(exceptions.InvalidInput):
        db.write(floating_ips.create_pool, "public", "203.0.113.0/24")


def test_a_pool_goes_when_nobody_has_any_of_it(db: Database, conf: cfg.ConfigOpts) -> None:
    found = take(db, conf)
    with pytest.raises(exceptions.Conflict):
        db.write(floating_ips.delete_pool, "public")
    db.write(floating_ips.release, ME, found.id)
    db.write(floating_ips.delete_pool, "public")
    with pytest.raises(exceptions.NotFound):
        db.write(floating_ips.delete_pool, "public")
    assert [pool.name for pool in db.read(floating_ips.pools)] == ["spare"]


def test_an_address_leads_to_one_server_at_a_time(db: Database, conf: cfg.ConfigOpts) -> None:
    first, second = server(db, 2, "default", host="h1"), server(db, 3, "default", host="h2")
    found, other = take(db, conf), take(db, conf)
    db.write(floating_ips.associate, ME, first, found.address, None)
    shown = db.read(floating_ips.get, ME, found.id)
    assert (shown.instance_uuid, shown.fixed_address, address_of(db, first)) == (first, "10.0.0.2", found.address)
    assert list(db.read(security_groups.filters, "h1", [first]).floating.values()) == [found.address]
    assert db.read(security_groups.filters, "h2", [first]).floating == {}
    db.write(floating_ips.associate, ME, second, found.address, "10.0.0.3")
    assert (address_of(db, first), address_of(db, second)) == (None, found.address)
    with pytest.raises(exceptions.Invalid, match=f"{found.address} leads to 10.0.0.3 already"):
        db.write(floating_ips.associate, ME, second, other.address, None)
    db.write(floating_ips.associate, ME, second, found.address, None)
    db.write(floating_ips.disassociate, ME, second, found.address)
    db.write(floating_ips.associate, ME, second, other.address, None)
    with pytest.raises(exceptions.FloatingIpNotAssociated):
        db.write(floating_ips.disassociate, ME, first, other.address)
    db.write(floating_ips.disassociate, ME, second, other.address)
    assert address_of(db, second) is None


def test_floating_address_invalid_target_is_refused(db: Database, conf: cfg.ConfigOpts) -> None:
    mine, theirs = server(db, 2, "default"), server(db, 3, "default", project_id="p2")
    locked, bare = server(db, 4, "default", locked=True), db.write(make.instance)
    found, foreign = take(db, conf), take(db, conf, project="p2")
    for uuid, address, fixed, error in (
        (mine, foreign.address, None, exceptions.FloatingIpNotFound),
        (mine, "203.0.113.1", None, exceptions.FloatingIpNotFound),
        (theirs, found.address, None, exceptions.InstanceNotFound),
        (mine, found.address, "10.0.0.9", exceptions.Invalid),
        (bare, found.address, None, exceptions.Invalid),
        (locked, found.address, None, exceptions.InstanceIsLocked),
    ):
        with pytest.raises(error):
            db.write(floating_ips.associate, ME, uuid, address, fixed)
    assert db.read(floating_ips.get, ME, found.id).port_id is None


def test_floating_address_outlives_its_server(db: Database, conf: cfg.ConfigOpts) -> None:
    uuid, found = server(db, 2, "default"), take(db, conf)
    db.write(floating_ips.associate, ME, uuid, found.address, None)
    db.write(lambda uow: builtin_networks.Store(uow).remove_ports(uuid))
    assert db.read(lambda uow: uow.session.query(Port).count()) == 0
    shown = db.read(floating_ips.get, ME, found.id)
    assert shown.updated_at is not None
    assert msgspec.structs.replace(shown, updated_at=None) == found


def test_floating_address_changes_are_marked_for_hosts(db: Database, conf: cfg.ConfigOpts) -> None:
    uuid, found = server(db, 2, "default"), take(db, conf)
    marked: list[set[str]] = []
    db.subscribe(lambda uow: marked.append(published.projects(uow)), always=True)
    for write in (
        lambda: db.write(floating_ips.associate, ME, uuid, found.address, None),
        lambda: db.write(floating_ips.disassociate, ME, uuid, found.address),
        lambda: db.write(floating_ips.associate, ME, uuid, found.address, None),
        lambda: db.write(floating_ips.release, ME, found.id),
    ):
        write()
        assert marked.pop() == {"p1"}
