"""Filter queries: hosts' queries are answered in batches, each as if it had come alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base.futures import wait_for
from nova_lite.base.timing import ConductorTiming
from nova_lite.conductor.network import filter_queries
from nova_lite.conductor.network.filter_publisher import FilterPublisher
from nova_lite.conductor.network.filter_queries import FilterQueries
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.models import Instance, Port
from nova_lite.db.network import floating_ips, security_groups
from nova_lite.db.network.member_versions import MemberCache
from nova_lite.db.network.security_groups import FilterQuery
from nova_lite.objects import PortFilters
from nova_lite.objects.security_group import default_id
from nova_lite.rpcapi.conductor import ConductorRPC
from tests.support import make
from tests.support.security_groups import made, tcp
from tests.support.spanning import guest, host, span
from tests.support.statements import counting

DEADLINE = 30
ME = make.context()

#: SQL statements of a query. They read the host's servers, their interfaces, their projects' groups, rules, versions of
#: members and members, the networks that span hosts, their ends and the addresses of those, and names of guests.
STATEMENTS = 10
LIMITS = ConductorTiming.filter_query_batches

#: Filters of a host without guests.
EMPTY = PortFilters(
    peers={}, routers=[], networks={}, pairs={}, unfiltered=[], qos={}, names={}, dhcp_options={}, further={}
)


class Cloud(NamedTuple):
    """Hosts h1 to h8. A server is moving from h3 to h7; h8 has nothing."""

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
        at = [nodes[item] for item in values.pop("at", [name])]
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


def timeless(rules: T) -> T:
    """Remove from one or several replies the time of the read."""
    if isinstance(rules, PortFilters):
        rules.read_at = None
    for item in rules if isinstance(rules, list) else ():
        timeless(item)
    return rules


def members(rules: PortFilters, group_id: str) -> list[list[str]]:
    """Return the members of each network."""
    return [item.members for item in (rules.groups[group_id].members_by_network or {}).values()]


def give_own_groups(uow: UnitOfWork, groups: dict[str, list[str]]) -> None:
    """Set the groups of the interfaces of these servers."""
    for uuid, names in groups.items():
        uow.session.execute(sa.update(Port).where(Port.instance_uuid == uuid).values(security_groups=names))


def all_of(db: Database, cloud: Cloud) -> list[FilterQuery]:
    """Return the queries of eight hosts, each for all servers."""
    uuids = db.read(lambda uow: [*uow.session.scalars(sa.select(Instance.uuid).order_by(Instance.id))])
    return [FilterQuery(f"h{number}", uuids) for number in range(1, 9)]


def test_filter_batchof_a_batch_have_the_results_of_single_queries(db: Database, cloud: Cloud) -> None:
    batch = [
        *all_of(db, cloud),
        FilterQuery("h1", [cloud.front, cloud.back, "unknown", cloud.front]),
        FilterQuery("h1", [cloud.others]),
        FilterQuery("h2", []),
        FilterQuery("h9", [cloud.front]),
    ]
    together = timeless(db.read(security_groups.filters_together, batch))
    assert together == [timeless(db.read(security_groups.filters, *query)) for query in batch]
    assert timeless(db.read(security_groups.filters_together, batch[::-1])) == together[::-1]


def test_filter_query_returns_only_rules_of_the_host(db: Database, cloud: Cloud) -> None:
    h1, h2, h3, h4, h5, h6, h7, h8 = timeless(db.read(security_groups.filters_together, all_of(db, cloud)))
    default, theirs = default_id("p1"), default_id("p2")

    def in_groups(rules: PortFilters) -> dict[str, list[str]]:
        return {uuid: groups for uuid, groups in rules.instances.items() if groups}

    assert in_groups(h1) == {cloud.front: [default, cloud.web], cloud.others: [theirs]}
    assert in_groups(h2) == {cloud.back: [cloud.db]}
    assert in_groups(h3) == in_groups(h7) == {cloud.moving: [cloud.web, cloud.db]}
    assert (in_groups(h6), in_groups(h8)) == ({cloud.coming: [cloud.web, default]}, {})
    assert [list(rules.ports.values()) for rules in (h1, h2, h4, h5)] == [[], [[cloud.web]], [[]], []]
    # Members of a group are sent only to hosts with a rule that names the group.
    assert h1.groups[cloud.web].members_by_network is h6.groups[cloud.web].members_by_network is None
    assert members(h2, cloud.web) == [["10.0.0.2", "10.0.0.4", "10.0.0.7", "10.0.0.8"]]
    assert (members(h1, default), members(h1, theirs)) == ([["10.0.0.2", "10.0.0.7"]], [["10.0.0.3"]])
    assert {group.project_id for group in h4.groups.values()} == {"p2"}
    assert (h8.groups, h8.floating, h8.peers) == ({}, {}, {})
    # Floating addresses lead to the current host of a server, and not to the source or destination of a move.
    assert [len(rules.floating) for rules in (h1, h2, h3, h6, h7)] == [1, 0, 1, 0, 0]
    assert h4.peers == {}
    ends = {f"10.9.9.{number}" for number in (1, 2, 3, 5, 6, 7)}
    for number, rules in ((1, h1), (2, h2), (3, h3), (5, h5), (6, h6), (7, h7)):
        assert list((rules.peers or {}).values()) == [sorted(ends - {f"10.9.9.{number}"})]


def test_filter_batchof_eight_hosts_need_the_statements_of_one(db: Database, cloud: Cloud) -> None:
    batch = all_of(db, cloud)
    with counting() as one:
        db.read(security_groups.filters_together, batch[1:2], MemberCache())
    with counting() as eight:
        db.read(security_groups.filters_together, batch, MemberCache())
    assert (len(one.statements), len(eight.statements)) == (STATEMENTS, STATEMENTS), eight.statements


# --- rules in build commands


def test_filter_query_for_projects_covers_servers_on_the_host_alone(db: Database, cloud: Cloud) -> None:
    """Servers that are moving to or from the host are covered by a query for their uuids."""
    rules = timeless(db.read(security_groups.filters, "h1", [], frozenset({"p2", "p1"})))
    assert rules.instances.keys() == {cloud.front, cloud.others}
    assert rules.groups == db.read(security_groups.filters, "h1", [cloud.front, cloud.others]).groups
    for name in ("h6", "h7"):
        assert db.read(security_groups.filters, name, [], frozenset({"p1"})).instances == {}
    assert db.read(security_groups.filters, "h1", [cloud.front], frozenset({"p2"})).instances == rules.instances
    assert db.read(security_groups.filters, "h1", [], frozenset({"p3"})).instances == {}


def test_rules_for_builds_cover_hosts_with_a_recent_query(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = FilterQueries(db)
    builds = {"h1": {"i1": "p2"}, "h2": {"i2": "p1"}, "h4": {"i4": "p2"}}
    assert queries.rules_for_builds(builds) == {}, "the hosts may not filter"
    for name in ("h1", "h2"):
        queries.port_filters_get(make.ADMIN, name, [])
    with counting() as counted:
        rules = queries.rules_for_builds(builds)
    assert {host: reply.instances.keys() for host, reply in rules.items()} == {"h1": {cloud.others}, "h2": {cloud.back}}
    assert len(counted.statements) == STATEMENTS
    assert all(reply.read_at is not None for reply in rules.values())
    now = filter_queries.clock.monotonic()
    monkeypatch.setattr(filter_queries.clock, "monotonic", lambda: now + filter_queries.ACTIVE_SECONDS + 1)
    assert queries.rules_for_builds(builds) == {}, "the last queries are too old"


def test_rules_for_single_build_in_large_groups_are_left_out_and_not_read_again(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = FilterQueries(db)
    for name in ("h1", "h2"):
        queries.port_filters_get(make.ADMIN, name, [], known_members={})
    assert queries.rules_for_builds({"h2": {"i1": "p1"}}).keys() == {"h2"}
    monkeypatch.setattr(filter_queries, "LARGE", 4)
    with counting() as counted:
        for _ in range(3):
            assert queries.rules_for_builds({"h2": {"i1": "p1"}}) == {}
        assert queries.rules_for_builds({"h2": {"i1": "p1"}, "h1": {"i2": "p2"}}).keys() == {"h1", "h2"}
    assert len(counted.statements) == 2 * STATEMENTS


def test_rules_for_builds_spare_their_host_a_notification(db: Database, cloud: Cloud) -> None:
    notified: list[str] = []
    compute = SimpleNamespace(refresh_security_groups=lambda context, host: notified.append(host))
    publisher = FilterPublisher(db, compute)  # type: ignore[arg-type]
    queries = FilterQueries(db, publisher=publisher)
    publisher.add(set(), {cloud.back})
    queries.rules_for_builds({"h2": {cloud.back: "p1"}})
    for notification in publisher.publish():
        notification.result()
    assert "h2" in notified, "it has sent no query lately, so its command has no rules"
    notified.clear()
    queries.port_filters_get(make.ADMIN, "h2", [])
    publisher.add(set(), {cloud.back})
    queries.rules_for_builds({"h2": {cloud.back: "p1"}})
    for notification in publisher.publish():
        notification.result()
    assert notified and "h2" not in notified


@pytest.mark.parametrize("error", [sa.exc.InterfaceError("SELECT", None, Exception("gone")), TypeError("7")])
def test_rules_for_builds_that_cannot_be_read_are_left_out(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    queries = FilterQueries(db)
    for name in ("h1", "h2"):
        queries.port_filters_get(make.ADMIN, name, [])

    def fails(uow: UnitOfWork, *batch: Any) -> list[PortFilters]:
        raise error

    monkeypatch.setattr(security_groups, "filters_together", fails)
    assert queries.rules_for_builds({"h1": {"i1": "p2"}, "h2": {"i2": "p1"}}) == {}


@pytest.mark.parametrize("known", [None, {}])
def test_host_of_an_older_version_gets_members_without_networks(
    db: Database, cloud: Cloud, known: dict[str, dict[str, str]] | None
) -> None:
    """The host is recognised by its query, also for the filters of build commands."""
    queries = FilterQueries(db)
    replied = queries.port_filters_get(make.ADMIN, "h2", [cloud.back], known_members=known)
    for rules in (replied, queries.rules_for_builds({"h2": {"i2": "p1"}})["h2"]):
        assert isinstance(rules, PortFilters)
        group = rules.groups[cloud.web]
        found = ["10.0.0.2", "10.0.0.4", "10.0.0.7", "10.0.0.8"]
        assert (group.members, group.members_by_network is None) == (found if known is None else [], known is None)
        assert members(rules, cloud.web) == ([] if known is None else [found])


# --- batches


def send(queries: FilterQueries, question: FilterQuery) -> PortFilters | Exception:
    try:
        return timeless(wait_for(queries.port_filters_get(make.ADMIN, *question[:2], known_members={})))
    except Exception as error:
        return error


def send_batch(db: Database, batch: list[FilterQuery]) -> list[PortFilters | Exception]:
    """Send queries at the same time, soon after a query that is answered at once. Returns their results."""
    limits = LIMITS._replace(quiet_period=DEADLINE, max_delay=DEADLINE, max_batch=len(batch))
    queries = FilterQueries(db, ConductorTiming(filter_query_batches=limits))
    assert send(queries, FilterQuery("first", [])) == EMPTY
    with ThreadPoolExecutor(len(batch)) as pool:
        return list(pool.map(lambda query: send(queries, query), batch))


def test_filter_batchof_a_batch_are_one_transaction(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = all_of(db, cloud)
    alone = [timeless(db.read(security_groups.filters, *query)) for query in batch]
    sizes = []
    whole = security_groups.filters_together

    def counted(uow: UnitOfWork, questions: list[FilterQuery], *caches: MemberCache) -> list[PortFilters]:
        sizes.append(len(questions))
        return whole(uow, questions, *caches)

    monkeypatch.setattr(security_groups, "filters_together", counted)
    assert send_batch(db, batch) == alone
    assert sizes == [1, len(batch)]


def test_single_filter_query_is_answered_at_once(db: Database, cloud: Cloud) -> None:
    batch = all_of(db, cloud)[0]
    timing = ConductorTiming(filter_query_batches=LIMITS._replace(max_delay=10 * DEADLINE))
    with counting() as counted:
        rules = FilterQueries(db, timing).port_filters_get(make.ADMIN, *batch[:2], known_members={})
    assert timeless(rules) == timeless(db.read(security_groups.filters, *batch))
    assert len(counted.statements) == STATEMENTS, counted.statements


def test_corrupt_row_fails_the_filter_query_of_its_host_alone(db: Database, cloud: Cloud) -> None:
    batch = all_of(db, cloud)
    alone = [timeless(db.read(security_groups.filters, *query)) for query in batch]
    db.write(
        lambda uow: uow.session.execute(sa.update(Instance).where(Instance.host == "h5").values(security_groups=7))
    )
    results = send_batch(db, batch)
    assert isinstance(results[4], TypeError)
    assert [*results[:4], *results[5:]] == [*alone[:4], *alone[5:]]


def test_unavailable_database_fails_every_filter_query_of_a_batch(
    db: Database, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = all_of(db, cloud)
    reads = []
    whole = security_groups.filters_together

    def fails(uow: UnitOfWork, questions: list[FilterQuery], *caches: MemberCache) -> list[PortFilters]:
        if questions[0].host == "first":
            return whole(uow, questions, *caches)
        reads.append(questions)
        raise sa.exc.InterfaceError("SELECT", None, Exception("gone"))

    monkeypatch.setattr(security_groups, "filters_together", fails)
    results = send_batch(db, batch)
    assert [type(result) for result in results] == [sa.exc.InterfaceError] * len(batch)
    assert len(reads) == 1


def test_conductor_serves_port_filters_get(db: Database, cloud: Cloud, conductor: ConductorRPC) -> None:
    for question in all_of(db, cloud):
        rules = conductor.port_filters_get(make.ADMIN, *question[:2], known_members={})
        assert timeless(rules) == timeless(db.read(security_groups.filters, *question))
