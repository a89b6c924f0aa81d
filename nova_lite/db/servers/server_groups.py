"""Server groups: their rows, and whether a host keeps a group's policy.

The scheduler knows a group as of its request. The claim checks again under the lock of the group's row, so that each of
several concurrent members sees the earlier ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db.core import quotas
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import Instance, InstanceGroupMember
from nova_lite.db.core.models import InstanceGroup as Row
from nova_lite.db.core.rows import to_object
from nova_lite.objects import InstanceGroup, ServerGroup
from nova_lite.objects.server_group import MAX_PER_HOST

POLICIES = ("affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity")


# --- for the API and operators


def list_(
    uow: UnitOfWork, context: RequestContext, all_projects: bool = False, limit: int | None = None, offset: int = 0
) -> list[ServerGroup]:
    """Return the project's groups; with ``all_projects`` and for an admin, all groups."""
    query = sa.select(Row).order_by(Row.id).offset(offset)
    if not (all_projects and context.is_admin):
        query = query.where(Row.project_id == context.project_id)
    if limit is not None:
        query = query.limit(limit)
    return _to_objects(uow, uow.session.scalars(query).all())


def get(uow: UnitOfWork, context: RequestContext, group_id: str) -> ServerGroup:
    """Return a group by uuid. Raises `ServerGroupNotFound`, also for another project's, except for an admin."""
    return _to_objects(uow, [_visible(uow, context, group_id)])[0]


def create(uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, group: ServerGroup) -> ServerGroup:
    """Create a group from ``name``, ``policy`` and ``rules`` for the context's project and user."""
    if not context.project_id:
        raise exceptions.Forbidden("A server group belongs to a project; this token is for none.")
    _check(group)
    quotas.take(uow, conf, context.project_id, {"server_groups": 1}, context.user_id)
    row = Row(
        uuid=str(uuid.uuid4()),
        project_id=context.project_id,
        user_id=context.user_id or "",
        name=group.name,
        policy=group.policy,
        rules=group.rules,
        created_at=uow.now,
    )
    uow.session.add(row)
    uow.session.flush()
    return _to_objects(uow, [row])[0]


def delete(uow: UnitOfWork, context: RequestContext, group_id: str) -> None:
    """Delete a group. Its servers stay where they are, without its policy."""
    row = _visible(uow, context, group_id, lock=True)
    uow.change(sa.delete(InstanceGroupMember).where(InstanceGroupMember.group_id == row.id))
    uow.session.delete(row)
    uow.session.flush()
    quotas.give_back(uow, row.project_id, {"server_groups": 1})


# --- for creating servers


def join(
    uow: UnitOfWork, conf: cfg.ConfigOpts, context: RequestContext, reference: str, instance_uuids: Sequence[str]
) -> None:
    """Make new instances members of the project's group ``reference`` (uuid or name).

    Raises `ServerGroupUnavailable`, or `QuotaExceeded` for too many members. The group's lock makes the count exact.
    """
    query = sa.select(Row).where(
        Row.project_id == context.project_id, sa.or_(Row.uuid == reference, Row.name == reference)
    )
    row = uow.session.scalars(query.order_by(Row.id).with_for_update()).first()
    if row is None:
        raise exceptions.ServerGroupUnavailable(group_uuid=reference)
    members = sa.select(sa.func.count()).where(InstanceGroupMember.group_id == row.id)
    used = uow.session.scalar(members) or 0
    limit = quotas.bounds(uow, conf, row.project_id, context.user_id)["server_group_members"]
    if 0 <= limit < used + len(instance_uuids):
        raise exceptions.QuotaExceeded(
            overs="server_group_members", requested=len(instance_uuids), used=used, allowed=limit
        )
    uow.session.add_all(
        InstanceGroupMember(instance_uuid=instance_uuid, group_id=row.id) for instance_uuid in instance_uuids
    )
    uow.session.flush()


def leave(uow: UnitOfWork, instance_uuid: str) -> None:
    """Remove a deleted instance from its group."""
    uow.change(sa.delete(InstanceGroupMember).where(InstanceGroupMember.instance_uuid == instance_uuid))


# --- for placing them


def of_instance(uow: UnitOfWork, instance_uuid: str) -> InstanceGroup | None:
    """Return an instance's group for the scheduler; None without one."""
    query = sa.select(Row).join(InstanceGroupMember, InstanceGroupMember.group_id == Row.id)
    row = uow.session.scalars(query.where(InstanceGroupMember.instance_uuid == instance_uuid)).first()
    return None if row is None else _for_scheduler(row, hosts(uow, row.id, [instance_uuid]))


def as_asked(uow: UnitOfWork, context: RequestContext, reference: str) -> InstanceGroup:
    """Return a group for the scheduler, by uuid or unique name. Raises `ServerGroupUnavailable`."""
    query = sa.select(Row).where(sa.or_(Row.uuid == reference, Row.name == reference))
    if not context.is_admin:
        query = query.where(Row.project_id == context.project_id)
    rows = uow.session.scalars(query.limit(2)).all()
    if len(rows) != 1:
        raise exceptions.ServerGroupUnavailable(group_uuid=reference)
    return _for_scheduler(rows[0], hosts(uow, rows[0].id))


def keeps_policy(uow: UnitOfWork, instance_uuid: str, host: str) -> bool:
    """Check whether the instance's group allows ``host`` now; lock the group until the commit."""
    query = sa.select(Row).join(InstanceGroupMember, InstanceGroupMember.group_id == Row.id)
    mine = query.where(InstanceGroupMember.instance_uuid == instance_uuid)
    row = uow.session.scalars(mine.with_for_update(of=Row).execution_options(populate_existing=True)).first()
    if row is None or row.policy not in ("affinity", "anti-affinity"):
        return True
    others = hosts(uow, row.id, [instance_uuid])
    if row.policy == "affinity":
        return not others or host in others
    return others.count(host) < int(row.rules.get(MAX_PER_HOST, 1))


def hosts(uow: UnitOfWork, group_id: int, without: Collection[str] = ()) -> list[str]:
    """Return the host of each placed member except ``without``. A host with two members appears twice."""
    query = (
        sa.select(Instance.host)
        .join(InstanceGroupMember, InstanceGroupMember.instance_uuid == Instance.uuid)
        .where(
            InstanceGroupMember.group_id == group_id,
            Instance.deleted == sa.false(),
            Instance.host.is_not(None),
            Instance.uuid.not_in(without),
        )
    )
    return sorted(host for host in uow.session.scalars(query) if host is not None)


def _for_scheduler(row: Row, placed: list[str]) -> InstanceGroup:
    limit = row.rules.get(MAX_PER_HOST)
    return InstanceGroup(id=row.uuid, policy=row.policy, hosts=placed, max_server_per_host=limit)


def _check(group: ServerGroup) -> None:
    if not group.name.strip() or len(group.name) > 255:
        raise exceptions.InvalidInput(reason="a server group's name has 1 to 255 characters")
    if group.policy not in POLICIES:
        raise exceptions.InvalidInput(reason=f"policy {group.policy} is none of {', '.join(POLICIES)}")
    if group.rules and (set(group.rules) != {MAX_PER_HOST} or group.policy != "anti-affinity"):
        raise exceptions.InvalidInput(reason=f"the only rule is {MAX_PER_HOST}, of the policy anti-affinity")
    if group.rules.get(MAX_PER_HOST, 1) < 1:
        raise exceptions.InvalidInput(reason=f"{MAX_PER_HOST} is at least 1")


def _visible(uow: UnitOfWork, context: RequestContext, group_id: str, lock: bool = False) -> Row:
    query = sa.select(Row).where(Row.uuid == group_id)
    if not context.is_admin:
        query = query.where(Row.project_id == context.project_id)
    row = uow.session.scalars(query.with_for_update() if lock else query).first()
    if row is None:
        raise exceptions.ServerGroupNotFound(group_uuid=group_id)
    return row


def _to_objects(uow: UnitOfWork, rows: Sequence[Row]) -> list[ServerGroup]:
    query = sa.select(InstanceGroupMember).where(InstanceGroupMember.group_id.in_([row.id for row in rows]))
    members: dict[int, list[str]] = {}
    for member in uow.session.scalars(query.order_by(InstanceGroupMember.instance_uuid)):
        members.setdefault(member.group_id, []).append(member.instance_uuid)
    return [to_object(ServerGroup, row, id=row.uuid, members=members.get(row.id, [])) for row in rows]
