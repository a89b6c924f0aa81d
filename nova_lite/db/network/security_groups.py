"""Security groups: groups, rules, members, and the filter rules of hosts.

An instance's row has the names of its groups. A project's default group exists without a row, as `default_group`
defines it, until a member changes it.
"""

from __future__ import annotations

import datetime
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_config import cfg
from sqlalchemy import orm

from nova_lite.base import exceptions, ip
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, paging, quotas, rows
from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import (
    FloatingIp,
    Instance,
    Network,
    Port,
    PortForwarding,
    RouterInterface,
    RouterInterface6,
    Service,
    TrunkSubport,
)
from nova_lite.db.core.models import SecurityGroup as Row
from nova_lite.db.core.models import SecurityGroupRule as RuleRow
from nova_lite.db.core.statements import holds, insert_unless_taken
from nova_lite.db.hosts import services
from nova_lite.db.network import (
    address_groups,
    forwarding_hosts,
    guest_names,
    member_versions,
    qos,
    rbac,
    router_hosts,
    spanning,
)
from nova_lite.db.network.member_versions import MemberCache, Members
from nova_lite.db.servers import instances, interfaces
from nova_lite.network.trunks import SUBPORT
from nova_lite.objects import ListQuery, PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.objects.security_group import (
    DEFAULT,
    OPEN,
    NetworkMembers,
    default_group,
    default_id,
    floating_key,
    is_default,
    outward_rules,
    protocol_number,
)

#: Names by which hosts of older versions know protocols.
_COMMON: dict[object, str] = {0: "0", 1: "icmp", 58: "icmp", 6: "tcp", 17: "udp"}

# --- groups


#: Filters of lists of groups, and of rules.
_FILTERS: dict[str, Any] = {"id": Row.id, "name": Row.name, "project_id": Row.project_id}
_RULE_FILTERS: dict[str, Any] = {
    "id": RuleRow.id,
    "security_group_id": RuleRow.security_group_id,
    "remote_group_id": RuleRow.remote_group_id,
    "direction": RuleRow.direction,
    "ethertype": RuleRow.ethertype,
    "project_id": Row.project_id,
}

_TYPE = "security_group"


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    all_projects: bool = False,
    limit: int | None = None,
    offset: int = 0,
    query: ListQuery | None = None,
) -> list[SecurityGroup]:
    """Return the project's groups by name; with ``all_projects`` and for an admin, all groups.

    ``query``: a page of them, by id, with keys of `_FILTERS`. It includes the own default group, with or without a row.
    """
    whole = all_projects and bool(context.is_admin)
    if query is not None:
        return _page(uow, context, query)
    if whole:
        ordered = sa.select(Row).order_by(Row.name, Row.project_id).offset(offset or None).limit(limit)
        return _to_objects(uow, uow.session.scalars(ordered).all())
    project_id = context.project_id or ""
    mine = sa.select(Row).where(Row.project_id == project_id).order_by(Row.name)
    default = _default_without_row(uow, project_id)
    # The default group without a row has its place among the rows.
    place = -1
    if default is not None:
        before = sa.select(sa.func.count(Row.id)).where(Row.project_id == project_id, Row.name < DEFAULT)
        place = (uow.session.scalar(before) or 0) - offset
        mine, offset = (mine, offset - 1) if place < 0 else (mine, offset)
    found = _to_objects(uow, uow.session.scalars(mine.offset(offset or None).limit(limit)).all())
    if default is not None and place >= 0 and (limit is None or place < limit):
        found.insert(place, default)
    return found if limit is None else found[:limit]


def _page(uow: UnitOfWork, context: RequestContext, query: ListQuery) -> list[SecurityGroup]:
    conditions = [_FILTERS[name].in_(values) for name, values in query.filters.items()]
    shared = rbac.shared_ids(uow, context, _TYPE)
    page = paging.by_id(sa.select(Row), Row.id, [sa.and_(_visible(context, shared), *conditions)], query)
    found = _to_objects(uow, uow.session.scalars(page).all())
    for group in found:
        group.shared = group.id in shared
    default = _default_without_row(uow, context.project_id or "")
    return _inserted(found, [default] if default is not None else [], query)


def _visible(context: RequestContext, shared: Collection[str]) -> sa.ColumnElement[bool]:
    """Build the condition of a group that the caller may see. Without ``shared`` ones, an index answers it."""
    if context.is_admin:
        return sa.true()
    own = Row.project_id == (context.project_id or "")
    return sa.or_(own, Row.id.in_(shared)) if shared else own


def rules(uow: UnitOfWork, context: RequestContext, query: ListQuery) -> list[SecurityGroupRule]:
    """Return a page of the rules of the groups that the caller may see, by id.

    ``query``: its filters are keys of `_RULE_FILTERS`. The rules carry the project of their group. They include those
    of the own default group, with or without a row.
    """
    case = _visible(context, rbac.shared_ids(uow, context, _TYPE))
    conditions = [_RULE_FILTERS[name].in_(values) for name, values in query.filters.items()]
    fields = (getattr(RuleRow, name) for name in _RULE_FIELDS)
    selected = sa.select(*fields, Row.project_id).join(Row, Row.id == RuleRow.security_group_id)
    page = paging.by_id(selected, RuleRow.id, [sa.and_(case, *conditions)], query)
    found = [
        SecurityGroupRule(**dict(zip(_RULE_FIELDS, row, strict=False)), project_id=row[-1]) for row in uow.rows(page)
    ]
    default = _default_without_row(uow, context.project_id or "")
    own = [] if default is None else default.rules
    return _inserted(found, [msgspec.structs.replace(rule, project_id=context.project_id) for rule in own], query)


def _default_without_row(uow: UnitOfWork, project_id: str) -> SecurityGroup | None:
    """Return the project's default group if it has no row."""
    if not project_id:
        return None
    known = sa.select(Row.id).where(Row.project_id == project_id, Row.name == DEFAULT)
    return None if uow.session.scalars(known).first() is not None else default_group(project_id)


T = TypeVar("T", bound=SecurityGroup | SecurityGroupRule)


def _inserted(found: list[T], more: list[T], query: ListQuery) -> list[T]:
    """Return the page with ``more`` things that have no row."""

    def is_in(item: SecurityGroup | SecurityGroupRule) -> bool:
        if query.marker is not None and (item.id >= query.marker if query.backwards else item.id <= query.marker):
            return False
        return all(getattr(item, name) in values for name, values in query.filters.items())

    whole: list[T] = [*found, *(item for item in more if is_in(item))]
    whole.sort(key=attrgetter("id"), reverse=query.backwards)
    return whole[: query.limit]


def get(uow: UnitOfWork, context: RequestContext, group_id: str) -> SecurityGroup:
    """Return a group by id, or by name within the project. Raises `SecurityGroupNotFound`, also for another project's
    that is not shared, except for an admin.
    """
    own = _named(uow, context.project_id or "", group_id)
    name = DEFAULT if is_default(group_id, context.project_id) else group_id
    named = [group for group in own if group_id == group.id or name == group.name]
    found = next((group for group in named if group.id == group_id), named[0] if named else None)
    if found is None:
        others = sa.select(Row).where(Row.id == group_id, rbac.visible(context, _TYPE))
        found = next(iter(_to_objects(uow, uow.session.scalars(others).all())), None)
    if found is None:
        raise exceptions.SecurityGroupNotFound(group_id=group_id[:64])
    found.shared = rbac.is_shared(uow, _TYPE, found.id, context.project_id)
    return found


def _named(uow: UnitOfWork, project_id: str, *references: str) -> list[SecurityGroup]:
    """Return the groups of the project with one of these ids or names, its default group included."""
    wants_default = project_id and any(is_default(reference, project_id) for reference in references)
    names = {*references, DEFAULT} if wants_default else references
    query = sa.select(Row).where(Row.project_id == project_id, sa.or_(Row.id.in_(references), Row.name.in_(names)))
    found = _to_objects(uow, uow.session.scalars(query).all())
    if wants_default and not any(group.name == DEFAULT for group in found):
        found.append(default_group(project_id))
    return found


def create(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    context: RequestContext,
    name: str,
    description: str | None,
    stateful: bool = True,
) -> SecurityGroup:
    """Create a group. Its rules allow all egress and no ingress."""
    if not context.project_id:
        raise exceptions.Forbidden("A security group belongs to a project; this token is for none.")
    taken = exceptions.SecurityGroupExists(name=name, project_id=context.project_id)
    if name == DEFAULT:
        raise taken
    quotas.take(uow, conf, context.project_id, {"security_groups": 1}, context.user_id)
    row = Row(
        id=str(uuid.uuid4()),
        project_id=context.project_id,
        user_id=context.user_id or "",
        name=name,
        description=description,
        stateful=stateful,
        created_at=uow.now,
    )
    rows.insert(uow, row, taken)
    _insert_rules(uow, outward_rules(row.id))
    return _to_objects(uow, [row])[0]


def update(
    uow: UnitOfWork,
    context: RequestContext,
    group_id: str,
    name: str | None,
    description: str | None,
    stateful: bool | None = None,
) -> SecurityGroup:
    """Change name or description, or ``stateful`` while nothing is in the group; None keeps the value.

    Members follow the new name.
    """
    row = locked(uow, context, group_id)
    if stateful not in (None, row.stateful):
        if row.name == DEFAULT:
            raise exceptions.SecurityGroupFixed()
        _require_unused(uow, row)
        row.stateful = bool(stateful)
    if row.name == DEFAULT and name not in (None, DEFAULT):
        raise exceptions.SecurityGroupFixed()
    if name is not None and name != row.name:
        taken = exceptions.SecurityGroupExists(name=name, project_id=row.project_id)
        if name == DEFAULT:
            raise taken
        before = row.name
        row.name = name
        rows.insert(uow, row, taken)
        in_it: list[Instance | Port] = []
        for query in (_members(row.project_id, before, Instance), *_ports_in(row.project_id, before, Port)):
            in_it += uow.session.scalars(query.with_for_update().execution_options(populate_existing=True))
        for member in in_it:
            member.security_groups = [
                name if security_group == before else security_group for security_group in member.security_groups or ()
            ]
        uow.publish(FiltersChanged(row.project_id))
    if description is not None:
        row.description = description
    row.updated_at = uow.now
    uow.session.flush()
    return _to_objects(uow, [row])[0]


def delete(uow: UnitOfWork, context: RequestContext, group_id: str) -> None:
    """Delete a group and other groups' rules that name it. Raises `SecurityGroupInUse` while a server or a port is in
    it.
    """
    row = locked(uow, context, group_id)
    if row.name == DEFAULT:
        raise exceptions.SecurityGroupFixed(neutron_type="SecurityGroupCannotRemoveDefault")
    _require_unused(uow, row)
    rbac.forget(uow, _TYPE, row.id)
    uow.change(sa.delete(RuleRow).where(sa.or_(RuleRow.security_group_id == row.id, RuleRow.remote_group_id == row.id)))
    uow.session.delete(row)
    uow.session.flush()
    quotas.give_back(uow, row.project_id, {"security_groups": 1})
    uow.publish(FiltersChanged(row.project_id))


def _require_unused(uow: UnitOfWork, row: Row) -> None:
    """Raise `SecurityGroupInUse` while a server or a port is in a group. Its locked row keeps others from joining."""
    server = uow.session.scalars(_members(row.project_id, row.name, Instance.uuid).limit(1)).first()
    if server is not None:
        raise exceptions.SecurityGroupInUse(name=row.name, by=f"server {server} is in it")
    foreign = sa.select(Port.id).where(holds(Port.security_groups, rbac.foreign_name(row.id)))
    for query in (*_ports_in(row.project_id, row.name, Port.id), foreign):
        if (port := uow.session.scalars(query.limit(1)).first()) is not None:
            raise exceptions.SecurityGroupInUse(name=row.name, by=f"port {port} is in it")


# --- rules


def add_rule(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, rule: SecurityGroupRule
) -> SecurityGroupRule:
    """Add a ``rule`` of `nova_lite.network.security_rules.checked`, without id.

    Raises a 400 for a duplicate rule, and `QuotaExceeded`.
    """
    row = locked(uow, context, rule.security_group_id)
    rule.id, rule.security_group_id, rule.created_at = str(uuid.uuid4()), row.id, uow.now
    if rule.remote_group_id is not None:
        remote = locked(uow, context, rule.remote_group_id)
        if remote.project_id != row.project_id:
            raise exceptions.SecurityGroupNotFound(group_id=rule.remote_group_id)
        rule.remote_group_id, rule.remote_group_name = remote.id, remote.name
    if rule.remote_address_group_id is not None:
        address_groups.use(uow, context, rule.remote_address_group_id)
    (group,) = _to_objects(uow, [row])
    for present in group.rules:
        if _meaning(present) == _meaning(rule):
            raise exceptions.SecurityGroupRuleExists(rule_id=present.id)
    _check_quota(uow, conf, row.project_id)
    _insert_rules(uow, [rule])
    _note_change(uow, row)
    return rule


def delete_rule(uow: UnitOfWork, context: RequestContext, rule_id: str) -> None:
    of_rule = sa.select(RuleRow.security_group_id).where(RuleRow.id == rule_id).scalar_subquery()
    # Locked before its rules, as by all that change it.
    group = uow.session.scalars(sa.select(Row).where(Row.id == of_rule).with_for_update()).first()
    row = locked_rule(uow, context, rule_id)
    uow.session.delete(row)
    _note_change(uow, group or uow.session.get_one(Row, row.security_group_id))


def _note_change(uow: UnitOfWork, group: Row) -> None:
    """Give the group a new revision, because its rules have changed, and its members new filters."""
    group.updated_at = uow.now
    uow.session.flush()
    uow.publish(*map(FiltersChanged, {group.project_id, *rbac.users_of_security_group(uow, group.id)}))


def locked_rule(uow: UnitOfWork, context: RequestContext, rule_id: str) -> RuleRow:
    """Return the row of a rule, locked. A missing row of the default group is created."""
    row = uow.session.get(RuleRow, rule_id, with_for_update=True)
    if row is None and any(rule.id == rule_id for rule in default_group(context.project_id or "").rules):
        locked(uow, context, DEFAULT)
        row = uow.session.get(RuleRow, rule_id, with_for_update=True)
    group = None if row is None else uow.session.get(Row, row.security_group_id)
    if row is None or group is None or not (context.is_admin or group.project_id == context.project_id):
        raise exceptions.SecurityGroupRuleNotFound(rule_id=rule_id[:64])
    if_match.check_unchanging(context)
    return row


def _meaning(rule: SecurityGroupRule) -> tuple[object, ...]:
    """Return a value that is equal for rules with the same effect."""
    ports = (_number(rule), rule.port_range_min, rule.port_range_max)
    remote = (_somebody(rule.remote_ip_prefix), rule.remote_group_id, rule.remote_address_group_id)
    return (rule.direction, rule.ethertype, *ports, *remote)


def _number(rule: SecurityGroupRule) -> object:
    """Return the number of the rule's protocol. A protocol that only another version accepts is its own text."""
    try:
        return None if rule.protocol is None else protocol_number(rule.protocol, rule.ethertype)
    except ValueError:
        return rule.protocol


def _somebody(prefix: str | None) -> object:
    """Return the network of a prefix, None for all addresses. A prefix that only a former version accepted is its own
    text.
    """
    if prefix is None:
        return None
    try:
        network = ip.parse_network(prefix, strict=False)
    except ValueError:
        return prefix
    return network if network.prefixlen else None


def _check_quota(uow: UnitOfWork, conf: cfg.ConfigOpts, project_id: str) -> None:
    """Check the quota of rules in all of the project's groups. Other requests of the project wait until the commit."""
    quotas.lock(uow, project_id)
    limit = quotas.limits_of(uow, conf, project_id, None).of_project["security_group_rules"]
    if 0 <= limit <= (has := rules_of(uow, project_id)):
        raise exceptions.QuotaExceeded(overs="security_group_rule", requested=1, used=has, allowed=limit)


def rules_of(uow: UnitOfWork, project_id: str) -> int:
    """Return the number of rules in the project's groups, with the first rules of each group."""
    query = sa.select(sa.func.count(RuleRow.id)).join(Row, Row.id == RuleRow.security_group_id)
    return uow.session.scalar(query.where(Row.project_id == project_id)) or 0


def _insert_rules(uow: UnitOfWork, rules: Iterable[SecurityGroupRule]) -> None:
    uow.session.add_all(RuleRow(**(rows.values_of(rule, RuleRow) | {"created_at": uow.now})) for rule in rules)
    uow.session.flush()


# --- instances


def named(uow: UnitOfWork, project_id: str, references: Iterable[str]) -> list[str]:
    """Return the names of a new server's groups, given by name or id; the default group if none is given.

    The groups stay until the transaction ends. Raises `SecurityGroupUnavailable`, or `SecurityGroupConflict`.
    """
    found = []
    for reference in references:
        if is_default(reference, project_id):
            found.append(DEFAULT)
            continue
        query = sa.select(Row).where(Row.project_id == project_id, sa.or_(Row.id == reference, Row.name == reference))
        row = uow.session.scalars(query.with_for_update()).first()
        if row is None:
            raise exceptions.SecurityGroupUnavailable(name=reference)
        found.append(row.name)
    if len(found) > 1:
        _require_alike(uow, project_id, found)
    return list(dict.fromkeys(found)) or [DEFAULT]


def _require_alike(uow: UnitOfWork, project_id: str, names: Collection[str]) -> None:
    """Raise `SecurityGroupConflict` for groups of one interface of which some are stateful and some are not."""
    if len(names) < 2:
        return
    case = sa.or_(sa.and_(Row.project_id == project_id, Row.name.in_(names)), Row.id.in_(_foreign_ids(names)))
    kinds = set(uow.session.scalars(sa.select(Row.stateful).where(case).distinct()))
    if DEFAULT in names:
        kinds.add(True)  # it may have no row
    if len(kinds) > 1:
        raise exceptions.SecurityGroupConflict(names=", ".join(name.removeprefix(rbac.FOREIGN) for name in names))


def of_instance(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> list[SecurityGroup]:
    """Return the groups of a server's interfaces; none for a server without interfaces."""
    instance = instances.get_row(uow, context, instance_uuid)
    query = sa.select(Port.security_groups).where(Port.instance_uuid == instance_uuid).order_by(Port.position)
    names = [name for own in uow.session.scalars(query) for name in groups_of(own, instance.security_groups)]
    known = {group.name: group for group in _named(uow, instance.project_id, *names)} if names else {}
    return [known[name] for name in dict.fromkeys(names) if name in known]


def groups_of(own: list[str] | None, of_instance: list[str]) -> list[str]:
    """Return the groups of an interface: its own, or else its instance's."""
    return of_instance if own is None else own


def join(uow: UnitOfWork, context: RequestContext, instance_uuid: str, name: str) -> None:
    """Add an instance with all its interfaces to a group. A member stays a member."""
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    check_changeable(context, instance)
    try:
        (found,) = named(uow, instance.project_id, [name])
    except exceptions.SecurityGroupUnavailable as error:
        raise exceptions.SecurityGroupNotFound(group_id=name) from error
    outside = [item for item in _members_of(uow, instance) if found not in (item.security_groups or ())]
    for member in outside:
        member.security_groups = [*(member.security_groups or ()), found]
        _require_alike(uow, instance.project_id, member.security_groups)
    if outside:
        _changed(uow, instance)


def leave(uow: UnitOfWork, context: RequestContext, instance_uuid: str, name: str) -> None:
    """Remove an instance with all its interfaces from a group."""
    instance = instances.get_row(uow, context, instance_uuid, lock=True)
    check_changeable(context, instance)
    known = [group for group in _named(uow, instance.project_id, name) if name in (group.name, group.id)]
    if not known:
        raise exceptions.SecurityGroupNotFound(group_id=name)
    inside = [item for item in _members_of(uow, instance) if known[0].name in (item.security_groups or ())]
    if not inside:
        raise exceptions.SecurityGroupNotAssociated(name=name, instance_id=instance_uuid)
    for member in inside:
        member.security_groups = [
            security_group for security_group in member.security_groups or () if security_group != known[0].name
        ]
    _changed(uow, instance)


def _members_of(uow: UnitOfWork, instance: Instance) -> list[Instance | Port]:
    """Return the rows with a list of groups: the instance, and, locked, its interfaces with groups of their own."""
    query = sa.select(Port).where(Port.instance_uuid == instance.uuid, Port.security_groups.is_not(None))
    query = query.order_by(Port.id).with_for_update().execution_options(populate_existing=True)
    return [instance, *uow.session.scalars(query)]


# --- ports


def names_of(uow: UnitOfWork, context: RequestContext, project_id: str, references: list[str]) -> list[str]:
    """Return the names of a port's groups, given by name or id. Raises `SecurityGroupNotFound`, or
    `SecurityGroupConflict`.

    A port may have groups of other projects by id, if they are shared with its own. An admin may give it any, as
    Octavia gives its own to ports of its users.
    """
    foreign: list[str] = []
    if references:
        query = sa.select(Row.id).where(Row.id.in_(references), Row.project_id != project_id).order_by(Row.id)
        if not context.is_admin:
            query = query.where(Row.id.in_(rbac.shared_with(_TYPE, [project_id])))
        foreign = list(uow.session.scalars(query.with_for_update()))
    own = [reference for reference in references if reference not in foreign]
    try:
        names = [*(named(uow, project_id, own) if own else []), *map(rbac.foreign_name, foreign)]
    except exceptions.SecurityGroupUnavailable as error:
        raise exceptions.SecurityGroupNotFound(group_id=str(error.kwargs.get("name"))[:64]) from error
    if foreign:
        _require_alike(uow, project_id, names)
    return names


def _foreign_ids(names: Iterable[str]) -> list[str]:
    return [name.removeprefix(rbac.FOREIGN) for name in names if name.startswith(rbac.FOREIGN)]


def ids(uow: UnitOfWork, projects: Collection[str], names: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the ids of these projects' groups with these names, by project and name."""
    query = sa.select(Row.project_id, Row.name, Row.id).where(Row.project_id.in_(projects), Row.name.in_(names))
    found = {(project, DEFAULT): default_id(project) for project in projects}
    found |= {(project, rbac.foreign_name(item)): item for project in projects for item in _foreign_ids(names)}
    return found | {(project_id, name): group_id for project_id, name, group_id in uow.session.execute(query)}


def _ports_in(project_id: str, name: str, what: Any) -> list[sa.Select[Any]]:
    """Select the ports with this group of their own: user-made ports, and ports of the project's servers."""
    servers = sa.select(Instance.uuid).where(Instance.project_id == project_id, Instance.deleted == sa.false())
    of_servers = sa.and_(Port.project_id.is_(None), Port.instance_uuid.in_(servers))
    query = sa.select(what).where(holds(Port.security_groups, name)).order_by(Port.id)
    return [query.where(case) for case in (Port.project_id == project_id, of_servers)]


def check_changeable(context: RequestContext, instance: Instance) -> None:
    if instance.locked and not context.is_admin:
        raise exceptions.InstanceIsLocked(instance_id=instance.uuid)


def _changed(uow: UnitOfWork, instance: Instance) -> None:
    instance.updated_at = uow.now
    uow.publish(FiltersChanged(instance.project_id))
    uow.session.flush()


# --- for hosts


_SERVERS = (
    sa.select(
        instances.CONCERNED.c.host,
        Instance.uuid,
        Instance.project_id,
        Instance.security_groups,
        Instance.host == instances.CONCERNED.c.host,
        utcnow(),
    )
    .join(instances.CONCERNED, instances.CONCERNED.c.uuid == Instance.uuid)
    .where(Instance.deleted == sa.false())
)
#: A subquery and no join: for a join PostgreSQL might read all ports in the order of their ids.
_FLOATING = sa.select(FloatingIp.address).where(FloatingIp.port_id == Port.id).scalar_subquery()
_ROUTER = sa.func.coalesce(
    *(
        sa.select(kind.router_id).where(kind.network_id == Port.network_id).scalar_subquery()
        for kind in (RouterInterface, RouterInterface6)
    )
)
_LED = orm.aliased(Port)
#: Further addresses of a port to which floating ones lead: address, floating address and QoS policy of each.
_FURTHER_FLOATING = interfaces.by_primary(
    sa.select(
        sa.func.aggregate_strings(
            _LED.address + "/" + FloatingIp.address + "/" + sa.func.coalesce(FloatingIp.qos_policy_id, ""), " "
        )
    )
    .join(FloatingIp, FloatingIp.port_id == _LED.id)
    .where(_LED.primary_id == Port.id),
    _LED,
).scalar_subquery()
_NETWORK_IS_UP = sa.select(Network.admin_state_up).where(Network.id == Port.network_id).scalar_subquery()
_IS_UP = sa.and_(Port.admin_state_up == sa.true(), sa.true() == _NETWORK_IS_UP)
_QOS = sa.func.coalesce(
    Port.qos_policy_id, sa.select(Network.qos_policy_id).where(Network.id == Port.network_id).scalar_subquery()
)
_FLOATING_QOS = sa.select(FloatingIp.qos_policy_id).where(FloatingIp.port_id == Port.id).scalar_subquery()
_REVISED = sa.select(Network.revised).where(Network.id == Port.network_id).scalar_subquery()
_PORT_COLUMNS = (
    Port.id,
    Port.security_groups,
    _FLOATING,
    Port.network_id,
    _ROUTER,
    _IS_UP,
    _REVISED,
    Port.port_security_enabled,
    Port.address_pairs,
    _QOS,
    _FLOATING_QOS,
    sa.exists().where(PortForwarding.port_id == Port.id),
    Port.dhcp_options,
    interfaces.FURTHER,
    _FURTHER_FLOATING,
)
_PORTS = sa.select(Port.instance_uuid, *_PORT_COLUMNS).where(
    Port.instance_uuid.in_(sa.bindparam("uuids", expanding=True))
)
_IS_SUBPORT = Port.device_owner == SUBPORT
_OF_BOUND = (Port.project_id, _IS_SUBPORT, *_PORT_COLUMNS)
#: Ports that services have on hosts, and subports.
_BOUND = sa.select(Port.bound_host, sa.true(), *_OF_BOUND).where(
    Port.bound_host.in_(sa.bindparam("hosts", expanding=True))
)
#: Subports of servers that move to hosts.
_ARRIVING = (
    sa.select(TrunkSubport.arriving_host, sa.false(), *_OF_BOUND)
    .join(TrunkSubport, TrunkSubport.port_id == Port.id)
    .where(TrunkSubport.arriving_host.in_(sa.bindparam("hosts", expanding=True)))
)
#: Names of groups as text of their column: few distinct values occur in many rows.
_NAMES = sa.cast(sa.func.coalesce(Port.security_groups, Instance.security_groups), sa.Text)
_JOINED = [sa.func.aggregate_strings(item, " ") for item in (Port.address, Port.address6, interfaces.FURTHER)]
#: Addresses by project, list of groups and network, all in one row: reading a row takes longer than parsing an address.
_ADDRESSES = (
    sa.select(
        Instance.project_id,
        _NAMES,
        Port.network_id,
        *_JOINED,
    )
    .join(Instance, Instance.uuid == Port.instance_uuid)
    .where(Instance.project_id.in_(sa.bindparam("projects", expanding=True)), Instance.deleted == sa.false())
    .group_by(Instance.project_id, _NAMES, Port.network_id)
)


#: The same of subports that hosts have.
_OF_SUBPORTS = (
    sa.select(Port.project_id, sa.cast(Port.security_groups, sa.Text), Port.network_id, *_JOINED)
    .where(Port.project_id.in_(sa.bindparam("projects", expanding=True)), _IS_SUBPORT, Port.bound_host.is_not(None))
    .group_by(Port.project_id, sa.cast(Port.security_groups, sa.Text), Port.network_id)
)


class FilterQuery(NamedTuple):
    """Query of a ``host`` for the filter rules of these instances, and of all its other instances of ``projects``."""

    host: str
    instance_uuids: list[str]
    projects: frozenset[str] = frozenset()


class _Server(NamedTuple):
    """A server that concerns a host. ``groups``: names; ``is_here``: it is on that host, not only moving there."""

    uuid: str
    project_id: str
    groups: list[str]
    is_here: bool


class _Port(NamedTuple):
    """An interface. ``groups``: names, if it has groups of its own; ``floating``: the floating address that leads to
    it; ``router_id``: the router of its network, if any; ``is_up``: it and its network are up; ``is_revised``: its
    network's settings have changed; ``is_secure``: it has port security; ``pairs``: its address pairs; ``qos`` and
    ``floating_qos``: QoS policies of it and of its floating address; ``is_forwarded``: a port forwarding leads to it;
    ``dhcp_options``: those of its own; ``further``: its further addresses; ``led``: see `_FURTHER_FLOATING`.
    """

    id: str
    groups: list[str] | None
    floating: str | None
    network_id: str
    router_id: str | None
    is_up: bool
    is_revised: bool
    is_secure: bool
    pairs: list[dict[str, str]] | None
    qos: str | None
    floating_qos: str | None
    is_forwarded: bool
    dhcp_options: list[dict[str, Any]] | None
    further: str | None
    led: str | None

    def further_floating(self) -> list[list[str]]:
        """Return address, floating address and QoS policy of its further addresses to which floating ones lead."""
        return [item.split("/") for item in (self.led or "").split()]


def filters(
    uow: UnitOfWork, host: str, instance_uuids: list[str], projects: frozenset[str] = frozenset()
) -> PortFilters:
    """Return the filter rules of one host, as `filters_together` does."""
    return filters_together(uow, [FilterQuery(host, instance_uuids, projects)])[0]


def filters_together(
    uow: UnitOfWork,
    questions: Sequence[FilterQuery],
    cache: MemberCache | None = None,
    names_cache: MemberCache | None = None,
) -> list[PortFilters]:
    """Return the filter rules of each host, with as many statements as for one. Instances that are gone, or not on,
    moving to, or moving from the host, are in no group.

    Members that ``cache`` knows are not read, and so are names of guests that ``names_cache`` knows.
    """
    hosts = {item.host for item in questions}
    servers, read_at = _servers(uow, hosts)
    ports = _ports(uow, {uuid for concerned in servers.values() for uuid in concerned})
    bound = _add_bound(uow, servers, ports)
    asked = [_asked(question, servers[question.host]) for question in questions]
    groups = _concerned(uow, [server for item in asked for server in item], ports)
    by_name = {(group.project_id, group.name): group for group in groups}
    by_name |= {("", rbac.foreign_name(group.id)): group for group in groups}
    answers = [_in_groups(*item, ports, by_name) for item in zip(questions, asked, strict=True)]
    by_id = {group.id: group for group in groups}
    remote = [_remote(told, by_id) for told in answers]
    complete = _with_members(uow, {group.id: group for item in remote for group in item}, cache)
    routed = router_hosts.for_hosts(uow, {host: _routed(concerned, ports) for host, concerned in servers.items()})
    peers = spanning.peers(uow, hosts, routed)
    revised = {
        host: {port.network_id for uuid in concerned for port in ports.get(uuid, ()) if port.is_revised}
        for host, concerned in servers.items()
    }
    known = router_hosts.networks(uow, {network_id for ids in revised.values() for network_id in ids})
    named = {item.host: _named_projects(item, servers[item.host]) for item in questions}
    names = guest_names.by_project(uow, {project for projects in named.values() for project in projects}, names_cache)
    forwarded = forwarding_hosts.for_hosts(uow, _forwarded(servers, ports))
    used = {policy for mine in ports.values() for port in mine for policy in (port.qos, port.floating_qos) if policy}
    used |= {item[2] for mine in ports.values() for port in mine for item in port.further_floating() if item[2]}
    used |= {policy for item in forwarded.values() for policy in item.policies.values()}
    limits = qos.limits(uow, used)
    for question, told, named_by_rules in zip(questions, answers, remote, strict=True):
        here = [port for uuid in servers[question.host] for port in ports.get(uuid, ())]
        reached = {port.network_id for port in here}
        reached |= {network.id for router in routed[question.host] for network in router.networks}
        told.groups |= {group.id: _reached(complete[group.id], reached) for group in named_by_rules}
        if open_ports := bound.intersection(told.instances):
            told.groups[OPEN.id] = OPEN
            told.instances |= {port_id: [OPEN.id] for port_id in open_ports}
        told.floating = _floating(servers[question.host], ports)
        told.peers = peers[question.host]
        told.routers = routed[question.host]
        told.networks = {network_id: known[network_id] for network_id in revised[question.host] if network_id in known}
        told.pairs = {port.id: port.pairs for port in here if port.pairs}
        told.dhcp_options = {port.id: port.dhcp_options for port in here if port.dhcp_options}
        told.further = {port.id: port.further.split(" ") for port in here if port.further}
        told.unfiltered = sorted(port.id for port in here if port.is_up and not port.is_secure)
        told.qos = {port.id: limits[port.qos] for port in here if port.qos in limits}
        told.floating_qos = {
            port.floating: limits[port.floating_qos] for port in here if port.floating and port.floating_qos in limits
        }
        told.floating_qos |= {
            floating: limits[policy]
            for port in here
            for _, floating, policy in port.further_floating()
            if policy in limits
        }
        if question.host in forwarded:
            told.forwardings = forwarded[question.host].forwardings
            policies = forwarded[question.host].policies.items()
            told.floating_qos |= {address: limits[policy] for address, policy in policies if policy in limits}
        told.names = guest_names.on_networks(names, named[question.host], reached)
        told.read_at = read_at
    return answers


def _named_projects(question: FilterQuery, servers: Mapping[str, _Server]) -> set[str]:
    """Return the projects whose guests' names a host gets: with a build command, those of its servers."""
    return set(question.projects) or {server.project_id for server in servers.values()}


def _servers(uow: UnitOfWork, hosts: Collection[str]) -> tuple[dict[str, dict[str, _Server]], datetime.datetime]:
    """Return the servers by host and uuid, and the time."""
    found: dict[str, dict[str, _Server]] = {host: {} for host in hosts}
    read = uow.rows(_SERVERS, {"hosts": hosts}).all()
    for host, *columns, _ in read:
        server = _Server(*columns)
        found[host][server.uuid] = server
    return found, read[0][-1] if read else uow.now


def _ports(uow: UnitOfWork, uuids: Collection[str]) -> dict[str, list[_Port]]:
    """Return the interfaces by instance."""
    found: dict[str, list[_Port]] = {}
    for instance_uuid, *columns in uow.rows(_PORTS, {"uuids": uuids}).all() if uuids else ():
        found.setdefault(instance_uuid, []).append(_Port(*columns))
    return found


def _add_bound(uow: UnitOfWork, servers: dict[str, dict[str, _Server]], ports: dict[str, list[_Port]]) -> set[str]:
    """Add the ports that services have on these hosts, and subports, each like a server with the port's id.

    Only wings have such ports. Return the ids of those of services, which are open.
    """
    found: set[str] = set()
    if not uow.conf.wings:
        return found
    values = {"hosts": sorted(servers)}
    for host, is_here, project_id, is_subport, *columns in (*uow.rows(_BOUND, values), *uow.rows(_ARRIVING, values)):
        port = _Port(*columns)
        servers[host].setdefault(port.id, _Server(port.id, project_id, [], is_here))
        ports[port.id] = [port if is_subport else port._replace(groups=None)]
        if not is_subport:
            found.add(port.id)
    return found


def _asked(question: FilterQuery, servers: Mapping[str, _Server]) -> list[_Server]:
    theirs = [uuid for uuid, server in servers.items() if server.is_here and server.project_id in question.projects]
    return [servers[uuid] for uuid in dict.fromkeys([*question.instance_uuids, *theirs]) if uuid in servers]


def _in_groups(
    question: FilterQuery,
    asked: Iterable[_Server],
    ports: Mapping[str, list[_Port]],
    by_name: Mapping[tuple[str, str], SecurityGroup],
) -> PortFilters:
    """Return the groups of the servers and their interfaces, and those groups' definitions."""
    told = PortFilters(instances={uuid: [] for uuid in question.instance_uuids})

    def ids_of(project_id: str, names: Iterable[str]) -> list[str]:
        keys = (("", name) if name.startswith(rbac.FOREIGN) else (project_id, name) for name in names)
        mine = [by_name[key] for key in keys if key in by_name]
        told.groups.update({group.id: group for group in mine})
        return [group.id for group in mine]

    for server in asked:
        told.instances[server.uuid] = ids_of(server.project_id, server.groups)
        for port in ports.get(server.uuid, ()):
            if not port.is_up:
                told.ports[port.id] = []  # without a rule, nothing passes
            elif port.groups is not None:
                told.ports[port.id] = ids_of(server.project_id, port.groups)
    return told


def _remote(told: PortFilters, by_id: Mapping[str, SecurityGroup]) -> list[SecurityGroup]:
    """Return the groups that rules of a host's groups name."""
    named_by_rules = {rule.remote_group_id or "" for group in told.groups.values() for rule in group.rules}
    return [by_id[group_id] for group_id in named_by_rules if group_id in by_id]


def _with_members(
    uow: UnitOfWork, groups: Mapping[str, SecurityGroup], cache: MemberCache | None
) -> dict[str, SecurityGroup]:
    """Return copies of the groups, by id, with their members' addresses. Hosts whose rules do not name a group get it
    without members.
    """
    projects = {group.project_id for group in groups.values()}
    members = member_versions.through(uow, projects, cache, _members_by_name)
    return {
        group.id: msgspec.structs.replace(
            group,
            members_by_network={
                network_id: NetworkMembers(members=addresses)
                for network_id, addresses in members[group.project_id].get(group.name, {}).items()
            },
        )
        for group in groups.values()
    }


def _reached(group: SecurityGroup, network_ids: Collection[str]) -> SecurityGroup:
    """Return a group with its members on these networks."""
    found = {key: item for key, item in (group.members_by_network or {}).items() if key in network_ids}
    return msgspec.structs.replace(group, members_by_network=found)


def _members_by_name(uow: UnitOfWork, projects: Collection[str]) -> dict[str, Members]:
    """Return the sorted addresses of the members of all groups of these projects, by project, name of the group, and
    network.
    """
    found: dict[str, dict[str, dict[str, list[str]]]] = {project_id: {} for project_id in projects}
    queries = (_ADDRESSES, _OF_SUBPORTS) if uow.conf.wings else (_ADDRESSES,)
    read = [row for query in queries for row in uow.rows(query, {"projects": projects})]
    for project_id, names, network_id, *addresses in read:
        told = [address for item in addresses if item is not None for address in item.split(" ")]
        for name in json.loads(names):
            found[project_id].setdefault(name, {}).setdefault(network_id, []).extend(told)
    for members in (
        members for by_name in found.values() for by_network in by_name.values() for members in by_network.values()
    ):
        members.sort()
    return {**found}


def _routed(servers: Iterable[str], ports: Mapping[str, list[_Port]]) -> dict[str, set[str]]:
    """Return, by router, its networks that these servers have interfaces on."""
    found: dict[str, set[str]] = {}
    for port in (port for server in servers for port in ports.get(server, ())):
        if port.router_id is not None:
            found.setdefault(port.router_id, set()).add(port.network_id)
    return found


def _floating(servers: Mapping[str, _Server], ports: Mapping[str, list[_Port]]) -> dict[str, str]:
    """Return the floating addresses of all servers on the host, queried or not."""
    here = [port for server in servers.values() if server.is_here for port in ports.get(server.uuid, ())]
    first = {port.id: port.floating for port in here if port.floating is not None}
    return first | {
        floating_key(port.id, fixed): floating for port in here for fixed, floating, _ in port.further_floating()
    }


def _forwarded(servers: Mapping[str, Mapping[str, _Server]], ports: Mapping[str, list[_Port]]) -> dict[str, set[str]]:
    """Return, by host, the interfaces with port forwardings, also of servers that move there."""
    found = {
        host: {port.id for uuid in concerned for port in ports.get(uuid, ()) if port.is_forwarded}
        for host, concerned in servers.items()
    }
    return {host: mine for host, mine in found.items() if mine}


def hosts(uow: UnitOfWork, projects: Collection[str], changed: Collection[str]) -> list[str]:
    """Return hosts that are up and have servers of ``projects``, or of the project of a ``changed`` instance. The
    instance's own host already knows.
    """
    counts = sa.select(Instance.project_id, sa.func.count()).where(Instance.uuid.in_(changed))
    of_changed = {row[0]: row[1] for row in uow.session.execute(counts.group_by(Instance.project_id))}
    whole = {*projects, *(project_id for project_id, count in of_changed.items() if count > 1)}
    # Projects by name, so that the query reads the index of projects and not the whole table.
    query = sa.select(Instance.host).where(
        Instance.project_id.in_({*whole, *of_changed}), Instance.deleted == sa.false()
    )
    query = query.where(sa.or_(Instance.project_id.in_(whole), Instance.uuid.not_in(changed)))
    query = query.where(Instance.host.is_not(None))
    down = sa.select(Service.host).where(Service.binary == services.COMPUTE, Service.up.is_(False))
    query = query.where(Instance.host.not_in(down))
    found = set(uow.session.scalars(query.distinct()))
    if uow.conf.wings:
        bound = sa.select(Port.bound_host).where(Port.project_id.in_(whole), Port.bound_host.is_not(None))
        found |= set(uow.session.scalars(bound.distinct()))
    return sorted(host for host in found if host is not None)


# --- rows


_FIELDS = rows.shared_fields(SecurityGroup, Row)
_GROUPS = sa.select(*(getattr(Row, name) for name in _FIELDS))
_PROJECTS: Any = sa.bindparam("projects", expanding=True)
_GROUP_NAMES: Any = sa.bindparam("names", expanding=True)
_USED = orm.aliased(Row)
_FOREIGN_GROUPS: Any = sa.bindparam("foreign", expanding=True)
#: Groups with one of these names, and groups of other projects; and groups that rules of both name.
_GROUPS_OF = _GROUPS.where(
    sa.or_(
        sa.and_(
            Row.project_id.in_(_PROJECTS),
            sa.or_(
                Row.name.in_(_GROUP_NAMES),
                Row.id.in_(
                    sa.select(RuleRow.remote_group_id)
                    .join(_USED, _USED.id == RuleRow.security_group_id)
                    .where(_USED.project_id.in_(_PROJECTS), _USED.name.in_(_GROUP_NAMES))
                ),
            ),
        ),
        Row.id.in_(_FOREIGN_GROUPS),
        Row.id.in_(sa.select(RuleRow.remote_group_id).where(RuleRow.security_group_id.in_(_FOREIGN_GROUPS))),
    ),
)
_RULE_FIELDS = rows.shared_fields(SecurityGroupRule, RuleRow)
_RULES = (
    sa.select(*(getattr(RuleRow, name) for name in _RULE_FIELDS), Row.name)
    .outerjoin(Row, Row.id == RuleRow.remote_group_id)
    .where(RuleRow.security_group_id.in_(sa.bindparam("groups", expanding=True)))
    .order_by(RuleRow.created_at, RuleRow.id)
)


def _concerned(
    uow: UnitOfWork, servers: Collection[_Server], ports: Mapping[str, Sequence[_Port]]
) -> list[SecurityGroup]:
    """Return the groups of these servers and their ports, and groups that those groups' rules name. Default groups are
    included, with or without a row.
    """
    projects = {server.project_id for server in servers}
    names = {name for server in servers for name in server.groups} | {
        name for server in servers for port in ports.get(server.uuid, ()) for name in port.groups or ()
    }
    those = uow.rows(_GROUPS_OF, {"projects": projects, "names": names | {DEFAULT}, "foreign": _foreign_ids(names)})
    found = _with_rules(uow, [SecurityGroup(**dict(zip(_FIELDS, row, strict=True))) for row in those])
    named = address_groups.expanded(uow, [rule for group in found for rule in group.rules])
    rules_of: dict[str, list[SecurityGroupRule]] = {}
    for rule in named:
        rules_of.setdefault(rule.security_group_id, []).append(rule)
    for group in found:
        group.rules = rules_of.get(group.id, [])
        group.tags = None
        for rule in group.rules:
            rule.tags = rule.created_at = None
            if rule.protocol is not None:
                rule.protocol = _COMMON.get(_number(rule), rule.protocol)
    with_default = {group.project_id for group in found if group.name == DEFAULT}
    return found + [default_group(project) for project in projects if project and project not in with_default]


def _to_objects(uow: UnitOfWork, found: Collection[Row]) -> list[SecurityGroup]:
    return _with_rules(uow, [rows.to_object(SecurityGroup, row) for row in found])


def _with_rules(uow: UnitOfWork, found: Collection[SecurityGroup]) -> list[SecurityGroup]:
    groups = {group.id: group for group in found}
    for row in uow.rows(_RULES, {"groups": groups}).all() if groups else ():
        rule = SecurityGroupRule(**dict(zip(_RULE_FIELDS, row, strict=False)), remote_group_name=row[-1])
        groups[rule.security_group_id].rules.append(rule)
    return list(groups.values())


def locked(uow: UnitOfWork, context: RequestContext, group_id: str) -> Row:
    """Return the group's row by id or name, locked. A missing row of the default group is created."""
    if context.project_id and is_default(group_id, context.project_id):
        _make_default(uow, context.project_id)
        group_id = DEFAULT
    own = sa.and_(Row.project_id == (context.project_id or ""), Row.name == group_id)
    query = sa.select(Row).where(sa.or_(Row.id == group_id, own)).with_for_update()
    found = uow.session.scalars(query.execution_options(populate_existing=True)).all()
    visible = [row for row in found if context.is_admin or row.project_id == context.project_id]
    if not visible:
        raise exceptions.SecurityGroupNotFound(group_id=group_id[:64])
    found_one = next((row for row in visible if row.id == group_id), visible[0])
    if_match.check(context, found_one)
    return found_one


def _make_default(uow: UnitOfWork, project_id: str) -> None:
    group = default_group(project_id)
    values = {**rows.values_of(group, Row), "user_id": "", "created_at": uow.now, "updated_at": None}
    if insert_unless_taken(uow, Row, values):
        _insert_rules(uow, group.rules)


def _members(project_id: str, name: str, what: Any) -> sa.Select[Any]:
    """Select the servers in a group, oldest first."""
    mine = (Instance.project_id == project_id, Instance.deleted == sa.false())
    return sa.select(what).where(*mine, holds(Instance.security_groups, name)).order_by(Instance.id)
