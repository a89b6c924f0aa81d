"""Policies that let other projects use a project's networks, address and QoS resources, and security groups.

A resource of this module's kinds is ``shared`` with a project if a policy names the project, or all projects.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import if_match, quotas, rows
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import (
    AddressGroup,
    AddressScope,
    FloatingIp,
    FloatingIpPool,
    Instance,
    Network,
    Port,
    QosPolicy,
    Router,
    SecurityGroup,
    SecurityGroupRule,
    SubnetPool,
)
from nova_lite.db.core.models import RbacPolicy as Row
from nova_lite.db.core.statements import holds
from nova_lite.objects import RbacPolicy
from nova_lite.objects.network_api_resources import EVERYBODY, EXTERNAL, SHARED
from nova_lite.objects.security_group import DEFAULT

T = TypeVar("T", bound=msgspec.Struct)

#: Name under which a project's own limit is stored, and the default.
RESOURCE = "rbac_policies"
DEFAULT_LIMIT = 10

#: Beginning of the entry of another project's group in a port's list of names. No name has such a character.
FOREIGN = "\n"

#: Models of the kinds of resources that can be shared.
MODELS: Mapping[str, Any] = {
    "network": Network,
    "subnetpool": SubnetPool,
    "address_scope": AddressScope,
    "address_group": AddressGroup,
    "qos_policy": QosPolicy,
    "security_group": SecurityGroup,
}
_TITLES = {"subnetpool": "subnet pool", "qos_policy": "QoS policy"}


def shared_with(object_type: str, projects: Collection[str], action: str = SHARED) -> sa.Select[Any]:
    """Select the ids of resources of a kind that these projects may use by a policy."""
    targets = [EVERYBODY, *projects]
    return sa.select(Row.object_id).where(Row.target.in_(targets), Row.object_type == object_type, Row.action == action)


def is_shared(uow: UnitOfWork, object_type: str, object_id: str, project_id: str | None) -> bool:
    """Return whether a policy lets the project use the resource. None: any project."""
    projects = [] if project_id is None else [project_id]
    query = shared_with(object_type, projects).where(Row.object_id == object_id)
    return uow.session.scalars(query.limit(1)).first() is not None


def visible(context: RequestContext, object_type: str) -> sa.ColumnElement[bool]:
    """Build the condition of a resource that the caller may see: its own, or a shared one. Admins see all."""
    model, project_id = MODELS[object_type], context.project_id or ""
    if context.is_admin:
        return sa.true()
    return sa.or_(model.project_id == project_id, model.id.in_(shared_with(object_type, [project_id])))


def shared_ids(uow: UnitOfWork, context: RequestContext, object_type: str) -> set[str]:
    """Return the ids of the resources that are shared with the caller's project."""
    return set(uow.session.scalars(shared_with(object_type, [context.project_id or ""])))


def visible_rows(
    uow: UnitOfWork, context: RequestContext, object_type: str, made: type[T], ids: Collection[str] | None
) -> list[T]:
    """Return the resources that the caller may see, as objects of the class ``made``. ``ids``: only of these."""
    model = MODELS[object_type]
    query = sa.select(model).where(visible(context, object_type)).order_by(model.id)
    query = query if ids is None else query.where(model.id.in_(ids))
    shared = shared_ids(uow, context, object_type)
    return [rows.to_object(made, row, shared=row.id in shared) for row in uow.session.scalars(query)]


def locked(
    uow: UnitOfWork, context: RequestContext, object_type: str, object_id: str, unknown: exceptions.NovaLiteException
) -> Any:
    """Return the row of a resource of the caller's own, locked. Raises `Forbidden` for a shared one, else ``unknown``.

    An admin may change all.
    """
    row = uow.session.get(MODELS[object_type], object_id, with_for_update=True, populate_existing=True)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        if row is not None and is_shared(uow, object_type, object_id, context.project_id):
            title = _TITLES.get(object_type, object_type.replace("_", " "))
            raise exceptions.Forbidden(f"The {title} belongs to another project, which may change it.")
        raise unknown
    if_match.check(context, row)
    return row


def require_room(uow: UnitOfWork, object_type: str, project_id: str, maximum: int) -> None:
    """Lock the project's quotas. Raises `QuotaExceeded` if it has so many resources already."""
    model = MODELS[object_type]
    quotas.lock(uow, project_id)
    has = uow.session.scalar(sa.select(sa.func.count(model.id)).where(model.project_id == project_id)) or 0
    if has >= maximum:
        raise exceptions.QuotaExceeded(overs=object_type, requested=1, used=has, allowed=maximum)


def share(uow: UnitOfWork, object_type: str, object_id: str, project_id: str, action: str = SHARED) -> None:
    """Share a resource with all projects, as its owner. A shared one stays so."""
    if action == SHARED and is_shared(uow, object_type, object_id, None):
        return
    values = {"object_type": object_type, "object_id": object_id, "target": EVERYBODY, "action": action}
    uow.session.add(Row(id=str(uuid.uuid4()), project_id=project_id, created_at=uow.now, **values))
    uow.session.flush()


def unshare(uow: UnitOfWork, object_type: str, object_id: str) -> None:
    """Delete the policy that shares a resource with all projects. Raises `RbacPolicyInUse` while other projects use
    it."""
    mine = (Row.object_type == object_type, Row.object_id == object_id, Row.action == SHARED, Row.target == EVERYBODY)
    row = uow.session.scalars(sa.select(Row).where(*mine).with_for_update()).first()
    if row is None:
        raise exceptions.InvalidInput(
            reason=f"no RBAC policy shares {object_id} with all projects. Delete those for single projects instead"
        )
    _end(uow, row)
    uow.session.delete(row)
    uow.session.flush()


def forget(uow: UnitOfWork, object_type: str, object_id: str) -> None:
    """Delete the policies of a resource that is deleted."""
    uow.change(sa.delete(Row).where(Row.object_type == object_type, Row.object_id == object_id))


# --- policies


def list_(uow: UnitOfWork, context: RequestContext, ids: Collection[str] | None = None) -> list[RbacPolicy]:
    """Return the policies that the caller's project has made; for an admin, all. ``ids``: only of these."""
    mine = sa.true() if context.is_admin else Row.project_id == (context.project_id or "")
    query = sa.select(Row).where(mine).order_by(Row.id)
    query = query if ids is None else query.where(Row.id.in_(ids))
    return [rows.to_object(RbacPolicy, row) for row in uow.session.scalars(query)]


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, policy: RbacPolicy) -> RbacPolicy:
    """Create a policy of a resource of the caller's own. Raises a 400 for another's, and a 409 for a repeated one."""
    target = _locked_object(uow, context, policy)
    check_everybody(context, policy.target)
    check_scope(uow, target, policy.target)
    if isinstance(target, SecurityGroup) and target.name == DEFAULT:
        raise exceptions.InvalidInput(reason="the default security group of a project is not shared")
    quotas.lock(uow, policy.project_id)
    limit = quotas.limits_of(uow, conf, policy.project_id, None).of_project.get(RESOURCE, DEFAULT_LIMIT)
    has = used(uow, policy.project_id)
    if 0 <= limit <= has:
        raise exceptions.QuotaExceeded(overs="rbac_policy", requested=1, used=has, allowed=limit)
    row = Row(**(rows.values_of(policy, Row) | {"created_at": uow.now, "updated_at": None}))
    rows.insert(uow, row, exceptions.RbacPolicyExists(object_id=target.id))
    return rows.to_object(RbacPolicy, row)


def used(uow: UnitOfWork, project_id: str) -> int:
    return uow.session.scalar(sa.select(sa.func.count(Row.id)).where(Row.project_id == project_id)) or 0


def check_everybody(context: RequestContext, target: str) -> None:
    if target == EVERYBODY and not context.is_admin:
        raise exceptions.Forbidden("Only an admin may share a resource with all projects (target_tenant '*').")


def check_scope(uow: UnitOfWork, shared: Any, target: str) -> None:
    """Check that the target may use the address scope of a subnet pool that is to be shared with it."""
    if not isinstance(shared, SubnetPool) or shared.address_scope_id is None:
        return
    scope = uow.session.get_one(AddressScope, shared.address_scope_id)
    project_id = None if target == EVERYBODY else target
    if scope.project_id != project_id and not is_shared(uow, "address_scope", scope.id, project_id):
        raise exceptions.InvalidInput(
            reason=f"subnet pool {shared.id} is in address scope {scope.id}, which is not shared with {target[:64]}: "
            "share the scope first"
        )


def update(uow: UnitOfWork, context: RequestContext, policy_id: str, changes: dict[str, Any]) -> RbacPolicy:
    """Set the ``target``. Raises `RbacPolicyInUse` while the former target uses the resource."""
    row = _locked(uow, context, policy_id)
    target = changes.get("target", row.target)
    if target != row.target:
        check_everybody(context, target)
        check_scope(uow, uow.session.get(MODELS[row.object_type], row.object_id), target)
        if target != EVERYBODY:
            _end(uow, row)
        row.target, row.updated_at = target, uow.now
        rows.insert(uow, row, exceptions.RbacPolicyExists(object_id=row.object_id))
    return rows.to_object(RbacPolicy, row)


def delete(uow: UnitOfWork, context: RequestContext, policy_id: str) -> None:
    """Delete a policy. Raises `RbacPolicyInUse` while its target uses the resource."""
    row = _locked(uow, context, policy_id)
    _end(uow, row)
    uow.session.delete(row)
    uow.session.flush()


def _locked(uow: UnitOfWork, context: RequestContext, policy_id: str) -> Row:
    row = uow.session.get(Row, policy_id, with_for_update=True, populate_existing=True)
    if row is None or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.RbacPolicyNotFound(policy_id=policy_id[:64])
    return row


def _locked_object(uow: UnitOfWork, context: RequestContext, policy: RbacPolicy) -> Any:
    """Return a resource of the caller's own, locked. Users of it lock it, too."""
    object_type, object_id = policy.object_type, policy.object_id
    model = MODELS.get(object_type)
    if model is None:
        raise exceptions.InvalidInput(reason=f"object_type is one of {', '.join(MODELS)}, not {object_type[:64]}")
    if policy.action == EXTERNAL:
        model = FloatingIpPool
    row = uow.session.get(model, object_id, with_for_update=True, populate_existing=True)
    if row is None and policy.action == EXTERNAL and uow.session.get(Network, object_id) is not None:
        raise exceptions.InvalidInput(reason=f"network {object_id} is not external: set router:external first")
    is_segment = isinstance(row, Network) and row.parent_id is not None
    if row is None or is_segment or not (context.is_admin or row.project_id == context.project_id):
        raise exceptions.RbacObjectNotFound(object_type=object_type, object_id=object_id[:64])
    if row.project_id is None and not is_shared(uow, object_type, object_id, None):
        raise exceptions.InvalidInput(reason=f"all projects share network {object_id} without a policy")
    return row


def _end(uow: UnitOfWork, row: Row) -> None:
    """Prepare the end of a policy. A network that was created for all projects becomes that of the policy's project.

    Raises `RbacPolicyInUse` as `_check_unused`.
    """
    _check_unused(uow, row)
    if row.object_type == "network" and row.target == EVERYBODY and row.action == SHARED:
        links = sa.or_(Network.id == row.object_id, Network.parent_id == row.object_id)
        for link in uow.session.scalars(sa.select(Network).where(links, Network.project_id.is_(None))):
            link.project_id = row.project_id


def _check_unused(uow: UnitOfWork, row: Row) -> None:
    """Raise `RbacPolicyInUse` if a project uses the resource that may do so by this policy only."""
    is_external = row.action == EXTERNAL
    model = FloatingIpPool if is_external else MODELS[row.object_type]
    owner = uow.session.get(model, row.object_id, with_for_update=True)
    if owner is None:
        return
    others = set(
        uow.session.scalars(
            sa.select(Row.target).where(
                Row.object_type == row.object_type,
                Row.object_id == row.object_id,
                Row.id != row.id,
                Row.action == row.action,
            )
        )
    )
    if EVERYBODY in others:
        return
    find = _users_of_external if is_external else _USERS[row.object_type]
    users = find(uow, row.object_id) - others - {owner.project_id or row.project_id}
    if users if row.target == EVERYBODY else row.target in users:
        raise exceptions.RbacPolicyInUse(object_id=row.object_id)


def _users_of_network(uow: UnitOfWork, network_id: str) -> set[str]:
    owner = sa.func.coalesce(Port.project_id, Instance.project_id)
    query = sa.select(owner).outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    links = [network_id, *uow.session.scalars(sa.select(Network.id).where(Network.parent_id == network_id))]
    return set(uow.session.scalars(query.where(Port.network_id.in_(links), owner.is_not(None)).distinct()))


def _users_of_external(uow: UnitOfWork, pool_id: str) -> set[str]:
    found = set(uow.session.scalars(sa.select(FloatingIp.project_id).where(FloatingIp.pool_id == pool_id)))
    return found | set(uow.session.scalars(sa.select(Router.project_id).where(Router.pool_id == pool_id)))


def _users_of_pool(uow: UnitOfWork, pool_id: str) -> set[str]:
    columns = (Network.subnet_pool_id, Network.subnet6_pool_id)
    query = sa.union_all(*(sa.select(Network.project_id).where(column == pool_id) for column in columns))
    return {project_id or "" for project_id in uow.session.scalars(query)}


def _users_of_scope(uow: UnitOfWork, scope_id: str) -> set[str]:
    return set(uow.session.scalars(sa.select(SubnetPool.project_id).where(SubnetPool.address_scope_id == scope_id)))


def _users_of_group(uow: UnitOfWork, group_id: str) -> set[str]:
    query = sa.select(SecurityGroup.project_id).join(
        SecurityGroupRule, SecurityGroupRule.security_group_id == SecurityGroup.id
    )
    return set(uow.session.scalars(query.where(SecurityGroupRule.remote_address_group_id == group_id)))


def users_of_qos_policy(uow: UnitOfWork, policy_id: str) -> set[str]:
    """Return the projects whose networks, ports and floating addresses have the policy."""
    owner = sa.func.coalesce(Port.project_id, Instance.project_id)
    of_ports = sa.select(owner).outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    queries: list[sa.Select[Any]] = [of_ports.where(Port.qos_policy_id == policy_id)]
    queries += [sa.select(model.project_id).where(model.qos_policy_id == policy_id) for model in (Network, FloatingIp)]
    return {project_id or "" for query in queries for project_id in uow.session.scalars(query)}


def foreign_name(group_id: str) -> str:
    """Return what stands for the name of a security group of another project in a port's list of names."""
    return FOREIGN + group_id


def _ports_in(uow: UnitOfWork, group_id: str) -> set[str]:
    """Return the projects with ports in a security group of another project."""
    owner = sa.func.coalesce(Port.project_id, Instance.project_id)
    query = sa.select(owner).outerjoin(Instance, Instance.uuid == Port.instance_uuid)
    return set(uow.session.scalars(query.where(holds(Port.security_groups, foreign_name(group_id))).distinct()))


def users_of_security_group(uow: UnitOfWork, group_id: str) -> set[str]:
    """Return the projects that may use a security group of another project. All ports are read for a group of all."""
    query = sa.select(Row.target).where(Row.object_type == "security_group", Row.object_id == group_id)
    targets = set(uow.session.scalars(query))
    return _ports_in(uow, group_id) if EVERYBODY in targets else targets


_USERS: Mapping[str, Callable[[UnitOfWork, str], set[str]]] = {
    "network": _users_of_network,
    "subnetpool": _users_of_pool,
    "address_scope": _users_of_scope,
    "address_group": _users_of_group,
    "qos_policy": users_of_qos_policy,
    "security_group": _ports_in,
}
