"""Names of guests that conductors send to hosts."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import sqlalchemy as sa

from nova_lite.base.futures import wait_for
from nova_lite.conductor.network.filter_queries import FilterQueries
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Network, Port, Router, RouterInterface
from nova_lite.db.network import guest_names, member_versions, security_groups
from nova_lite.db.network.member_versions import MemberCache
from nova_lite.db.servers import instances
from nova_lite.objects.security_group import LARGE, NAMES, UNKNOWN, members_digest
from tests.support import make
from tests.support.spanning import guest, host, span
from tests.support.statements import counting

ME = make.context()


def own(db: Database, network: Any, project: str | None, domain: str = "") -> Any:
    values = {"project_id": project, "dns_domain": domain}
    db.write(lambda uow: uow.change(sa.update(Network).where(Network.id == network.id).values(**values)))
    return network


def name_port(db: Database, uuid: str, **values: str) -> None:
    db.write(lambda uow: uow.change(sa.update(Port).where(Port.instance_uuid == uuid).values(**values)))


def names(db: Database, name: str) -> dict[str, list[str]]:
    filters = db.read(security_groups.filters, name, [])
    return {network_id: item.members for network_id, item in (filters.names or {}).items()}


@pytest.fixture
def nodes(db: Database) -> dict[str, int]:
    return {name: host(db, name, f"10.9.9.{number}") for number, name in enumerate(("h1", "h2", "h3"), 1)}


def test_host_gets_the_names_of_guests_of_all_hosts_on_its_networks(db: Database, nodes: dict[str, int]) -> None:
    wide, other = own(db, span(db), "p1", "net.org."), own(db, span(db, "other", 78, 1), "p1")
    guest(db, wide, 2, nodes["h1"], host="h1", hostname="web")
    named = guest(db, wide, 3, nodes["h2"], host="h2", hostname="server-3")
    guest(db, other, 4, nodes["h3"], host="h3", hostname="alone")
    name_port(db, named, dns_name="db", dns_domain="port.org.", address6="fd00::3")
    expected = ["10.0.0.2 web net.org.", "10.0.0.3 db port.org.", "fd00::3 db port.org."]
    assert names(db, "h1") == names(db, "h2") == {wide.id: expected}
    assert names(db, "h3") == {other.id: ["10.1.0.4 alone "]}


def test_names_stay_on_networks_of_their_project(db: Database, nodes: dict[str, int]) -> None:
    mine, shared = own(db, span(db), "p1"), own(db, span(db, "shared", 78, 1), None)
    guest(db, mine, 2, nodes["h1"], host="h1", hostname="mine")
    guest(db, mine, 3, nodes["h1"], host="h1", hostname="guest-of-another", project_id="p2")
    guest(db, shared, 4, nodes["h1"], host="h1", hostname="public")
    guest(db, mine, 5, nodes["h2"], host="h2", hostname="abroad", project_id="p2")
    guest(db, mine, 6, nodes["h1"], host="h1", hostname="gone", deleted=True)
    assert names(db, "h1") == {mine.id: ["10.0.0.2 mine "]}
    assert names(db, "h2") == {}


def test_host_of_a_router_gets_the_names_on_all_its_networks(db: Database, nodes: dict[str, int]) -> None:
    wide, other = own(db, span(db), "p1"), own(db, span(db, "other", 78, 1), "p1")
    guest(db, wide, 2, nodes["h1"], host="h1", hostname="a")
    guest(db, other, 3, nodes["h2"], host="h2", hostname="b")
    assert names(db, "h1").keys() == {wide.id}

    def connect(uow: UnitOfWork) -> None:
        uow.session.add(Router(id="r1", project_id="p1", created_at=uow.now))
        for number, network in enumerate((wide, other)):
            port = {"id": f"port-{number}", "network_id": network.id, "mac_address": f"fa:16:3e:00:01:0{number}"}
            uow.session.add(Port(**port, created_at=uow.now))
            uow.session.flush()
            uow.session.add(RouterInterface(port_id=port["id"], router_id="r1", network_id=network.id))

    db.write(connect)
    assert names(db, "h1") == names(db, "h2") == {wide.id: ["10.0.0.2 a "], other.id: ["10.1.0.3 b "]}


def _rename(uow: UnitOfWork, uuid: str, name: str) -> None:
    instances.update(uow, ME, uuid, {"hostname": name})
    member_versions.raise_versions(uow)


def test_new_host_name_raises_the_version_of_cached_names(
    db: Database, nodes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova_lite.db.network.member_versions.LARGE", 1)
    wide, cache = own(db, span(db), "p1"), MemberCache()
    uuid = guest(db, wide, 2, nodes["h1"], host="h1", hostname="old")
    rename = functools.partial(_rename, uuid=uuid)
    db.write(rename, name="first")
    assert db.read(guest_names.by_project, {"p1"}, cache) == {"p1": {NAMES: {wide.id: ["10.0.0.2 first "]}}}
    with counting() as counted:
        db.read(guest_names.by_project, {"p1"}, cache)
    assert len(counted.statements) == 1
    db.write(rename, name="new")
    assert db.read(guest_names.by_project, {"p1"}, cache) == {"p1": {NAMES: {wide.id: ["10.0.0.2 new "]}}}


def crowd(uow: UnitOfWork, network_id: str) -> None:
    """Put so many guests of other hosts on a network that it is a large one."""
    for number in range(LARGE):
        uuid = make.instance(uow, hostname=f"s{number}")
        values = {"mac_address": f"fa:16:3e:01:{number // 256:02x}:{number % 256:02x}", "created_at": uow.now}
        port = {"id": f"p{number}", "network_id": network_id, "address": f"10.0.9.{number}", **values}
        uow.session.add(Port(instance_uuid=uuid, **port))


def _names(reply: Any) -> dict[str, Any]:
    found: dict[str, Any] = wait_for(reply).names
    return found


def test_change_of_a_large_network_is_sent_alone(db: Database, nodes: dict[str, int]) -> None:
    wide = own(db, span(db), "p1")
    guest(db, wide, 2, nodes["h1"], host="h1", hostname="a")
    db.write(crowd, wide.id)
    queries = FilterQueries(db)
    whole = _names(queries.port_filters_get(ME, "h1", [], known_members={}))[wide.id]
    guest(db, wide, 3, nodes["h1"], host="h1", hostname="b")
    known = {wide.id: members_digest(whole.members)}
    changed = _names(queries.port_filters_get(ME, "h1", [], known_members={NAMES: known}))[wide.id]
    assert (changed.members, changed.removed, changed.base) == (["10.0.0.3 b "], [], known[wide.id])
    built = queries.rules_for_builds({"h1": {"i1": "p1", "i2": "p1"}})["h1"].names or {}
    assert (built[wide.id].members, built[wide.id].base) == ([], UNKNOWN)
