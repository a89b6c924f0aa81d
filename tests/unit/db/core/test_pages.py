"""Lists and lookups read the rows of their answer, not of the whole cloud: each table has 10,000 rows of others."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import (
    FloatingIp,
    FloatingIpPool,
    Image,
    Instance,
    Network,
    Port,
    SecurityGroup,
    SecurityGroupRule,
    Volume,
)
from nova_lite.db.image import images
from nova_lite.db.network import builtin_networks, external_addresses, floating_ips, networks, ports, security_groups
from nova_lite.db.servers import instances
from nova_lite.db.volume import volumes
from nova_lite.objects import ImageQuery, InstanceFilters, ListQuery, VolumeFilters
from tests.support import make
from tests.support.rows_read import reading

MANY, OWN, PAGE = 10_000, 20, 5
#: Rows that a question may read: a few for each row of a page, of each of its parts. A table has fifty times as many.
MOST = 200
#: MariaDB 11.8 reads the servers of an image, if these are fewer than those of the project.
MOST_OF = {"active servers of a large project, further": MANY // 10}
ME, ADMIN = make.context("p1"), make.ADMIN
THEN = datetime.datetime(2026, 1, 1)


def uuid(kind: int, number: int) -> str:
    return f"{number:08x}-0000-4000-8000-{kind:012x}"


def fill(uow: UnitOfWork) -> None:
    """Add 10,000 rows of other projects to each table, and a few of project p1, spread evenly."""

    def owner(number: int) -> str:
        return "p1" if number % (MANY // OWN) == 0 else f"other{number % 500}"

    fill_servers(uow, owner)
    numbers = range(MANY)
    network = {"gateway": None, "dns": [], "start": "", "end": "", "mtu": 1500, "created_at": THEN}
    tables: dict[Any, list[dict[str, Any]]] = {
        Image: [
            {
                "id": uuid(1, number),
                "name": f"image{number}",
                "status": "active",
                "disk_format": "qcow2",
                "container_format": "bare",
                "visibility": "public" if number % 2000 == 7 else "private",
                "owner": owner(number),
                "properties": {"image_type": "backup"} if number % 1000 == 0 else {},
                "created_at": THEN + datetime.timedelta(seconds=number),
            }
            for number in numbers
        ],
        Network: [
            {
                **network,
                "id": uuid(2, number),
                "name": f"net{number}",
                "cidr": f"10.{number // 256}.{number % 256}.0/24",
                "subnet_id": uuid(20, number) if number % 2 else None,
                "bridge": f"br{number}",
                "project_id": None if number % 2000 == 9 else owner(number),
            }
            for number in numbers
        ],
        Port: [
            {
                "id": uuid(3, number),
                "network_id": uuid(2, number),
                "project_id": owner(number),
                "instance_uuid": uuid(7, number),
                "mac_address": f"fa:16:3e:00:{number // 256:02x}:{number % 256:02x}",
                "address": f"10.{number // 256}.{number % 256}.9",
                "security_groups": ["web"] if number % (MANY // OWN) == 0 else [],
                "created_at": THEN,
            }
            for number in numbers
        ],
        FloatingIpPool: [{"id": "pool", "name": "public", "cidr": "192.168.0.0/16", "created_at": THEN}],
        FloatingIp: [
            {
                "id": uuid(4, number),
                "pool_id": "pool",
                "address": f"192.168.{100 + number // 256}.{number % 256}",
                "project_id": owner(number),
                "created_at": THEN,
            }
            for number in numbers
        ],
        SecurityGroup: [
            {
                "id": uuid(5, number),
                "project_id": owner(number),
                "name": "web" if number == 0 else f"group{number}",
                "created_at": THEN,
            }
            for number in numbers
        ],
        SecurityGroupRule: [
            {
                "id": uuid(6, number),
                "security_group_id": uuid(5, number),
                "direction": "ingress",
                "ethertype": "IPv4",
                "created_at": THEN,
            }
            for number in numbers
        ],
    }
    tables[Volume] = [
        {
            "id": uuid(8, number),
            "project_id": "large" if number % 2 else owner(number),
            "size": 1,
            "status": "available",
            "created_at": THEN + datetime.timedelta(seconds=number),
        }
        for number in numbers
    ]
    for table, rows in tables.items():
        uow.session.execute(sa.insert(table), rows)


def fill_servers(uow: UnitOfWork, owner: Callable[[int], str]) -> None:
    """Add servers, two fifths of them deleted. Two servers that exist are in error, and two are of image ``rare``."""
    make.instance(uow, uuid=uuid(7, MANY), project_id="other0", host="h0")
    table = Instance.__table__
    values = dict(uow.session.execute(sa.select(*(column for column in table.c if column.name != "id"))).one()._mapping)
    servers = []
    for number in range(MANY):
        own: dict[str, Any] = {
            "uuid": uuid(7, number),
            "project_id": owner(number) if number % 3 == 0 or number % 500 == 0 else "large",
        }
        own |= {"host": f"h{number % 500}"}
        own |= {"created_at": THEN + datetime.timedelta(seconds=number), "deleted": number % 5 in (2, 3)}
        own |= {"vm_state": "error" if number in (4000, 6001) else "active"}
        own |= {"image_ref": "rare" if number in (3000, 3005) else f"image{number % 10}"}
        servers.append(values | own)
    uow.session.execute(sa.insert(table), servers)


TABLES = "instances, volumes, images, networks, ports, floating_ips, security_groups, security_group_rules"
ANALYZE = {"sqlite": "ANALYZE", "postgresql": f"ANALYZE {TABLES}", "mysql": f"ANALYZE TABLE {TABLES}"}


def page(number: int | None = None, kind: int = 0, backwards: bool = False, **filters: list[str]) -> ListQuery:
    marker = None if number is None else uuid(kind, number)
    return ListQuery(filters=filters, marker=marker, limit=PAGE, backwards=backwards)


def servers(uow: UnitOfWork, after: int | None = None, **filters: Any) -> Any:
    marker = None if after is None else uuid(7, after)
    return instances.list_(uow, ADMIN, InstanceFilters(**filters), PAGE, marker)


#: The expected numbers of rows, and the questions.
QUESTIONS: dict[str, tuple[int, Callable[[UnitOfWork], Any]]] = {
    "images of a project": (PAGE, lambda uow: images.list_(uow, ME, ImageQuery(limit=PAGE))),
    "images of all": (PAGE, lambda uow: images.list_(uow, ADMIN, ImageQuery(limit=PAGE))),
    "images of a project, further": (
        PAGE,
        lambda uow: images.list_(uow, ME, ImageQuery(limit=PAGE, marker=uuid(1, 5000))),
    ),
    "images of all, further": (
        PAGE,
        lambda uow: images.list_(uow, ADMIN, ImageQuery(limit=PAGE, marker=uuid(1, 5000))),
    ),
    "images by name": (1, lambda uow: images.list_(uow, ME, ImageQuery(limit=PAGE, filters={"name": ["image500"]}))),
    "images by id": (1, lambda uow: images.list_(uow, ME, ImageQuery(limit=PAGE, filters={"id": [uuid(1, 500)]}))),
    "networks of a project": (PAGE, lambda uow: networks.list_(uow, ME, page())),
    "networks of all, backwards": (PAGE, lambda uow: networks.list_(uow, ADMIN, page(7000, 2, backwards=True))),
    "networks by name": (1, lambda uow: networks.list_(uow, ADMIN, page(name=["net7"]))),
    "network of a subnet": (1, lambda uow: networks.list_(uow, ME, page(subnet_id=[uuid(2, 500)]))),
    "network of a newer subnet": (1, lambda uow: networks.list_(uow, ADMIN, page(subnet_id=[uuid(20, 501)]))),
    "one network of servers": (1, lambda uow: builtin_networks.list_(uow, ME, uuid(2, 500))),
    "networks of servers": (OWN + MANY // 2000, lambda uow: builtin_networks.list_(uow, ME)),
    "usable networks": (OWN + MANY // 2000, lambda uow: builtin_networks.Store(uow).usable("p1")),
    "ports of a project": (PAGE, lambda uow: ports.list_(uow, ME, {}, page(5000, 3))),
    "ports of all": (PAGE, lambda uow: ports.list_(uow, ADMIN, {}, page(5000, 3))),
    "ports of a network": (1, lambda uow: ports.list_(uow, ADMIN, {"network_id": [uuid(2, 7)]}, page())),
    "one port": (1, lambda uow: [ports.get(uow, ME, uuid(3, 500))]),
    "servers of all": (PAGE, servers),
    "servers of all, further": (PAGE, lambda uow: servers(uow, 5000)),
    "servers of all, oldest first": (
        PAGE,
        lambda uow: instances.list_(uow, ADMIN, InstanceFilters(), PAGE, uuid(7, 5000), ["created_at"], ["asc"]),
    ),
    "servers of a project, further": (
        PAGE,
        lambda uow: instances.list_(uow, ME, InstanceFilters(project_id="p1"), PAGE, uuid(7, 5000)),
    ),
    "servers in error": (2, lambda uow: servers(uow, vm_states=["error"])),
    "servers in error, further": (1, lambda uow: servers(uow, 5000, vm_states=["error"])),
    "servers that are active, further": (PAGE, lambda uow: servers(uow, 5000, vm_states=["active"])),
    "servers of a large project, further": (PAGE, lambda uow: servers(uow, 5000, project_id="large")),
    "active servers of a large project, further": (
        PAGE,
        lambda uow: servers(uow, 5000, project_id="large", vm_states=["active"], image_ref="image0"),
    ),
    "servers of an image": (2, lambda uow: servers(uow, image_ref="rare")),
    "servers of a host, further": (PAGE, lambda uow: servers(uow, 5000, host="h5")),
    "servers of two hosts": (2 * MANY // 500, lambda uow: instances.on_hosts(uow, ["h5", "h6"])),
    "volumes of all, further": (
        PAGE,
        lambda uow: volumes.list_(uow, ADMIN, VolumeFilters(), PAGE, uuid(8, 5000)),
    ),
    "volumes of a large project, further": (
        PAGE,
        lambda uow: volumes.list_(uow, make.context("large"), VolumeFilters(), PAGE, uuid(8, 5001)),
    ),
    "servers at an address": (1, lambda uow: instances.at_address(uow, "10.3.3.9")),
    "floating addresses of a project": (PAGE, lambda uow: floating_ips.list_(uow, ME, True, page(5000, 4))),
    "floating addresses of all": (PAGE, lambda uow: floating_ips.list_(uow, ADMIN, True, page(5000, 4))),
    "floating address": (1, lambda uow: [floating_ips.get(uow, ME, "192.168.100.0")]),
    "groups of a project": (PAGE, lambda uow: security_groups.list_(uow, ME, query=page())),
    "groups of all": (PAGE, lambda uow: security_groups.list_(uow, ADMIN, True, query=page(9000, 5))),
    "groups by offset": (PAGE, lambda uow: security_groups.list_(uow, ME, False, PAGE, PAGE)),
    "group by id": (1, lambda uow: [security_groups.get(uow, ME, uuid(5, 500))]),
    "group by name": (1, lambda uow: [security_groups.get(uow, ME, "web")]),
    "rules of a project": (PAGE, lambda uow: security_groups.rules(uow, ME, page())),
    "rules of all": (PAGE, lambda uow: security_groups.rules(uow, ADMIN, page(5000, 6))),
    "one rule": (1, lambda uow: security_groups.rules(uow, ME, page(id=[uuid(6, 500)]))),
}


def test_lists_and_lookups_read_only_the_rows_of_their_answer(db: Database) -> None:
    db.write(fill)
    db.write(lambda uow: uow.session.execute(sa.text(ANALYZE[db.engine.dialect.name])))
    answers, read = {}, {}
    for question, (_, ask) in QUESTIONS.items():
        with reading(db) as rows:
            answers[question] = len(db.read(ask))
        read[question] = rows.count
    assert answers == {question: size for question, (size, _) in QUESTIONS.items()}
    assert {question: count for question, count in read.items() if count > MOST_OF.get(question, MOST)} == {}


def walk(ask: Callable[[ListQuery], list[Any]], backwards: bool) -> list[str]:
    """Return the ids of all pages of two."""
    seen: list[str] = []
    while items := ask(ListQuery(limit=2, marker=seen[-1] if seen else None, backwards=backwards)):
        seen += [item.id for item in items]
    return seen


@pytest.mark.parametrize("backwards", [False, True])
def test_pages_of_groups_and_rules_have_the_default_group_in_its_place(
    db: Database, conf: cfg.ConfigOpts, backwards: bool
) -> None:
    for name in ("a", "b", "z"):
        db.write(security_groups.create, conf, ME, name, None)
    whole = db.read(security_groups.list_, ME)
    for ask, expected in (
        (lambda query: db.read(security_groups.list_, ME, query=query), [group.id for group in whole]),
        (lambda query: db.read(security_groups.rules, ME, query), [rule.id for group in whole for rule in group.rules]),
    ):
        assert walk(ask, backwards) == sorted(expected, reverse=backwards)
    names = [group.name for group in whole]
    assert names == ["a", "b", "default", "z"]
    for offset in range(5):
        for limit in range(1, 5):
            found = db.read(security_groups.list_, ME, False, limit, offset)
            assert [group.name for group in found] == names[offset : offset + limit]


def test_members_of_a_group_are_found_by_exact_name(db: Database, conf: cfg.ConfigOpts) -> None:
    odd = ['we"b', "web, x", "ünï", "WEB", "web"]
    for name in odd:
        db.write(security_groups.create, conf, ME, name, None)
    make_server = partial(db.write, make.instance, project_id="p1")
    make_server(security_groups=["web, x", 'we"b'])
    for name in ("web", "WEB", "ünï"):
        db.write(security_groups.delete, ME, name)
    for name in ("web, x", 'we"b'):
        with pytest.raises(exceptions.SecurityGroupInUse):
            db.write(security_groups.delete, ME, name)
    db.write(security_groups.update, ME, 'we"b', "plain", None)
    (server,) = db.read(lambda uow: [*uow.session.scalars(sa.select(Instance.security_groups))])
    assert server == ["web, x", "plain"]


def test_backups_to_rotate_are_found_by_their_properties(db: Database) -> None:
    for number, properties in enumerate(
        [{"image_type": "backup", "instance_uuid": "a"}, {"image_type": "backup", "instance_uuid": "b"}] * 2
    ):
        db.write(images.create, make.image(id=uuid(1, number), owner="p1", properties=properties))
    found = db.write(images.hide_beyond, "p1", {"image_type": "backup", "instance_uuid": "b"}, 1)
    assert found == [uuid(1, 1)]


def test_floating_address_is_taken_behind_full_steps(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_addresses, "STEP", 2)
    db.write(floating_ips.create_pool, "public", "192.0.2.0/29")
    taken = [db.write(floating_ips.allocate, conf, ME, None) for _ in range(6)]
    assert [item.address for item in taken] == [f"192.0.2.{number}" for number in range(1, 7)]
    with pytest.raises(exceptions.NoMoreFloatingIps):
        db.write(floating_ips.allocate, conf, ME, None)
    db.write(floating_ips.release, ME, taken[3].id)
    assert db.write(floating_ips.allocate, conf, ME, None).address == "192.0.2.4"
