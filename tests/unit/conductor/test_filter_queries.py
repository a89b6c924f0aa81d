"""Hosts that ask together what they have to filter are answered together, and each as if it had asked alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base.batching import wait_for
from nova_lite.conductor.hosts import filter_queries
from nova_lite.conductor.hosts.filter_queries import FilterQueries
from nova_lite.conductor.rpcapi import ConductorRPC
from nova_lite.db import floating_ips, security_groups
from nova_lite.db.engine import Database, UnitOfWork
from nova_lite.db.models import Instance, Port
from nova_lite.db.security_groups import FilterQuestion
from nova_lite.objects import PortFilters
from nova_lite.objects.security_group import default_id
from tests.support import make
from tests.unit.conductor.test_statements import counting
from tests.unit.db.test_security_groups import made, tcp
from tests.unit.db.test_spanning import guest, host, span

DEADLINE = 30
ME = make.context()

#: What one host asks is read by these: its servers, their interfaces, their projects' groups, rules, members; networks
#: that span hosts and are there, their ends, where those are reached.
STATEMENTS = 8


class Cloud(NamedTuple):
    """Hosts h1 to h8; of the last two, one has what is on its way from h3, and one has nothing."""

    web: str
    db: str
    front: str
    others: str
    back: str
    plain: str
    coming: str
    moving: str
    gone: str


@pytest.fixture
def cloud(db: Database, conf: cfg.ConfigOpts) -> Cloud:
    nodes = {f"h{number}": host(db, f"h{number}", f"10.9.9.{number}") for number in range(1, 9)}
    wide, alone = span(db), span(db, "alone", None, 2)
    web, back = made(db, conf), made(db, conf, "db")
    db.write(security_groups.add_rule, conf, ME, tcp(back.id, 5432, remote_group_id=web.id))
    made(db, conf, "web", project="p2")

    def on(name: str, number: int, groups: list[str], network: Any = wide, **values: Any) -> str:
        at = [nodes[each] for each in values.pop("at", [name])]
        return guest(db, network, number, *at, **({"host": name, "security_groups": groups} | values))

    cloud = Cloud(
        web.id,
        back.id,
        front=on("h1", 2, ["default", "web"]),
        others=on("h1", 3, ["default"], project_id="p2"),
        back=on("h2", 4, ["db"]),
        plain=on("h4", 6, ["default"], alone, project_id="p2"),
        coming=on("h6", 7, ["web", "default"], host=None),
        moving=on("h3", 8, ["web", "db"], at=["h3", "h7"]),
        gone=on("h1", 9, ["web"], deleted=True),
    )
    on("h5", 10, ["default", "no such"], project_id="p3")
    db.write(give_own_groups, {cloud.back: ["web"], cloud.plain: []})
    db.write(floating_ips.create_pool, "public", "192.0.2.0/28")
    for uuid in (cloud.front, cloud.coming, cloud.moving):
        address = db.write(floating_ips.allocate, conf, ME, None).address
        db.write(floating_ips.associate, ME, uuid, address, None)
    return cloud


T = TypeVar("T")


def timeless(told: T) -> T:
    """What is told, of one or of several, without when it was read."""
    if isinstance(told, PortFilters):
        told.read_at = None
    for each in told if isinstance(told, list) else ():
        timeless(each)
    return told


def give_own_groups(uow: UnitOfWork, groups: dict[str, list[str]]) -> None:
    """To the interfaces of these servers."""
    for uuid, names in groups.items():
        uow.session.execute(sa.update(Port).where(Port.instance_uuid == uuid).values(security_groups=names))


def all_of(db: Database, cloud: Cloud) -> list[FilterQuestion]:
    """Of eight hosts, of which each asks for everything."""
    uuids = db.read(lambda uow: [*uow.session.scalars(sa.select(Instance.uuid).order_by(Instance.id))])
    return [FilterQuestion(f"h{number}", uuids) for number in range(1, 9)]


def test_each_is_told_what_it_is_told_alone(db: Database, cloud: Cloud) -> None:
    asked = [
        *all_of(db, cloud),
        FilterQuestion("h1", [cloud.front, cloud.back, "unknown", cloud.front]),
        FilterQuestion("h1", [cloud.others]),
        FilterQuestion("h2", []),
        FilterQuestion("h9", [cloud.front]),
    ]
    together = timeless(db.read(security_groups.filters_together, asked))
    assert together == [timeless(db.read(security_groups.filters, *each)) for each in asked]
    assert timeless(db.read(security_groups.filters_together, asked[::-1])) == together[::-1]


def test_each_is_told_only_what_is_its_own(db: Database, cloud: Cloud) -> None:
    h1, h2, h3, h4, h5, h6, h7, h8 = timeless(db.read(security_groups.filters_together, all_of(db, cloud)))
    default, theirs = default_id("p1"), default_id("p2")

    def in_groups(told: PortFilters) -> dict[str, list[str]]:
        return {uuid: groups for uuid, groups in told.instances.items() if groups}

    assert in_groups(h1) == {cloud.front: [default, cloud.web], cloud.others: [theirs]}
    assert in_groups(h2) == {cloud.back: [cloud.db]}
    assert in_groups(h3) == in_groups(h7) == {cloud.moving: [cloud.web, cloud.db]}
    assert (in_groups(h6), in_groups(h8)) == ({cloud.coming: [cloud.web, default]}, {})
    assert [list(told.ports.values()) for told in (h1, h2, h4, h5)] == [[], [[cloud.web]], [[]], []]
    # Its members are told to those alone of whose groups a rule names it.
    assert h1.groups[cloud.web].members == h6.groups[cloud.web].members == []
    assert h2.groups[cloud.web].members == ["10.0.0.2", "10.0.0.4", "10.0.0.7", "10.0.0.8"]
    assert (h1.groups[default].members, h1.groups[theirs].members) == (["10.0.0.2", "10.0.0.7"], ["10.0.0.3"])
    assert {group.project_id for group in h4.groups.values()} == {"p2"}
    assert (h8.groups, h8.floating, h8.peers) == ({}, {}, {})
    # Floating addresses lead to the host that a server is on, and neither to where it comes from nor to where it goes.
    assert [len(told.floating) for told in (h1, h2, h3, h6, h7)] == [1, 0, 1, 0, 0]
    assert h4.peers == {}
    ends = {f"10.9.9.{number}" for number in (1, 2, 3, 5, 6, 7)}
    for number, told in ((1, h1), (2, h2), (3, h3), (5, h5), (6, h6), (7, h7)):
        assert list((told.peers or {}).values()) == [sorted(ends - {f"10.9.9.{number}"})]


def test_eight_need_no_more_than_one(db: Database, cloud: Cloud) -> None:
    asked = all_of(db, cloud)
    with counting() as one:
        db.read(security_groups.filters, *asked[1])
    with counting() as eight:
        db.read(security_groups.filters_together, asked)
    assert (len(one.statements), len(eight.statements)) == (STATEMENTS, STATEMENTS), eight.statements


# --- what goes out with orders


def test_a_project_of_a_host_is_all_that_is_there_of_it(db: Database, cloud: Cloud) -> None:
    """What only comes there, or goes on its way from there, is told to who asks for it."""
    told = timeless(db.read(security_groups.filters, "h1", [], frozenset({"p2", "p1"})))
    assert told.instances.keys() == {cloud.front, cloud.others}
    assert told.groups == db.read(security_groups.filters, "h1", [cloud.front, cloud.others]).groups
    for name in ("h6", "h7"):
        assert db.read(security_groups.filters, name, [], frozenset({"p1"})).instances == {}
    assert db.read(security_groups.filters, "h1", [cloud.front], frozenset({"p2"})).instances == told.instances
    assert db.read(security_groups.filters, "h1", [], frozenset({"p3"})).instances == {}


def test_hosts_that_ask_are_told_with_their_orders(db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = FilterQueries(db)
    projects = {"h1": ["p2"], "h2": ["p1"], "h4": ["p2"]}
    assert questions.rules_for_builds(projects) == {}, "they may filter nothing"
    for name in ("h1", "h2"):
        questions.port_filters_get(make.ADMIN, name, [])
    with counting() as counted:
        told = questions.rules_for_builds(projects)
    assert {host: each.instances.keys() for host, each in told.items()} == {"h1": {cloud.others}, "h2": {cloud.back}}
    assert len(counted.statements) == STATEMENTS
    assert all(each.read_at is not None for each in told.values())
    now = filter_queries.time.monotonic()
    monkeypatch.setattr(filter_queries.time, "monotonic", lambda: now + filter_queries.ACTIVE_SECONDS + 1)
    assert questions.rules_for_builds(projects) == {}, "they have not asked for long"


@pytest.mark.parametrize("error", [sa.exc.InterfaceError("SELECT", None, Exception("gone")), TypeError("7")])
def test_of_which_it_cannot_be_told_they_ask(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Orders are sent in any case."""
    questions = FilterQueries(db)
    for name in ("h1", "h2"):
        questions.port_filters_get(make.ADMIN, name, [])

    def fails(uow: UnitOfWork, *asked: Any) -> list[PortFilters]:
        raise error

    monkeypatch.setattr(security_groups, "filters_together", fails)
    assert questions.rules_for_builds({"h1": ["p2"], "h2": ["p1"]}) == {}


# --- who asks soon after another one


def ask(questions: FilterQueries, question: FilterQuestion) -> PortFilters | Exception:
    try:
        return timeless(wait_for(questions.port_filters_get(make.ADMIN, *question[:2])))
    except Exception as error:
        return error


def soon_after_another(
    db: Database, asked: list[FilterQuestion], monkeypatch: pytest.MonkeyPatch
) -> list[PortFilters | Exception]:
    """What these are answered, that all ask soon after another one, which has its answer at once."""
    limits = filter_queries.LIMITS._replace(quiet_period=DEADLINE, max_delay=DEADLINE, max_batch=len(asked))
    monkeypatch.setattr(filter_queries, "LIMITS", limits)
    questions = FilterQueries(db)
    assert ask(questions, FilterQuestion("first", [])) == PortFilters(peers={})
    with ThreadPoolExecutor(len(asked)) as pool:
        return list(pool.map(lambda each: ask(questions, each), asked))


def test_those_that_wait_are_answered_by_one_transaction(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = all_of(db, cloud)
    alone = [timeless(db.read(security_groups.filters, *each)) for each in asked]
    sizes = []
    whole = security_groups.filters_together

    def counted(uow: UnitOfWork, questions: list[FilterQuestion]) -> list[PortFilters]:
        sizes.append(len(questions))
        return whole(uow, questions)

    monkeypatch.setattr(security_groups, "filters_together", counted)
    assert soon_after_another(db, asked, monkeypatch) == alone
    assert sizes == [1, len(asked)]


def test_one_that_is_alone_is_answered_at_once(db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = all_of(db, cloud)[0]
    monkeypatch.setattr(filter_queries, "LIMITS", filter_queries.LIMITS._replace(max_delay=10 * DEADLINE))
    with counting() as counted:
        told = FilterQueries(db).port_filters_get(make.ADMIN, *asked[:2])
    assert timeless(told) == timeless(db.read(security_groups.filters, *asked))
    assert len(counted.statements) == STATEMENTS, counted.statements


def test_a_row_that_makes_no_sense_spoils_no_other_answer(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = all_of(db, cloud)
    alone = [timeless(db.read(security_groups.filters, *each)) for each in asked]
    db.write(
        lambda uow: uow.session.execute(sa.update(Instance).where(Instance.host == "h5").values(security_groups=7))
    )
    told = soon_after_another(db, asked, monkeypatch)
    assert isinstance(told[4], TypeError)
    assert [*told[:4], *told[5:]] == [*alone[:4], *alone[5:]]


def test_a_database_that_is_away_is_told_to_each(db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = all_of(db, cloud)
    reads = []
    whole = security_groups.filters_together

    def fails(uow: UnitOfWork, questions: list[FilterQuestion]) -> list[PortFilters]:
        if questions[0].host == "first":
            return whole(uow, questions)
        reads.append(questions)
        raise sa.exc.InterfaceError("SELECT", None, Exception("gone"))

    monkeypatch.setattr(security_groups, "filters_together", fails)
    told = soon_after_another(db, asked, monkeypatch)
    assert [type(each) for each in told] == [sa.exc.InterfaceError] * len(asked)
    assert len(reads) == 1


def test_the_conductor_serves_it(db: Database, cloud: Cloud, conductor: ConductorRPC) -> None:
    for question in all_of(db, cloud):
        told = conductor.port_filters_get(make.ADMIN, *question[:2])
        assert timeless(told) == timeless(db.read(security_groups.filters, *question))
