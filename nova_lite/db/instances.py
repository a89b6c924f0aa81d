"""Instances: reading them, one or many, and the few fields that users change at will.

What an instance goes through is written elsewhere (`nova_lite.conductor.operations`), always guarded by its state.
"""

from __future__ import annotations

import collections
import datetime
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import exc, orm

from nova_lite.base import exceptions
from nova_lite.base.context import RequestContext
from nova_lite.db import instance_filters, models, networks, paging, rows, services
from nova_lite.db.engine import Time, UnitOfWork, code_of
from nova_lite.objects import (
    VIF,
    BlockDevice,
    DomainExpected,
    Fault,
    Flavor,
    Instance,
    InstanceFilters,
    InstanceNUMATopology,
    InstanceQuery,
    digest_of_domains,
)
from nova_lite.operations import states

#: What `update` may change.
UPDATABLE = (
    *("display_name", "display_description", "hostname", "access_ip_v4", "access_ip_v6", "auto_disk_config"),
    "requested_availability_zone",
)

#: Nova's sort keys for servers.
SORT_KEYS = {
    name: getattr(models.Instance, name)
    for name in (
        *("access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at"),
        *("display_description", "display_name", "host", "hostname", "image_ref", "kernel_id", "key_name"),
        *("launch_index", "launched_at", "locked", "locked_by", "node", "power_state", "progress", "project_id"),
        *("ramdisk_id", "root_device_name", "task_state", "terminated_at", "updated_at", "user_id", "uuid", "vm_state"),
    )
} | {"instance_type_id": models.Instance.flavorid}


#: The columns that a value is made of.
_FIELDS = rows.shared_fields(Instance, models.Instance)
_COLUMNS = {**{name: getattr(models.Instance, name) for name in _FIELDS}, "metadata": models.Instance.metadata_}

_tags = sa.select(sa.func.aggregate_strings(models.InstanceTag.tag, ","))
_group = sa.select(models.InstanceGroup.uuid).join(models.InstanceGroupMember)

_values = operator.attrgetter(*("metadata_" if name == "metadata" else name for name in _COLUMNS))

_ANY = sa.select(*_COLUMNS.values())
_ANY_WITHOUT_USER_DATA = sa.select(*(_COLUMNS | {"user_data": sa.null()}).values())

_ONE = _ANY.where(models.Instance.uuid == sa.bindparam("instance_uuid"))

_ALL = _ANY.where(models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))

#: What belongs to instances and is in other tables: a row per interface, or one with none of it.
_PARTS = (
    sa.select(
        models.Instance.uuid,
        models.Instance.host,
        _tags.where(models.InstanceTag.instance_id == models.Instance.id).scalar_subquery(),
        _group.where(models.InstanceGroupMember.instance_uuid == models.Instance.uuid).scalar_subquery(),
        models.Service.up,
        models.Service.disabled,
        models.Service.forced_down,
        models.Instance.network_info,
        *networks.VIF_COLUMNS,
    )
    .outerjoin(
        models.Service,
        sa.and_(models.Service.host == models.Instance.host, models.Service.binary == services.COMPUTE),
    )
    .outerjoin(models.Port, models.Port.instance_uuid == models.Instance.uuid)
    .outerjoin(models.Network, models.Network.id == models.Port.network_id)
    .where(models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))
    .order_by(models.Port.position)
)


def to_object(uow: UnitOfWork, row: models.Instance) -> Instance:
    """The row as a typed value, with its interfaces, tags, fault and the state of its host."""
    return to_objects(uow, [row])[0]


def to_objects(uow: UnitOfWork, found: Sequence[models.Instance]) -> list[Instance]:
    return _whole(uow, [_values(row) for row in found])


def minimal(row: models.Instance) -> Instance:
    """`to_object` without what is in other tables."""
    return _bare(_values(row))


def created(row: models.Instance) -> Instance:
    """`to_object` of one that was just made: all that belongs to it are its tags."""
    instance = minimal(row)
    instance.tags, instance.host_status = sorted(tag.tag for tag in row.tags), ""
    return instance


def _bare(values: Sequence[Any]) -> Instance:
    """``values``: of `_COLUMNS`."""
    named = dict(zip(_COLUMNS, values, strict=True))
    named["flavor"] = msgspec.convert(named["flavor"], Flavor)
    named["block_devices"] = msgspec.convert(named["block_devices"] or [], list[BlockDevice])
    named["numa"] = msgspec.convert(named["numa"], InstanceNUMATopology | None)
    named["fault"] = None if named["fault"] is None else msgspec.convert(named["fault"], Fault)
    return Instance(**named)


def _whole(uow: UnitOfWork, found: Sequence[Sequence[Any]]) -> list[Instance]:
    """``found``: the values of `_COLUMNS` of each."""
    made = {instance.uuid: instance for instance in map(_bare, found)}
    if not made:
        return []
    for uuid, host, tags, group, up, disabled, forced_down, told, *vif in uow.rows(_PARTS, {"uuids": list(made)}).all():
        instance = made[uuid]
        instance.tags = sorted(tags.split(",")) if tags else []
        instance.server_group = group
        instance.host_status = host_status(host, up, disabled, forced_down)
        if told is not None:
            instance.vifs = msgspec.convert(told, list[VIF])
        elif vif[0] is not None:
            instance.vifs.append(networks.to_vif(vif))
    return list(made.values())


def host_status(host: str | None, up: bool | None, disabled: bool | None, forced_down: bool | None) -> str:
    """Nova's words: UP, DOWN (forced), MAINTENANCE (disabled), UNKNOWN (silent); "" when it is on no host. ``up`` and
    the others are of its host's service, None if there is none."""
    if host is None:
        return ""
    if forced_down:
        return "DOWN"
    if disabled:
        return "MAINTENANCE"
    return "UP" if up else "UNKNOWN"


def get_row(
    uow: UnitOfWork, context: RequestContext, instance_uuid: str, deleted: bool = False, lock: bool = False
) -> models.Instance:
    """An instance of the context's project, or any for an admin; else `InstanceNotFound`.

    ``deleted``: a deleted one counts, too. ``lock``: nobody else changes it until the transaction ends.
    """
    row = _find(uow, context, instance_uuid, deleted, lock)
    if row is None:
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)
    return row


def _find(
    uow: UnitOfWork, context: RequestContext, instance_uuid: str, deleted: bool, lock: bool = False
) -> models.Instance | None:
    values = {"instance_uuid": instance_uuid}
    row = _locked(uow, _ROW_LOCKED, values) if lock else uow.session.scalars(_ROW, values).first()
    return row if row is not None and _visible(row, context, deleted) else None


def _visible(row: models.Instance | Instance, context: RequestContext, deleted: bool) -> bool:
    return (deleted or not row.deleted) and (context.is_admin or row.project_id == context.project_id)


def lock(uow: UnitOfWork, instance_uuid: str | sa.ScalarSelect[str]) -> models.Instance | None:
    """The row as it is now, of any project, deleted or not; nobody else changes it until the transaction ends."""
    if isinstance(instance_uuid, str):
        return _locked(uow, _ROW_LOCKED, {"instance_uuid": instance_uuid})
    query = sa.select(models.Instance).where(models.Instance.uuid == instance_uuid)
    return _locked(uow, query.with_for_update().execution_options(populate_existing=True))


_ROW = sa.select(models.Instance).where(models.Instance.uuid == sa.bindparam("instance_uuid"))
_ROW_LOCKED = _ROW.with_for_update().execution_options(populate_existing=True)


def _locked(uow: UnitOfWork, query: sa.Select[Any], values: dict[str, Any] | None = None) -> models.Instance | None:
    found = uow.timed(query, values)
    return found[0] if found else None


def rows_by_uuid(uow: UnitOfWork, instance_uuids: Iterable[str]) -> dict[str, models.Instance]:
    """Those that have a row, of any project, deleted or not."""
    query = sa.select(models.Instance).where(models.Instance.uuid.in_(set(instance_uuids)))
    return {row.uuid: row for row in uow.session.scalars(query)}


def projects_of(uow: UnitOfWork, uuids: list[str]) -> dict[str, str]:
    """Whose they are, of those that there are, deleted or not."""
    return {row.uuid: row.project_id for row in uow.rows(_PROJECTS, {"uuids": uuids})}


_PROJECTS = sa.select(models.Instance.uuid, models.Instance.project_id).where(
    models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True))
)


def of_request(uow: UnitOfWork, first_uuid: str, project_id: str | None) -> Sequence[models.Instance]:
    """All that were created with the instance of this uuid, if it is the project's."""
    first = uow.session.scalars(_ROW, {"instance_uuid": first_uuid}).first()
    if first is None or first.project_id != project_id:
        return []
    query = sa.select(models.Instance).where(
        models.Instance.reservation_id == first.reservation_id, models.Instance.project_id == project_id
    )
    return uow.session.scalars(query.order_by(models.Instance.launch_index)).all()


def movable(uow: UnitOfWork) -> Sequence[models.Instance]:
    """Those on a host that a plan may move elsewhere: running or stopped, without a task."""
    query = sa.select(models.Instance).where(
        models.Instance.host.is_not(None),
        models.Instance.deleted == sa.false(),
        models.Instance.vm_state.in_((states.ACTIVE, states.STOPPED)),
        models.Instance.task_state.is_(None),
    )
    return uow.session.scalars(query.order_by(models.Instance.id)).all()


def concerned_with(uow: UnitOfWork, host: str) -> list[str]:
    """Uuids of those that are on the host, hold something of it, or have something open there; oldest first."""
    return list(uow.rows(_CONCERNED_WITH, {"hosts": [host]}).scalars())


def _concerned() -> sa.Subquery:
    """What `concerned_with` is about, of each of the parameter ``hosts``: its name, and a uuid."""
    hosts = sa.bindparam("hosts", type_=sa.String, expanding=True)
    node, action, row = models.ComputeNode, models.InstanceAction, models.Instance
    held = sa.select(node.host, models.Allocation.instance_uuid.label("uuid"))
    held = held.join(node, node.id == models.Allocation.compute_node_id).where(node.host.in_(hosts))
    asked = sa.select(action.host, action.instance_uuid).where(action.finish_time.is_(None), action.host.in_(hosts))
    here = sa.select(row.host, row.uuid).where(row.host.in_(hosts), row.deleted == sa.false())
    # Three conditions joined by "or" would read all instances: no index serves them together.
    return sa.union(here, held, asked).subquery()


CONCERNED = _concerned()
_CONCERNED_WITH = (
    sa.select(models.Instance.uuid)
    .join(CONCERNED, CONCERNED.c.uuid == models.Instance.uuid)
    .order_by(models.Instance.id)
)


def with_domain(uow: UnitOfWork, host: str) -> list[DomainExpected]:
    """Those on the host that have a domain there, with nothing open: a move or what is undone may have taken it."""
    row, action = models.Instance, models.InstanceAction
    newest = sa.select(sa.func.max(action.id)).where(action.instance_uuid == row.uuid).scalar_subquery()
    is_open = sa.exists().where(action.instance_uuid == row.uuid, action.finish_time.is_(None))
    query = sa.select(row.uuid, row.generation, sa.func.coalesce(newest, 0)).where(
        row.host == host,
        row.deleted == sa.false(),
        row.vm_state.in_(states.HAS_DOMAIN),
        row.task_state.is_(None),
        ~is_open,
    )
    return [
        DomainExpected(uuid=uuid, generation=generation, last_action_id=last)
        for uuid, generation, last in uow.session.execute(query)
    ]


def agree(uow: UnitOfWork, digests: Mapping[str, str]) -> dict[str, bool]:
    """By host, whether this is the `digest_of_domains` of all that its rows say, and all of that is settled."""
    settled = settled_on(uow, digests)
    return {host: found is not None and digest_of_domains(found) == digests[host] for host, found in settled.items()}


def settled_on(uow: UnitOfWork, hosts: Iterable[str]) -> dict[str, list[tuple[str, int, int]] | None]:
    """By host, uuid, generation and power state of all instances there. None if one of them has something done to it,
    ought to have no domain, or was found with a guest that is not as its state says."""
    found: dict[str, list[tuple[str, int, int]] | None] = {host: [] for host in hosts}
    for host, uuid, generation, vm_state, task_state, power_state in uow.rows(_ON_HOSTS, {"hosts": list(found)}):
        is_settled = task_state is None and vm_state in states.HAS_DOMAIN
        if not is_settled or power_state not in states.GUEST_IS[vm_state]:
            found[host] = None
        elif (settled := found[host]) is not None:
            settled.append((uuid, generation, power_state))
    return found


_ON_HOSTS = sa.select(
    *(models.Instance.host, models.Instance.uuid, models.Instance.generation, models.Instance.vm_state),
    *(models.Instance.task_state, models.Instance.power_state),
).where(models.Instance.host.in_(sa.bindparam("hosts", expanding=True)), models.Instance.deleted == sa.false())


def to_reclaim(uow: UnitOfWork, seconds: int, most: int) -> list[str]:
    """Uuids of at most so many that were soft-deleted more than ``seconds`` ago and are not being deleted yet, the
    oldest first."""
    before = uow.now - datetime.timedelta(seconds=seconds)
    row = models.Instance
    query = sa.select(row.uuid).where(*soft_deleted(before)).order_by(row.soft_deleted_at)
    return list(uow.session.scalars(query.limit(most)))


def soft_deleted(before: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Until then, and not being deleted for good yet."""
    row = models.Instance
    idle = sa.or_(row.task_state.is_(None), row.task_state != states.DELETING)
    return *_passed(row.soft_deleted_at, before), row.deleted == sa.false(), idle


def get(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> Instance:
    found = _whole(uow, uow.rows(_ONE, {"instance_uuid": instance_uuid}).all())
    if not found or not _visible(found[0], context, deleted=False):
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)
    return found[0]


def get_all(uow: UnitOfWork, questions: list[InstanceQuery]) -> list[Instance]:
    """The instances that some question may see, once each, in no order."""
    asked = collections.defaultdict(list)
    for question in questions:
        asked[question.uuid].append(question)
    found = _whole(uow, uow.rows(_ALL, {"uuids": list(asked)}).all())
    return [each for each in found if not each.deleted and any(q.may_see(each) for q in asked[each.uuid])]


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    filters: InstanceFilters,
    limit: int | None = None,
    marker: str | None = None,
    sort_keys: list[str] | None = None,
    sort_dirs: list[str] | None = None,
) -> list[Instance]:
    """Newest first unless sorted otherwise; ``marker`` is the uuid of the last instance of the page before.

    Who is not an admin gets instances of the context's project only, whatever the filters say.
    """
    if not context.is_admin:
        filters = msgspec.structs.replace(filters, project_id=context.project_id)
    keys, dirs = sort_keys or ["created_at"], sort_dirs or []
    order = paging.Order(SORT_KEYS, keys, dirs or ["desc"], tie_breaker=models.Instance.id)
    start = paging.start(marker, lambda instance_uuid: _find(uow, context, instance_uuid, deleted=True))
    query = instance_filters.apply(_ANY if filters.with_user_data else _ANY_WITHOUT_USER_DATA, filters)
    try:
        return _whole(uow, uow.rows(order.page(query, start, limit)).all())
    except exc.DBAPIError as error:
        if code_of(error) in instance_filters.BAD_PATTERN_CODES:
            raise exceptions.InvalidInput(reason="the database does not take this regular expression") from error
        raise


def at_address(uow: UnitOfWork, address: str) -> list[Instance]:
    """Instances with an interface of this address. Each network is looked at, for which there is an index."""
    port, network = models.Port, models.Network
    query = sa.select(models.Instance).join(port, port.instance_uuid == models.Instance.uuid)
    query = query.join(network, network.id == port.network_id)
    query = query.where(port.address == address, ~models.Instance.deleted).order_by(models.Instance.id)
    return to_objects(uow, uow.session.scalars(query).all())


def to_offload(uow: UnitOfWork, shelved_before: datetime.datetime, limit: int) -> list[str]:
    """Uuids of instances that are shelved since then, and still on a host."""
    row = models.Instance
    query = sa.select(row.uuid).where(*shelved(shelved_before)).order_by(row.shelved_at)
    return list(uow.session.scalars(query.limit(limit)))


def shelved(before: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Until then, and nothing is done with them."""
    row = models.Instance
    idle = (row.vm_state == states.SHELVED, row.task_state.is_(None), ~row.deleted)
    return *_passed(row.shelved_at, before), *idle


def _passed(column: orm.InstrumentedAttribute[datetime.datetime | None], before: Time) -> tuple[Any, ...]:
    """``column`` is a time that few rows have, which is said to PostgreSQL. It plans a statement that is asked often
    once for all values, takes a third of the rows to be older than any time, and would read all servers that there
    are."""
    return column.is_not(None), column <= before


def update(uow: UnitOfWork, context: RequestContext, instance_uuid: str, changes: dict[str, Any]) -> Instance:
    """Change some of `UPDATABLE`."""
    unknown = sorted(set(changes) - set(UPDATABLE))
    if unknown:
        raise exceptions.InvalidInput(reason=f"{', '.join(unknown)} of a server cannot be changed")
    row = get_row(uow, context, instance_uuid, lock=True)
    if changes.get("requested_availability_zone") is not None:
        _check_pinnable(row, changes["requested_availability_zone"])
    for name, value in changes.items():
        setattr(row, name, value)
    row.updated_at = uow.now
    return to_object(uow, row)


def of_project(uow: UnitOfWork, project_id: str, uuids: Iterable[str]) -> set[str]:
    """Those of ``uuids`` that are instances of the project."""
    table = models.Instance
    return set(uow.session.scalars(sa.select(table.uuid).where(table.uuid.in_(uuids), table.project_id == project_id)))


def _check_pinnable(row: models.Instance, zone: str) -> None:
    """An instance is pinned to the zone that it is in, and must be unpinned before."""
    pinned = row.requested_availability_zone
    if pinned is not None and pinned != zone:
        raise exceptions.Conflict(
            "Cannot change pinned availability zone directly. Unpin first by setting pinned_availability_zone to null."
        )
    if pinned is None and zone != row.availability_zone:
        raise exceptions.Conflict(
            f"Server can only be pinned to its current availability zone '{row.availability_zone}', but '{zone}' was "
            "requested."
        )
