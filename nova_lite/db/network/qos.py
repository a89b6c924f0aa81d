"""QoS policies: limits and marks of the traffic of ports, networks and floating addresses.

A port has its own policy, or else that of its network. Hosts know no policies. They get the limits of each port and
floating address (`limits`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.core.models import FloatingIp, Instance, Network, Port
from nova_lite.db.core.models import QosPolicy as Row
from nova_lite.db.network import rbac
from nova_lite.objects import QosLimits, QosPolicy
from nova_lite.objects.network_api_resources import BANDWIDTH_LIMIT, DSCP_MARKING, EVERYBODY

_TYPE = "qos_policy"

#: Number of policies of a project: a list has all of them.
MAX_POLICIES = 100


def list_(uow: UnitOfWork, context: RequestContext, ids: Collection[str] | None = None) -> list[QosPolicy]:
    """Return the policies that the caller may see. ``ids``: only of these."""
    query = sa.select(Row).where(rbac.visible(context, _TYPE)).order_by(Row.id)
    query = query if ids is None else query.where(Row.id.in_(ids))
    shared = rbac.shared_ids(uow, context, _TYPE)
    return [_shown(row, row.id in shared) for row in uow.session.scalars(query)]


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, policy: QosPolicy) -> QosPolicy:
    """Create a policy. ``policy.shared``: for all projects. Raises `QuotaExceeded`, or `QosPolicyDefaultAlreadyExists`
    if the project has a default already.
    """
    rbac.require_room(uow, _TYPE, policy.project_id, MAX_POLICIES)
    row = Row(**(rows.values_of(policy, Row) | {"created_at": uow.now, "updated_at": None}))
    row.default_of = policy.project_id if policy.is_default else None
    rows.insert(uow, row, exceptions.QosPolicyDefaultAlreadyExists(project_id=policy.project_id))
    if policy.shared:
        _share(uow, context, row)
    return _shown(row, policy.shared)


def update(uow: UnitOfWork, context: RequestContext, policy_id: str, changes: dict[str, Any]) -> QosPolicy:
    """Set ``name``, ``description``, ``is_default`` and ``shared``; ``add_rule``: a rule; ``change_rule``: fields of
    the rule with this id; ``remove_rule``: an id.

    Raises `QoSRulesConflict` for a second rule of its type and direction, or `QosRuleNotFound`.
    """
    row = locked(uow, context, policy_id)
    for name in changes.keys() & {"name", "description"}:
        setattr(row, name, changes[name])
    if changes.get("shared"):
        _share(uow, context, row)
    elif "shared" in changes and rbac.is_shared(uow, _TYPE, row.id, None):
        rbac.unshare(uow, _TYPE, row.id)
    if changes.keys() & {"add_rule", "change_rule", "remove_rule"}:
        row.rules = _changed_rules(row, changes)
        users = rbac.users_of_qos_policy(uow, row.id) | _on_networks(uow, row.id)
        uow.publish(*(FiltersChanged(project_id) for project_id in users if project_id))
    row.updated_at = uow.now
    if "is_default" in changes:
        row.default_of = row.project_id if changes["is_default"] else None
    rows.insert(uow, row, exceptions.QosPolicyDefaultAlreadyExists(project_id=row.project_id))
    return _shown(row, rbac.is_shared(uow, _TYPE, row.id, context.project_id))


def _on_networks(uow: UnitOfWork, policy_id: str) -> set[str]:
    """Return the projects with ports on networks that have the policy."""
    owner = sa.func.coalesce(Port.project_id, Instance.project_id)
    query = sa.select(owner).outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    query = query.join(Network, Network.id == Port.network_id).where(Network.qos_policy_id == policy_id)
    return {project_id for project_id in uow.session.scalars(query) if project_id is not None}


def _share(uow: UnitOfWork, context: RequestContext, row: Row) -> None:
    rbac.check_everybody(context, EVERYBODY)
    rbac.share(uow, _TYPE, row.id, row.project_id)


def _changed_rules(row: Row, changes: dict[str, Any]) -> list[dict[str, Any]]:
    rules = {rule["id"]: rule for rule in row.rules if rule["id"] != changes.get("remove_rule")}
    wanted = changes.get("add_rule")
    if (change := changes.get("change_rule")) is not None:
        if change["id"] not in rules:
            raise exceptions.QosRuleNotFound(rule_id=change["id"][:64], policy_id=row.id)
        wanted = rules[change["id"]] | change
    if wanted is None:
        return list(rules.values())
    for rule in rules.values():
        is_alike = (rule["type"], rule.get("direction")) == (wanted["type"], wanted.get("direction"))
        if rule["id"] != wanted["id"] and is_alike:
            raise exceptions.QoSRulesConflict(new_rule_type=wanted["type"], rule_id=rule["id"], policy_id=row.id)
    return list((rules | {wanted["id"]: wanted}).values())


def delete(uow: UnitOfWork, context: RequestContext, policy_id: str) -> None:
    """Delete a policy. Raises `QosPolicyInUse` while a network, port or floating address has it."""
    row = locked(uow, context, policy_id)
    for kind, model in (("network", Network), ("port", Port), ("floatingip", FloatingIp)):
        query = sa.select(model.id).where(model.qos_policy_id == row.id).order_by(model.id).limit(1)
        if (user := uow.session.scalars(query).first()) is not None:
            raise exceptions.QosPolicyInUse(policy_id=row.id, object_type=kind, object_id=user)
    rbac.forget(uow, _TYPE, row.id)
    uow.session.delete(row)
    uow.session.flush()


def locked(uow: UnitOfWork, context: RequestContext, policy_id: str) -> Row:
    """Return the row of a policy of the caller's own, locked."""
    row: Row = rbac.locked(uow, context, _TYPE, policy_id, exceptions.QosPolicyNotFound(policy_id=policy_id[:64]))
    return row


def _shown(row: Row, is_shared: bool) -> QosPolicy:
    return rows.to_object(QosPolicy, row, is_default=row.default_of is not None, shared=is_shared)


# --- for networks, ports and floating addresses


def check(uow: UnitOfWork, context: RequestContext, wanted: str | None, present: str | None = None) -> None:
    """Check that the caller may replace the policy ``present`` by ``wanted``, which then stays until the commit.

    Raises `QosPolicyNotFound`, or `PolicyRemoveAuthorizationError` if the caller may not use the present policy,
    which an admin has set.
    """
    for policy_id in sorted(filter(None, {wanted, present})) if wanted != present else ():
        row = uow.session.get(Row, policy_id, with_for_update=True, populate_existing=True)
        own = row is not None and (context.is_admin or row.project_id == context.project_id)
        if own or (row is not None and rbac.is_shared(uow, _TYPE, row.id, context.project_id)):
            continue
        if policy_id == wanted:
            raise exceptions.QosPolicyNotFound(policy_id=policy_id[:64])
        raise exceptions.PolicyRemoveAuthorizationError(policy_id=policy_id)


def default_of(uow: UnitOfWork, project_id: str | None) -> str | None:
    """Return the policy of new networks of a project, which then stays until the commit."""
    found = uow.session.scalars(sa.select(Row.id).where(Row.default_of == (project_id or ""))).first()
    is_there = found and uow.session.get(Row, found, with_for_update=True, populate_existing=True)
    return found if is_there else None


# --- for hosts


def limits(uow: UnitOfWork, policy_ids: Collection[str]) -> dict[str, QosLimits]:
    """Return the limits of these policies that have some, by id."""
    query = sa.select(Row.id, Row.rules).where(Row.id.in_(policy_ids))
    found = {policy_id: _limits(rules) for policy_id, rules in uow.session.execute(query)} if policy_ids else {}
    return {policy_id: item for policy_id, item in found.items() if item != QosLimits()}


def _limits(rules: Iterable[dict[str, Any]]) -> QosLimits:
    fields: dict[str, Any] = {}
    for rule in rules:
        if rule["type"] == BANDWIDTH_LIMIT:
            fields[rule["direction"]] = rule["max_kbps"], rule["max_burst_kbps"]
        elif rule["type"] == DSCP_MARKING:
            fields["dscp"] = rule["dscp_mark"]
    return QosLimits(**fields)
