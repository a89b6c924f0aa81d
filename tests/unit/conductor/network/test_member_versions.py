"""Queries for packet filter rules read the members of a project only after a change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.conductor.manager import ConductorManager
from nova_lite.conductor.network.filter_queries import FilterQueries, _Query
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.events import FiltersChanged, InterfacesChanged
from nova_lite.db.core.models import Instance, MemberVersion, Port
from nova_lite.db.network import builtin_networks, member_versions, ports, security_groups
from nova_lite.network.driver import Addresses
from nova_lite.objects import Port as PortObject
from nova_lite.objects import PortFilters
from tests.support import make
from tests.support.rows_read import reading
from tests.support.security_groups import made

ME = make.context()
HOST = "h1"
#: Members of the large project, and the limit of rows that are read for a query that reads no member.
MEMBERS, FEW = 2000, 200


class Project(NamedTuple):
    """Two servers in the group ``group``: on ``HOST`` with the interface ``port``, and elsewhere with all others."""

    uuid: str
    other: str
    group: str
    network: str
    port: str


def port_of(network: str, instance_uuid: str, number: int) -> dict[str, Any]:
    third, fourth = divmod(number, 256)
    mac_address = f"fa:16:3e:01:{third:02x}:{fourth:02x}"
    values = {"network_id": network, "address": f"10.0.{third}.{fourth}", "mac_address": mac_address}
    return {"id": f"{number:036x}", "instance_uuid": instance_uuid, **values}


@pytest.fixture
def project(db: Database, conf: cfg.ConfigOpts) -> Project:
    group = made(db, conf)
    conf.set_override("fixed_ips_per_project", -1, "network")

    def write(uow: UnitOfWork) -> Project:
        network = builtin_networks.create(uow, make.network(cidr="10.0.0.0/16"))
        uuid, other = (
            make.instance(uow, host=host, project_id=ME.project_id, security_groups=["default", "web"])
            for host in (HOST, "elsewhere")
        )
        owners = [uuid] + [other] * (MEMBERS - 1)
        rows = [port_of(network.id, owner, number) | {"created_at": uow.now} for number, owner in enumerate(owners, 1)]
        uow.session.execute(sa.insert(Port), rows)
        return Project(uuid, other, group.id, network.id, rows[0]["id"])

    found = db.write(write)
    db.write(lambda uow: security_groups._make_default(uow, ME.project_id or ""))
    if db.engine.dialect.name == "postgresql":  # it plans by statistics, which it makes at some time on its own
        db.write(lambda uow: uow.session.execute(sa.text("ANALYZE ports, instances, member_versions")))
    return found


@pytest.fixture
def queries(manager: ConductorManager) -> FilterQueries:
    return FilterQueries(manager.db)


def ask(queries: FilterQueries, project: Project) -> PortFilters:
    """Return the reply to a query without known members, which does not wait for others."""
    (reply,) = queries._read([_Query(security_groups.FilterQuery(HOST, [project.uuid]), {})])
    return reply


def members(reply: PortFilters) -> dict[str, list[str]]:
    """Return the members by group. All are on one network."""
    return {
        group.name: [address for item in (group.members_by_network or {}).values() for address in item.members]
        for group in reply.groups.values()
    }


def raise_version(manager: ConductorManager, project: Project) -> None:
    """Make a change that gives the project its first version."""
    manager.db.write(lambda uow: uow.publish(InterfacesChanged(project.uuid)))


def test_query_reads_no_member_while_nothing_changes(
    manager: ConductorManager, queries: FilterQueries, project: Project
) -> None:
    raise_version(manager, project)
    with reading(manager.db) as first:
        whole = ask(queries, project)
    with reading(manager.db) as second:
        again = ask(queries, project)
    assert len(members(whole)["default"]) == MEMBERS
    assert members(again) == members(whole)
    assert second.count < FEW < MEMBERS <= first.count


Change = Callable[[UnitOfWork, Project], object]

CHANGES: dict[str, Change] = {
    "a new interface": lambda uow, project: builtin_networks.Store(uow).add_port(
        project.other, project.network, 0, Addresses("10.0.200.1", "fa:16:3e:02:00:01"), None
    ),
    "an interface is removed": lambda uow, project: builtin_networks.Store(uow).remove_port(project.other, f"{2:036x}"),
    "all interfaces are removed": lambda uow, project: builtin_networks.Store(uow).remove_ports(project.other),
    "a server leaves": lambda uow, project: security_groups.leave(uow, ME, project.uuid, "web"),
    "a group is renamed": lambda uow, project: security_groups.update(uow, ME, project.group, "www", None),
    "an interface gets its own groups": lambda uow, project: ports.update(
        uow, ME, project.port, {"security_groups": []}
    ),
    "a user's port is bound": lambda uow, project: _bind(uow, project),
}


def _bind(uow: UnitOfWork, project: Project) -> None:
    port = PortObject(
        id=f"{9:036x}".replace("0", "f", 1),
        network_id=project.network,
        project_id=ME.project_id or "",
        address="10.0.250.1",
    )
    made_port = ports.create(uow, uow.conf, ME, port)
    assert builtin_networks.Store(uow).bind_port(made_port.id, project.other, 0, None)


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_members_is_in_the_next_reply(
    db: Database, manager: ConductorManager, queries: FilterQueries, project: Project, name: str
) -> None:
    raise_version(manager, project)
    before = ask(queries, project)
    manager.db.write(CHANGES[name], project)
    uncached = db.read(security_groups.filters, HOST, [project.uuid])
    assert members(uncached) != members(before)
    assert members(ask(queries, project)) == members(uncached)


def test_change_by_an_older_conductor_is_found_later(
    db: Database, manager: ConductorManager, queries: FilterQueries, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_version(manager, project)
    ask(queries, project)
    db.write(CHANGES["an interface is removed"], project)  # it raises no version
    later = time.monotonic() + member_versions.MAX_AGE
    monkeypatch.setattr(member_versions.time, "monotonic", lambda: later)
    assert len(members(ask(queries, project))["default"]) == MEMBERS - 1


def test_version_grows_with_each_change(manager: ConductorManager, project: Project) -> None:
    def versions(uow: UnitOfWork) -> dict[str, int]:
        return {row.project_id: row.version for row in uow.session.scalars(sa.select(MemberVersion))}

    def both(uow: UnitOfWork) -> None:
        uow.publish(InterfacesChanged(project.uuid), InterfacesChanged(project.other), FiltersChanged("another"))

    for number in (1, 2, 3):
        manager.db.write(both)
        assert manager.db.read(versions) == {ME.project_id: number, "another": number}


def test_small_project_is_read_each_time(manager: ConductorManager, queries: FilterQueries, project: Project) -> None:
    """Members of thousands of small projects would need memory, and they are read quickly."""
    manager.db.write(lambda uow: builtin_networks.Store(uow).remove_ports(project.other))
    raise_version(manager, project)
    ask(queries, project)
    assert not queries._cache._known


def test_old_projects_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member_versions, "MAX_PROJECTS", 2)
    cache = member_versions.MemberCache()
    for number in (1, 2, 3):
        cache.put({str(number): 1}, {str(number): {"default": {"n": ["10.0.0.1"] * 256}}})
        cache.get({"1": 1})
    assert cache.get({"1": 1, "2": 1, "3": 1}).keys() == {"1", "3"}
    assert cache.get({"1": 2}) == {}


def test_group_of_a_deleted_server_has_no_member(
    db: Database, manager: ConductorManager, queries: FilterQueries, project: Project
) -> None:
    raise_version(manager, project)
    ask(queries, project)

    def delete(uow: UnitOfWork) -> None:
        builtin_networks.Store(uow).remove_ports(project.uuid)
        uow.session.execute(sa.update(Instance).where(Instance.uuid == project.uuid).values(deleted=True))

    manager.db.write(delete)
    manager.db.write(lambda uow: builtin_networks.Store(uow).remove_ports(project.other))
    rows = db.read(lambda uow: security_groups._members_by_name(uow, [ME.project_id or ""]))
    assert rows == {ME.project_id: {}}
    assert members(ask(queries, project)) == {}
