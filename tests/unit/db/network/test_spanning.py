"""Networks that span hosts: rows, and the peers of each host."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database
from nova_lite.db.core.models import Service
from nova_lite.db.network import builtin_networks, networks, security_groups, spanning
from nova_lite.objects import NetworkRecord
from tests.support import make
from tests.support.spanning import guest, host, span


def peers(db: Database, name: str) -> dict[str, list[str]]:
    return db.read(spanning.peers, [name])[name]


def test_each_host_is_told_of_the_others_on_its_networks(db: Database) -> None:
    one, two, three = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2"), host(db, "h3", "10.9.9.3")
    wide, other, alone = span(db), span(db, "other", 78, 1), span(db, "alone", None, 2)
    guest(db, wide, 2, one, host="h1")
    assert peers(db, "h1") == {wide.id: []}
    guest(db, wide, 3, two, host="h2", project_id="p2")
    guest(db, other, 4, three, host="h3")
    for number, node in ((5, one), (6, two), (7, three)):
        guest(db, alone, number, node)
    assert peers(db, "h1") == {wide.id: ["10.9.9.2"]}
    assert peers(db, "h2") == {wide.id: ["10.9.9.1"]}
    assert peers(db, "h3") == {other.id: []}
    assert peers(db, "h9") == {}
    assert db.read(security_groups.filters, "h1", []).peers == {wide.id: ["10.9.9.2"]}


def test_both_ends_of_a_move_are_told_of(db: Database) -> None:
    one, two, three = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2"), host(db, "h3", "10.9.9.3")
    wide = span(db)
    guest(db, wide, 2, one, host="h1")
    guest(db, wide, 3, two, three, host="h2")
    assert peers(db, "h1") == {wide.id: ["10.9.9.2", "10.9.9.3"]}
    assert peers(db, "h3") == {wide.id: ["10.9.9.1", "10.9.9.2"]}


def test_peer_without_tunnel_address_is_left_out(db: Database) -> None:
    one, two, three = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2"), host(db, "h3", None)
    wide = span(db)
    guest(db, wide, 2, one, host="h1")
    gone = guest(db, wide, 3, two, host="h2")
    guest(db, wide, 4, three, host="h3")
    assert peers(db, "h1") == {wide.id: ["10.9.9.2"]}
    db.write(lambda uow: builtin_networks.Store(uow).remove_ports(gone))
    assert peers(db, "h1") == {wide.id: []}


def test_affected_peers_of_a_guest(db: Database) -> None:
    """Hosts with guests of other projects on the shared network count as well."""
    one, two, three = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2"), host(db, "h3", "10.9.9.3")
    wide, alone = span(db), span(db, "alone", None, 2)
    guest(db, wide, 2, one, host="h1")
    new = guest(db, wide, 3, two, host="h2", project_id="p2")
    unconcerned = guest(db, alone, 4, three, host="h3", project_id="p3")
    assert db.read(spanning.hosts, set(), {new}) == ["h1", "h2"]
    assert db.read(spanning.hosts, {"p2"}, set()) == ["h1", "h2"]
    assert db.read(spanning.hosts, {"p3"}, {unconcerned}) == []
    db.write(lambda uow: uow.session.execute(sa.update(Service).where(Service.host == "h1").values(up=False)))
    assert db.read(spanning.hosts, set(), {new}) == ["h2"]


def test_a_new_tunnel_address_is_told(db: Database) -> None:
    one, two = host(db, "h1", "10.9.9.1"), host(db, "h2", "10.9.9.2")
    wide = span(db)
    guest(db, wide, 2, one, host="h1")
    guest(db, wide, 3, two, host="h2")
    host(db, "h2", "10.9.9.22")
    assert peers(db, "h1") == {wide.id: ["10.9.9.22"]}


def test_a_vni_is_one_networks_alone(db: Database) -> None:
    span(db)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        span(db, "second", 77, 1)
    assert span(db, "none", None, 2).vni is None
    assert span(db, "none too", None, 3).vni is None


def test_networks_that_projects_make_get_a_vni(db: Database, conf: cfg.ConfigOpts) -> None:
    def made(name: str, mtu: int = 1500) -> NetworkRecord:
        wanted = NetworkRecord(id=make.network().id, name=name, cidr="", project_id="p1", mtu=mtu)
        return db.write(networks.create, conf, make.context(), wanted)

    assert (made("plain").vni, made("plain too").mtu) == (None, 1500)
    conf.set_override("project_vnis", ["10-10", "20-21"], "network")
    span(db, "operator's", 20, 1)
    found = {(item.vni, item.mtu) for item in (made("a"), made("b", 1280))}
    assert {vni for vni, _ in found} == {10, 21} and {mtu for _, mtu in found} == {1450, 1280}
    with pytest.raises(exceptions.Conflict, match="All VNIs"):
        made("c")
    conf.set_override("project_vnis", ["5-4"], "network")
    with pytest.raises(exceptions.ConfigurationError, match="is not a range of VNIs"):
        made("d")
