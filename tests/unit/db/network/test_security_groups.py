"""Security groups: rows, rules, quota, members, and the filter rules of hosts."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.conductor import database
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import Instance, Port
from nova_lite.db.core.models import SecurityGroupRule as SecurityGroupRuleRow
from nova_lite.db.network import builtin_networks, networks, ports, security_groups
from nova_lite.db.upkeep import invariants
from nova_lite.network import security_rules
from nova_lite.objects import NetworkResources, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import PROTOCOLS, default_group, default_id
from tests.support import make, published
from tests.support.security_groups import made, server, tcp

ME, OTHER = make.context(), make.context("p2")


def add(db: Database, conf: cfg.ConfigOpts, rule: SecurityGroupRule) -> SecurityGroupRule:
    """Check a rule and write it, as the conductor does."""
    return db.write(security_groups.add_rule, conf, ME, security_rules.checked(rule))


def test_create_show_change_delete(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    assert (group.name, group.description, group.project_id) == ("web", "for tests", "p1")
    assert sorted((rule.direction, rule.ethertype) for rule in group.rules) == [("egress", "IPv4"), ("egress", "IPv6")]
    assert [item.name for item in db.read(security_groups.list_, ME)] == ["default", "web"]
    assert db.read(security_groups.get, ME, "web").id == db.read(security_groups.get, ME, group.id).id == group.id
    with pytest.raises(exceptions.SecurityGroupExists):
        made(db, conf)
    changed = db.write(security_groups.update, ME, group.id, "www", None)
    assert (changed.name, changed.description) == ("www", "for tests")
    assert db.write(security_groups.update, ME, "www", None, "other").description == "other"
    db.write(security_groups.delete, ME, group.id)
    assert [item.name for item in db.read(security_groups.list_, ME)] == ["default"]
    assert db.read(quotas.get, conf, "p1").quotas["security_groups"].used == 0


def test_other_projects_have_their_own(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    rule = add(db, conf, tcp(group.id))
    assert made(db, conf, project="p2").id != group.id
    for call in (
        lambda: db.read(security_groups.get, OTHER, group.id),
        lambda: db.write(security_groups.update, OTHER, group.id, "x", None),
        lambda: db.write(security_groups.delete, OTHER, group.id),
        lambda: db.write(security_groups.add_rule, conf, OTHER, tcp(group.id)),
        lambda: db.write(security_groups.add_rule, conf, OTHER, tcp("web", remote_group_id=group.id)),
        lambda: db.write(security_groups.delete_rule, OTHER, rule.id),
    ):
        with pytest.raises(exceptions.NotFound):
            call()
    assert {item.project_id for item in db.read(security_groups.list_, make.ADMIN, True)} == {"p1", "p2"}
    assert {item.project_id for item in db.read(security_groups.list_, OTHER, True)} == {"p2"}
    assert db.read(security_groups.get, make.ADMIN, group.id).id == group.id
    db.write(security_groups.delete_rule, make.ADMIN, rule.id)


def test_the_default_group_is_there_from_the_first(db: Database, conf: cfg.ConfigOpts) -> None:
    (group,) = db.read(security_groups.list_, ME)
    assert group == default_group("p1")
    with pytest.raises(exceptions.SecurityGroupFixed):
        db.write(security_groups.delete, ME, group.id)
    with pytest.raises(exceptions.SecurityGroupFixed):
        db.write(security_groups.update, ME, "default", "other", None)
    with pytest.raises(exceptions.SecurityGroupExists):
        made(db, conf, "default")
    with pytest.raises(exceptions.SecurityGroupExists):
        db.write(security_groups.update, ME, made(db, conf).id, "default", None)
    add(db, conf, tcp("default", 22))
    found = db.read(security_groups.get, ME, "default")
    assert (found.id, len(found.rules)) == (default_id("p1"), 5)
    for rule in found.rules:
        db.write(security_groups.delete_rule, ME, rule.id)
    assert db.read(security_groups.get, ME, "default").rules == []


def test_its_first_rules_can_be_deleted_before_it_has_a_row(db: Database) -> None:
    group = default_group("p1")
    db.write(security_groups.delete_rule, ME, group.rules[-1].id)
    assert len(db.read(security_groups.get, ME, group.id).rules) == len(group.rules) - 1


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ({}, {"protocol": "tcp", "port_range_min": 80, "port_range_max": 80}),
        ({"remote_ip_prefix": "10.1.2.3/8"}, {"remote_ip_prefix": "10.1.2.3/8"}),
        ({"remote_ip_prefix": "2001:db8::1/32", "ethertype": "IPv6"}, {"remote_ip_prefix": "2001:db8::1/32"}),
        ({"protocol": "ICMP", "port_range_min": 8, "port_range_max": 0}, {"protocol": "icmp", "port_range_max": 0}),
        ({"protocol": None, "port_range_min": None, "port_range_max": None, "direction": "egress",
          "remote_ip_prefix": "10.0.0.0/8"}, {"direction": "egress"}),
    ],
)  # fmt: skip
def test_rules(db: Database, conf: cfg.ConfigOpts, values: dict[str, Any], kept: dict[str, Any]) -> None:
    group = made(db, conf)
    rule = add(db, conf, tcp(group.id, **values))
    (found,) = [item for item in db.read(security_groups.get, ME, group.id).rules if item.id == rule.id]
    assert found == rule
    assert {name: getattr(found, name) for name in kept} == kept
    with pytest.raises(exceptions.SecurityGroupRuleExists):
        add(db, conf, tcp(group.id, **values))


def test_a_network_is_the_same_however_it_is_said(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    add(db, conf, tcp(group.id, remote_ip_prefix="10.1.2.3/8"))
    with pytest.raises(exceptions.SecurityGroupRuleExists):
        add(db, conf, tcp(group.id, remote_ip_prefix="10.0.0.0/8"))


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "0", "255", "6", "142"])
def test_every_protocol_has_a_name_and_a_number(db: Database, conf: cfg.ConfigOpts, protocol: str) -> None:
    group = made(db, conf)
    values: dict[str, Any] = {"port_range_min": None, "port_range_max": None, "ethertype": "IPv6"}
    found = add(db, conf, tcp(group.id, protocol=protocol.upper(), **values))
    assert found.protocol == protocol
    if protocol in PROTOCOLS:
        with pytest.raises(exceptions.SecurityGroupRuleExists):
            add(db, conf, tcp(group.id, protocol=str(PROTOCOLS[protocol]), **values))


def test_hosts_of_older_versions_know_the_names_of_the_common_protocols(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    free: dict[str, Any] = {"port_range_min": None, "port_range_max": None}
    for protocol in ("6", "17", "1", "112"):
        add(db, conf, tcp(group.id, protocol=protocol, **free))
    add(db, conf, tcp(group.id, protocol="icmpv6", ethertype="IPv6", **free))
    told = db.read(security_groups.filters, "h1", [server(db, 2, "web", host="h1")])
    inward = [rule for rule in told.groups[group.id].rules if rule.direction == "ingress"]
    assert sorted(str(rule.protocol) for rule in inward) == ["112", "icmp", "icmp", "tcp", "udp"]


def test_ports_of_a_protocol_that_has_them(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    for protocol in ("sctp", "dccp", "136"):
        rule = add(db, conf, tcp(group.id, protocol=protocol))
        assert (rule.protocol, rule.port_range_min) == (protocol, tcp(group.id).port_range_min)


def test_prefix_of_one_address_has_a_length(db: Database, conf: cfg.ConfigOpts) -> None:
    rule = add(db, conf, tcp(made(db, conf).id, remote_ip_prefix="10.1.2.3"))
    assert rule.remote_ip_prefix == "10.1.2.3/32"


def test_conductor_refuses_a_rule_before_the_transaction(
    db: Database, conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = database.functions(db, conf)
    wrong = tcp(made(db, conf).id, remote_ip_prefix="10.0.0.0/33")
    monkeypatch.setattr(db, "engine", None)  # a transaction would need it
    monkeypatch.setattr(db, "sessions", None)
    with pytest.raises(exceptions.SecurityGroupRuleInvalid):
        served["security_group_rule_create"](make.context(), rule=wrong)
    with pytest.raises(exceptions.SecurityGroupRuleInvalid):
        served["network_resources_create"](make.context(), wanted=NetworkResources(security_group_rules=[wrong]))


def test_conductor_writes_a_rule_as_it_was_checked(db: Database, conf: cfg.ConfigOpts) -> None:
    served = database.functions(db, conf)
    rule = tcp(made(db, conf).id, protocol="TCP", remote_ip_prefix="10.1.2.3")
    written: SecurityGroupRule = served["security_group_rule_create"](make.context(), rule=rule)
    assert (written.protocol, written.remote_ip_prefix) == ("tcp", "10.1.2.3/32")
    other = tcp(rule.security_group_id, 81, protocol="UDP")
    wanted = NetworkResources(security_group_rules=[other])
    created: NetworkResources = served["network_resources_create"](make.context(), wanted=wanted)
    assert [item.protocol for item in created.security_group_rules] == ["udp"]


def test_prefix_that_an_older_version_accepted_blocks_no_other_rule(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    rule = add(db, conf, tcp(group.id, remote_ip_prefix="fd00::/64", ethertype="IPv6"))

    def spoil(uow: UnitOfWork) -> None:
        uow.session.execute(sa.update(SecurityGroupRuleRow).values(remote_ip_prefix="fe80::%lo/64"))

    db.write(spoil)
    add(db, conf, tcp(group.id, 81))
    db.write(security_groups.delete_rule, ME, rule.id)


def test_quota_of_groups_and_rules(db: Database, conf: cfg.ConfigOpts) -> None:
    conf.set_override("security_groups", 1, "quota")
    conf.set_override("security_group_rules", 3, "quota")
    group = made(db, conf)
    with pytest.raises(exceptions.QuotaExceeded, match="security_groups"):
        made(db, conf, "other")
    rule = add(db, conf, tcp(group.id))
    with pytest.raises(exceptions.QuotaExceeded, match="security_group_rule: Requested 1, but already used 3 of 3"):
        add(db, conf, tcp(group.id, 81))
    db.write(security_groups.delete_rule, ME, rule.id)
    add(db, conf, tcp(group.id, 81))
    assert db.read(invariants.find) == []


def test_members(db: Database, conf: cfg.ConfigOpts) -> None:
    """A renamed group keeps its members. A group with members cannot be deleted."""
    group = made(db, conf)
    uuid = server(db, 2, "default")
    db.write(security_groups.join, ME, uuid, group.id)
    db.write(security_groups.join, ME, uuid, "web")
    assert groups_of(db, uuid) == ["default", "web"]
    db.write(security_groups.update, ME, group.id, "www", None)
    assert groups_of(db, uuid) == ["default", "www"]
    assert [item.name for item in db.read(security_groups.of_instance, ME, uuid)] == ["default", "www"]
    with pytest.raises(exceptions.SecurityGroupInUse, match=uuid):
        db.write(security_groups.delete, ME, group.id)
    db.write(security_groups.leave, ME, uuid, "www")
    with pytest.raises(exceptions.SecurityGroupNotAssociated):
        db.write(security_groups.leave, ME, uuid, "www")
    db.write(security_groups.delete, ME, group.id)
    for call in (security_groups.join, security_groups.leave):
        with pytest.raises(exceptions.SecurityGroupNotFound):
            db.write(call, ME, uuid, "www")
        with pytest.raises(exceptions.InstanceNotFound):
            db.write(call, OTHER, uuid, "default")


def test_stateless_group_is_for_servers_with_stateless_groups_only(db: Database, conf: cfg.ConfigOpts) -> None:
    """A server's host learns that its group is stateless."""
    for name in ("one", "two"):
        db.write(security_groups.create, conf, ME, name, None, False)
    uuid = server(db, 2, "default", host="c1")
    with pytest.raises(exceptions.SecurityGroupConflict, match="default, one are of both kinds"):
        db.write(security_groups.join, ME, uuid, "one")
    with pytest.raises(exceptions.SecurityGroupConflict):
        db.write(security_groups.named, "p1", ["one", "default"])
    assert groups_of(db, uuid) == ["default"]
    db.write(security_groups.leave, ME, uuid, "default")
    for name in ("one", "two"):
        db.write(security_groups.join, ME, uuid, name)
    with pytest.raises(exceptions.SecurityGroupConflict):
        db.write(security_groups.join, ME, uuid, "default")
    with pytest.raises(exceptions.SecurityGroupInUse, match=uuid):
        db.write(security_groups.update, ME, "one", None, None, True)
    found = db.read(security_groups.filters, "c1", [uuid])
    kinds = {group.name: group.stateful for group in found.groups.values()}
    assert kinds == {"one": False, "two": False}


def test_a_locked_server_stays_as_it_is(db: Database) -> None:
    uuid = server(db, 2, "default", locked=True)
    for call in (security_groups.join, security_groups.leave):
        with pytest.raises(exceptions.InstanceIsLocked):
            db.write(call, ME, uuid, "default")
    db.write(security_groups.leave, make.context(admin=True), uuid, "default")


def groups_of(db: Database, uuid: str) -> list[str]:
    return db.read(lambda uow: uow.session.query(Instance).filter_by(uuid=uuid).one().security_groups)


def test_new_servers_groups_are_found_by_name_or_id(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    theirs = made(db, conf, "theirs", project="p2")

    def named(*references: str) -> list[str]:
        return db.write(security_groups.named, "p1", references)

    assert named() == named("default") == named(default_id("p1")) == ["default"]
    assert named("web", group.id) == ["web"]
    assert named("default", group.id) == ["default", "web"]
    for reference in ("nosuch", theirs.id, "theirs", default_id("p2")):
        with pytest.raises(exceptions.SecurityGroupUnavailable):
            named(reference)


def members(group: SecurityGroup) -> list[str]:
    """Return the members of a group on all networks."""
    return sorted(address for item in (group.members_by_network or {}).values() for address in item.members)


def test_filters_contain_a_hosts_servers(db: Database, conf: cfg.ConfigOpts) -> None:
    """A host gets the groups of its servers, and the members of groups that their rules name, on any host."""
    web, db_group = made(db, conf), made(db, conf, "db")
    add(db, conf, tcp(db_group.id, 5432, remote_group_id=web.id))
    front, back = server(db, 2, "default", "web", host="h1"), server(db, 3, "db", host="h1")
    gone = server(db, 4, "web", deleted=True, host="h1")
    stranger = server(db, 5, "default", project_id="p2", host="h1")
    elsewhere = server(db, 6, "db", project_id="p3", host="h2")
    told = db.read(security_groups.filters, "h1", [back, stranger, gone, elsewhere, "unknown"])
    assert told.instances == {
        back: [db_group.id],
        stranger: [default_id("p2")],
        gone: [],
        "unknown": [],
        elsewhere: [],  # a host gets rules of its own servers only
    }
    assert {group.project_id for group in told.groups.values()} == {"p1", "p2"}
    assert {group.name: members(group) for group in told.groups.values() if group.project_id == "p1"} == {
        "db": [],
        "web": ["10.0.0.2"],
    }
    assert members(told.groups[default_id("p2")]) == ["10.0.0.5"]
    told = db.read(security_groups.filters, "h1", [front])
    assert members(told.groups[default_id("p1")]) == ["10.0.0.2"]
    assert db.read(security_groups.filters, "h1", []).groups == {}


def test_port_that_is_down_or_on_a_network_that_is_has_no_rules(db: Database, conf: cfg.ConfigOpts) -> None:
    down, network_down, up = (server(db, number, "default", host="h1") for number in (2, 3, 4))

    def ports_of(uow: UnitOfWork) -> dict[str, Port]:
        return {port.instance_uuid or "": port for port in uow.session.scalars(sa.select(Port))}

    def told() -> tuple[dict[str, list[str]], set[str]]:
        ids = db.read(lambda uow: {instance: port.id for instance, port in ports_of(uow).items()})
        filters = db.read(security_groups.filters, "h1", [down, network_down, up])
        assert all(groups == [default_id("p1")] for groups in filters.instances.values())
        return filters.ports, {instance for instance, port_id in ids.items() if filters.ports.get(port_id) == []}

    assert told() == ({}, set())
    other = make.network(name="other", cidr="10.3.0.0/24", project_id="p1")
    db.write(builtin_networks.create, other)

    def turn_off(uow: UnitOfWork) -> set[str]:
        mine = ports_of(uow)
        mine[network_down].network_id = other.id
        uow.session.flush()
        ports.update(uow, ME, mine[down].id, {"admin_state_up": False})
        uow.published(FiltersChanged).clear()
        networks.update(uow, ME, other.id, {"admin_state_up": False})
        return published.projects(uow)

    assert db.write(turn_off) == {"p1"}
    assert told()[1] == {down, network_down}


def test_a_rule_goes_with_the_group_that_it_names(db: Database, conf: cfg.ConfigOpts) -> None:
    web, back = made(db, conf), made(db, conf, "db")
    add(db, conf, tcp(back.id, remote_group_id=web.id))
    assert [rule.remote_group_name for rule in db.read(security_groups.get, ME, "db").rules][-1] == "web"
    db.write(security_groups.delete, ME, web.id)
    assert {rule.direction for rule in db.read(security_groups.get, ME, "db").rules} == {"egress"}


@pytest.mark.parametrize("projects, changed", [({"p1"}, set()), (set(), {"a", "b"}), ({"p1"}, {"a"})])
def test_affected_hosts_are_found_without_reading_all_servers(
    db: Database, projects: set[str], changed: set[str]
) -> None:
    """Deleted servers are many."""
    if not db.is_sqlite:
        pytest.skip("the plan is read as SQLite tells it")
    plans: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT") and "instances" in statement:
            cursor.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
            plans.extend(row[-1] for row in cursor.fetchall())

    sa.event.listen(db.engine, "before_cursor_execute", note)
    try:
        db.read(security_groups.hosts, projects, changed)
    finally:
        sa.event.remove(db.engine, "before_cursor_execute", note)
    reads = [plan for plan in plans if " instances " in f"{plan} "]
    assert reads and all("(project_id=?" in plan or "(uuid=?" in plan for plan in reads), reads


def test_members_have_addresses_of_both_kinds(db: Database, conf: cfg.ConfigOpts) -> None:
    here = server(db, 2, "default", host="h1")
    db.write(lambda uow: uow.session.execute(sa.update(Port).values(address6="fd00::2")))
    (group,) = db.read(security_groups.filters, "h1", [here]).groups.values()
    assert members(group) == ["10.0.0.2", "fd00::2"]


def test_affected_hosts_of_a_change(db: Database) -> None:
    first = server(db, 2, "default", host="h1")
    second = server(db, 3, "default", host="h2")
    server(db, 4, "default", host="h3", project_id="p2")
    server(db, 5, "default", host="h4", deleted=True)
    server(db, 6, "default")
    assert db.read(security_groups.hosts, {"p1"}, set()) == ["h1", "h2"]
    assert db.read(security_groups.hosts, set(), {first}) == ["h2"]
    assert db.read(security_groups.hosts, {"p2"}, {first}) == ["h2", "h3"]
    # Two instances changed at once, so each host has to learn about the other.
    assert db.read(security_groups.hosts, set(), {first, second}) == ["h1", "h2"]


def test_group_changes_are_marked_for_hosts(db: Database, conf: cfg.ConfigOpts) -> None:
    marked: list[tuple[set[str], set[str]]] = []
    db.subscribe(lambda uow: marked.append((published.projects(uow), published.instances(uow))), always=True)
    uuid = server(db, 2, "default")
    assert marked.pop() == (set(), {uuid})
    group = made(db, conf)
    for write in (
        lambda: add(db, conf, tcp(group.id)),
        lambda: db.write(security_groups.join, ME, uuid, "web"),
        lambda: db.write(security_groups.leave, ME, uuid, "web"),
        lambda: db.write(security_groups.delete, ME, "web"),
    ):
        write()
        assert marked.pop() == ({"p1"}, set())
    db.write(lambda uow: builtin_networks.Store(uow).remove_ports(uuid))
    assert marked.pop() == (set(), {uuid})


def test_quota_of_rules_counts_all_groups_of_the_project(db: Database, conf: cfg.ConfigOpts) -> None:
    conf.set_override("security_group_rules", 6, "quota")
    first, second = made(db, conf), made(db, conf, "other")
    add(db, conf, tcp(first.id))
    add(db, conf, tcp(second.id, direction="egress"))
    for group in (first, second):
        with pytest.raises(exceptions.QuotaExceeded, match="Requested 1, but already used 6 of 6"):
            add(db, conf, tcp(group.id, 81))


def test_double_rule_is_refused_with_the_id_of_the_present_one(db: Database, conf: cfg.ConfigOpts) -> None:
    group = made(db, conf)
    rule = add(db, conf, tcp(group.id))
    with pytest.raises(exceptions.SecurityGroupRuleExists, match=f"Rule id is {rule.id}"):
        add(db, conf, tcp(group.id))
