"""Server groups: rows, quota, membership, and the judge of their policies."""

from __future__ import annotations

from concurrent import futures
from typing import Any

import pytest
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance
from nova_lite.db.servers import server_groups
from nova_lite.db.upkeep import invariants
from nova_lite.objects import ServerGroup
from tests.support import make


def made(db: Database, conf: cfg.ConfigOpts, policy: str = "anti-affinity", **values: Any) -> str:
    group = ServerGroup(name=values.pop("name", "g"), policy=policy, **values)
    return db.write(server_groups.create, conf, make.context(), group).id


def member(db: Database, conf: cfg.ConfigOpts, group: str, host: str | None = None) -> str:
    def write(uow: UnitOfWork) -> str:
        uuid = make.instance(uow, host=host, node=host)
        server_groups.join(uow, conf, make.context(), group, [uuid])
        return uuid

    return db.write(write)


def test_create_list_get_delete(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf, rules={"max_server_per_host": 3})
    found = db.read(server_groups.get, make.context(), group)
    assert (found.name, found.policy, found.rules, found.members) == (
        "g",
        "anti-affinity",
        {"max_server_per_host": 3},
        [],
    )
    assert (found.project_id, found.user_id) == ("p1", "u1")
    assert [item.id for item in db.read(server_groups.list_, make.context())] == [group]
    assert db.read(server_groups.list_, make.context("p2"), all_projects=True) == []
    assert db.read(server_groups.list_, make.ADMIN) == []
    assert len(db.read(server_groups.list_, make.ADMIN, all_projects=True)) == 1
    with pytest.raises(exceptions.ServerGroupNotFound):
        db.read(server_groups.get, make.context("p2"), group)
    with pytest.raises(exceptions.ServerGroupNotFound):
        db.write(server_groups.delete, make.context("p2"), group)
    uuid = member(db, conf, group)
    db.write(server_groups.delete, make.context(), group)
    assert db.read(server_groups.list_, make.context()) == []
    assert db.read(server_groups.of_instance, uuid) is None
    assert not [item for item in db.read(invariants.find) if "server_groups" in item.subject]


@pytest.mark.parametrize(
    ("policy", "values"),
    [
        ("legacy", {}),
        ("affinity", {"rules": {"max_server_per_host": 2}}),
        ("anti-affinity", {"rules": {"max_server_per_host": 0}}),
        ("anti-affinity", {"rules": {"other": 1}}),
        ("affinity", {"name": ""}),
    ],
)
def test_groups_that_cannot_be(db: Database, conf: cfg.ConfigOpts, policy: str, values: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidInput):
        made(db, conf, policy, **values)


def test_quota_of_groups_and_members(db: Database, conf: cfg.ConfigOpts) -> None:
    conf.set_override("server_groups", 1, "quota")
    conf.set_override("server_group_members", 2, "quota")
    group = made(db, conf)
    with pytest.raises(exceptions.QuotaExceeded, match="server_groups"):
        made(db, conf)
    assert db.read(quotas.get, conf, "p1").quotas["server_groups"].used == 1
    uuid = member(db, conf, group)
    member(db, conf, "g")
    with pytest.raises(exceptions.QuotaExceeded, match="server_group_members"):
        member(db, conf, group)
    db.write(server_groups.leave, uuid)
    member(db, conf, group)
    db.write(server_groups.delete, make.context(), group)
    made(db, conf)


def test_group_quota_of_one_user(db: Database, conf: cfg.ConfigOpts) -> None:
    db.write(quotas.set_limits, conf, "p1", {"server_groups": 1, "server_group_members": 1}, False, "u1")
    group = made(db, conf)
    with pytest.raises(exceptions.QuotaExceeded, match="used 1 of 1 server_groups"):
        made(db, conf)
    member(db, conf, group)
    with pytest.raises(exceptions.QuotaExceeded, match="used 1 of 1 server_group_members"):
        member(db, conf, group)
    db.write(server_groups.create, conf, make.context(user="u2"), ServerGroup(name="x", policy="affinity"))


def test_group_of_another_project_cannot_be_joined(db: Database, conf: cfg.ConfigOpts) -> None:
    theirs = db.write(server_groups.create, conf, make.context("p2"), ServerGroup(name="x", policy="affinity")).id
    for reference in (theirs, "x", "nosuch"):
        with pytest.raises(exceptions.ServerGroupUnavailable, match=f"Instance group {reference} could not be found"):
            member(db, conf, reference)


@pytest.mark.parametrize(
    ("policy", "rules", "placed", "allowed"),
    [
        ("anti-affinity", {}, [], {"h1", "h2"}),
        ("anti-affinity", {}, ["h1"], {"h2"}),
        ("anti-affinity", {"max_server_per_host": 2}, ["h1"], {"h1", "h2"}),
        ("anti-affinity", {"max_server_per_host": 2}, ["h1", "h1"], {"h2"}),
        ("affinity", {}, [], {"h1", "h2"}),
        ("affinity", {}, ["h1"], {"h1"}),
        ("soft-affinity", {}, ["h1"], {"h1", "h2"}),
        ("soft-anti-affinity", {}, ["h1"], {"h1", "h2"}),
    ],
)
def test_the_judge(
    db: Database, conf: cfg.ConfigOpts, policy: str, rules: dict[str, int], placed: list[str], allowed: set[str]
) -> None:
    group = made(db, conf, policy, rules=rules)
    for host in placed:
        member(db, conf, group, host)
    uuid = member(db, conf, group)
    assert {host for host in ("h1", "h2") if db.write(server_groups.keeps_policy, uuid, host)} == allowed
    asked = db.read(server_groups.of_instance, uuid)
    assert asked is not None
    assert (asked.policy, asked.hosts) == (policy, placed)
    assert asked.max_server_per_host == rules.get("max_server_per_host")


@pytest.mark.parametrize(("policy", "most"), [("anti-affinity", 1), ("affinity", 4)])
def test_members_that_are_placed_at_the_same_time(db: Database, conf: cfg.ConfigOpts, policy: str, most: int) -> None:
    group = made(db, conf, policy)
    uuids = [member(db, conf, group) for _ in range(8)]

    def place(number: int) -> None:
        def write(uow: UnitOfWork) -> None:
            host = f"h{number % 2}"
            if server_groups.keeps_policy(uow, uuids[number], host):
                uow.session.query(Instance).filter_by(uuid=uuids[number]).one().host = host

        db.write(write)

    with futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(place, range(8)))
    hosts = db.read(lambda uow: [row.host for row in uow.session.query(Instance) if row.host])
    if policy == "affinity":
        assert len(set(hosts)) == 1
        assert len(hosts) == most
    else:
        assert sorted(hosts) == ["h0", "h1"]
