"""Instances: reads of one or many, and the few fields that users change freely.

Operations change an instance elsewhere (`nova_lite.conductor.operations`), always guarded by its state.
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
from nova_lite.db.core import models, paging, rows
from nova_lite.db.core.engine import Time, UnitOfWork, code_of
from nova_lite.db.core.events import FiltersChanged
from nova_lite.db.hosts import services
from nova_lite.db.servers import instance_filters, interfaces
from nova_lite.objects import (
    VIF,
    BlockDevice,
    ExpectedDomain,
    Flavor,
    GuestDevices,
    HostedInstance,
    Instance,
    InstanceFault,
    InstanceFilters,
    InstanceNUMATopology,
    InstanceQuery,
    PCIDevice,
    ShareMapping,
    SnapshotPoint,
    digest_of_domains,
)
from nova_lite.operations import states

#: Fields that `update` may change.
UPDATABLE = (
    "display_name",
    "display_description",
    "hostname",
    "access_ip_v4",
    "access_ip_v6",
    "auto_disk_config",
    "requested_availability_zone",
)

#: Nova's sort keys for servers.
SORT_KEYS = {
    name: getattr(models.Instance, name)
    for name in (
        "access_ip_v4", "access_ip_v6", "auto_disk_config", "availability_zone", "config_drive", "created_at",
        "display_description", "display_name", "host", "hostname", "image_ref", "kernel_id", "key_name",
        "launch_index", "launched_at", "locked", "locked_by", "node", "power_state", "progress", "project_id",
        "ramdisk_id", "root_device_name", "task_state", "terminated_at", "updated_at", "user_id", "uuid", "vm_state",
    )
} | {"instance_type_id": models.Instance.flavorid}  # fmt: skip


#: Columns of a row that its object has as well.
_FIELDS = rows.shared_fields(Instance, models.Instance)
_COLUMNS = {**{name: getattr(models.Instance, name) for name in _FIELDS}, "metadata": models.Instance.metadata_}

_tags = sa.select(sa.func.aggregate_strings(models.InstanceTag.tag, ","))
_group = sa.select(models.InstanceGroup.uuid).join(models.InstanceGroupMember)

_values = operator.attrgetter(*("metadata_" if name == "metadata" else name for name in _COLUMNS))

_ANY = sa.select(*_COLUMNS.values())
_ANY_WITHOUT_USER_DATA = sa.select(*(_COLUMNS | {"user_data": sa.null()}).values())

_ONE = _ANY.where(models.Instance.uuid == sa.bindparam("instance_uuid"))

_ALL = _ANY.where(models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))
_ALL_WITHOUT_USER_DATA = _ANY_WITHOUT_USER_DATA.where(models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))

#: Parts of instances in other tables: one row per interface, or a single row without one.
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
        *interfaces.VIF_COLUMNS,
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
    """Convert a row to a typed value with its interfaces, tags, fault and the state of its host."""
    return to_objects(uow, [row])[0]


def to_objects(uow: UnitOfWork, found: Sequence[models.Instance]) -> list[Instance]:
    return _whole(uow, [_values(row) for row in found])


def without_user_data(uow: UnitOfWork, uuids: Sequence[str]) -> list[Instance]:
    """Return instances, deleted ones too, as the transaction has left them. They have no user data."""
    return _whole(uow, uow.rows(_ALL_WITHOUT_USER_DATA, {"uuids": uuids}).all())


def minimal(row: models.Instance) -> Instance:
    """Convert a row without its parts in other tables."""
    return _bare(_values(row))


def created(row: models.Instance) -> Instance:
    """Convert the row of a new instance, which has no parts but tags."""
    instance = _bare(_values(row))
    instance.tags, instance.host_status = sorted(tag.tag for tag in row.tags), ""
    return instance


def _bare(values: Sequence[Any]) -> Instance:
    """Build an instance from the values of `_COLUMNS`."""
    named = dict(zip(_COLUMNS, values, strict=True))
    named["flavor"] = msgspec.convert(named["flavor"], Flavor)
    named["block_devices"] = msgspec.convert(named["block_devices"] or [], list[BlockDevice])
    named["numa"] = msgspec.convert(named["numa"], InstanceNUMATopology | None)
    named["pci"] = msgspec.convert(named["pci"], list[PCIDevice] | None)
    named["shares"] = msgspec.convert(named["shares"] or [], list[ShareMapping])
    named["points"] = msgspec.convert(named["points"] or [], list[SnapshotPoint])
    named["guest_devices"] = msgspec.convert(named["guest_devices"], GuestDevices | None)
    named["fault"] = None if named["fault"] is None else msgspec.convert(named["fault"], InstanceFault)
    return Instance(**named)


def _whole(uow: UnitOfWork, found: Sequence[Sequence[Any]]) -> list[Instance]:
    """Build instances with all parts. ``found``: the values of `_COLUMNS` of each."""
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
            instance.vifs.append(interfaces.to_vif(vif))
    return list(made.values())


def host_status(host: str | None, up: bool | None, disabled: bool | None, forced_down: bool | None) -> str:
    """Return Nova's host status: UP, DOWN (forced), MAINTENANCE (disabled), UNKNOWN (silent), or "" without a host. The
    flags are those of the host's service, None if there is none.
    """
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
    """Return an instance's row of the context's project, or of any for an admin; else raise `InstanceNotFound`.

    ``deleted``: accept a deleted one. ``lock``: lock the row until the transaction ends.
    """
    row = _find(uow, context, instance_uuid, deleted, lock)
    if row is None:
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)
    return row


def _find(
    uow: UnitOfWork, context: RequestContext, instance_uuid: str, deleted: bool, lock: bool = False
) -> models.Instance | None:
    row = _row(uow, _ROW_LOCKED if lock else _ROW, instance_uuid)
    return row if row is not None and _visible(row, context, deleted) else None


def _visible(row: models.Instance | Instance, context: RequestContext, deleted: bool) -> bool:
    return (deleted or not row.deleted) and (context.is_admin or row.project_id == context.project_id)


def lock(uow: UnitOfWork, instance_uuid: str) -> models.Instance | None:
    """Return the current row, locked, of any project, deleted or not."""
    return _row(uow, _ROW_LOCKED, instance_uuid)


def _row(uow: UnitOfWork, query: sa.Select[Any], instance_uuid: str) -> models.Instance | None:
    found = uow.timed(query, {"instance_uuid": instance_uuid})
    return found[0] if found else None


_ROW = sa.select(models.Instance).where(models.Instance.uuid == sa.bindparam("instance_uuid"))
_ROW_LOCKED = _ROW.with_for_update().execution_options(populate_existing=True)


def lock_visible(uow: UnitOfWork, wanted: Mapping[str, RequestContext]) -> dict[str, models.Instance]:
    """Do `get_row` for several instances by one statement, deleted ones included. ``wanted``: the context of each.

    Instances that a context may not see are left out. Rows are locked in the order of their uuids, as everywhere.
    """
    rows = uow.timed(_ROWS_LOCKED, {"uuids": sorted(wanted)})
    return {row.uuid: row for row in rows if _visible(row, wanted[row.uuid], True)}


# MariaDB locks rows as it reads them. Without the hint it might read a small table in another order.
_ROWS_LOCKED = (
    sa.select(models.Instance)
    .where(models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True)))
    .order_by(models.Instance.uuid)
    .with_hint(models.Instance, "FORCE INDEX (uq_instances_uuid)", "mysql")
    .with_hint(models.Instance, "FORCE INDEX (uq_instances_uuid)", "mariadb")
    .with_for_update()
    .execution_options(populate_existing=True)
)


def rows_by_uuid(uow: UnitOfWork, instance_uuids: Iterable[str]) -> dict[str, models.Instance]:
    """Return the existing rows by uuid, of any project, deleted or not."""
    query = sa.select(models.Instance).where(models.Instance.uuid.in_(set(instance_uuids)))
    return {row.uuid: row for row in uow.session.scalars(query)}


def projects_of(uow: UnitOfWork, uuids: list[str]) -> dict[str, str]:
    """Return the projects of the existing instances by uuid, deleted ones included."""
    return {row.uuid: row.project_id for row in uow.rows(_PROJECTS, {"uuids": uuids})}


_PROJECTS = sa.select(models.Instance.uuid, models.Instance.project_id).where(
    models.Instance.uuid.in_(sa.bindparam("uuids", expanding=True))
)


def of_request(uow: UnitOfWork, first_uuid: str, project_id: str | None) -> Sequence[models.Instance]:
    """Return all instances of the request that created the instance ``first_uuid``, if it is the project's."""
    first = _row(uow, _ROW, first_uuid)
    if first is None or first.project_id != project_id:
        return []
    query = sa.select(models.Instance).where(
        models.Instance.reservation_id == first.reservation_id, models.Instance.project_id == project_id
    )
    return uow.session.scalars(query.order_by(models.Instance.launch_index)).all()


def movable(uow: UnitOfWork, *conditions: sa.ColumnElement[bool]) -> Sequence[models.Instance]:
    """Return the instances that a plan may move: on a host, running or stopped, without a task. ``conditions``: further
    ones."""
    query = sa.select(models.Instance).where(
        models.Instance.host.is_not(None),
        models.Instance.deleted == sa.false(),
        models.Instance.vm_state.in_((states.ACTIVE, states.STOPPED)),
        models.Instance.task_state.is_(None),
        *conditions,
    )
    return uow.session.scalars(query.order_by(models.Instance.id)).all()


def concerned_with(uow: UnitOfWork, host: str) -> list[str]:
    """Return the uuids of instances on the host, with an allocation there, or with an open action there; oldest
    first.
    """
    return list(uow.rows(_CONCERNED_WITH, {"hosts": [host]}).scalars())


def _concerned() -> sa.Subquery:
    """Build the subquery of host and uuid for `concerned_with`. Its parameter is ``hosts``."""
    hosts = sa.bindparam("hosts", type_=sa.String, expanding=True)
    node, action, row = models.ComputeNode, models.InstanceAction, models.Instance
    held = sa.select(node.host, models.Allocation.instance_uuid.label("uuid"))
    held = held.join(node, node.id == models.Allocation.compute_node_id).where(node.host.in_(hosts))
    asked = sa.select(action.host, action.instance_uuid).where(action.finish_time.is_(None), action.host.in_(hosts))
    here = sa.select(row.host, row.uuid).where(row.host.in_(hosts), row.deleted == sa.false())
    # A union, because no index serves three conditions joined by "or": that would read all instances.
    return sa.union(here, held, asked).subquery()


CONCERNED = _concerned()
_CONCERNED_WITH = (
    sa.select(models.Instance.uuid)
    .join(CONCERNED, CONCERNED.c.uuid == models.Instance.uuid)
    .order_by(models.Instance.id)
)


def with_domain(uow: UnitOfWork, host: str) -> list[ExpectedDomain]:
    """Return the instances of the host that should have a domain there. Instances with an open action are left out: a
    move or an undo may have taken the domain.
    """
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
        ExpectedDomain(uuid=uuid, generation=generation, last_action_id=last)
        for uuid, generation, last in uow.session.execute(query)
    ]


def agree(uow: UnitOfWork, digests: Mapping[str, str]) -> dict[str, bool]:
    """Return, by host, whether the digest equals `digest_of_domains` of its rows and none of them is changing."""
    settled = settled_on(uow, digests)
    return {host: found is not None and digest_of_domains(found) == digests[host] for host, found in settled.items()}


def settled_on(uow: UnitOfWork, hosts: Iterable[str]) -> dict[str, list[tuple[str, int, int]] | None]:
    """Return, by host, uuid, generation and power state of all its instances. None if one of them has an open action,
    should have no domain, or has a guest in another state than its row. None also for a host with a record of
    unknown domains or missing disks, which a comparison has to confirm.
    """
    found: dict[str, list[tuple[str, int, int]] | None] = {host: [] for host in hosts}
    for host, uuid, generation, vm_state, task_state, power_state in uow.rows(_ON_HOSTS, {"hosts": list(found)}):
        is_settled = task_state is None and vm_state in states.HAS_DOMAIN
        if not is_settled or power_state not in states.EXPECTED_POWER_STATES[vm_state]:
            found[host] = None
        elif (settled := found[host]) is not None:
            settled.append((uuid, generation, power_state))
    return found


_ON_HOSTS: sa.CompoundSelect[Any] = sa.union_all(
    sa.select(
        models.Instance.host,
        models.Instance.uuid,
        models.Instance.generation,
        models.Instance.vm_state,
        models.Instance.task_state,
        models.Instance.power_state,
    ).where(models.Instance.host.in_(sa.bindparam("hosts", expanding=True)), models.Instance.deleted == sa.false()),
    sa.select(
        models.UnknownDomains.host,
        sa.literal(""),
        sa.literal(0),
        sa.literal(""),
        sa.literal("unknown"),
        sa.literal(0),
    ).where(models.UnknownDomains.host.in_(sa.bindparam("hosts", expanding=True))),
)


def to_reclaim(uow: UnitOfWork, seconds: int, most: int) -> list[str]:
    """Return at most ``most`` uuids of instances that were soft-deleted more than ``seconds`` ago and are not being
    deleted yet, oldest first.
    """
    before = uow.now - datetime.timedelta(seconds=seconds)
    row = models.Instance
    query = sa.select(row.uuid).where(*soft_deleted(before)).order_by(row.soft_deleted_at)
    return list(uow.session.scalars(query.limit(most)))


def soft_deleted(before: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Build the conditions "soft-deleted before then, and not being deleted yet"."""
    row = models.Instance
    idle = sa.or_(row.task_state.is_(None), row.task_state != states.DELETING)
    return *_passed(row.soft_deleted_at, before), row.deleted == sa.false(), idle


def get(uow: UnitOfWork, context: RequestContext, instance_uuid: str) -> Instance:
    found = _whole(uow, uow.rows(_ONE, {"instance_uuid": instance_uuid}).all())
    if not found or not _visible(found[0], context, deleted=False):
        raise exceptions.InstanceNotFound(instance_id=instance_uuid)
    return found[0]


def get_all(uow: UnitOfWork, queries: list[InstanceQuery]) -> list[Instance]:
    """Return every instance that some query may see, once each, unordered."""
    by_uuid = collections.defaultdict(list)
    for query in queries:
        by_uuid[query.uuid].append(query)
    found = _whole(uow, uow.rows(_ALL, {"uuids": list(by_uuid)}).all())
    return [
        instance
        for instance in found
        if not instance.deleted and any(query.may_see(instance) for query in by_uuid[instance.uuid])
    ]


def list_(
    uow: UnitOfWork,
    context: RequestContext,
    filters: InstanceFilters,
    limit: int | None = None,
    marker: str | None = None,
    sort_keys: list[str] | None = None,
    sort_dirs: list[str] | None = None,
) -> list[Instance]:
    """Return instances in pages, newest first unless sorted otherwise. ``marker``: uuid of the last instance of the
    previous page.

    A caller who is no admin gets only the context's project, whatever the filters say.
    """
    if not context.is_admin:
        filters = msgspec.structs.replace(filters, project_id=context.project_id)
    keys, dirs = sort_keys or ["created_at"], sort_dirs or []
    order = paging.Order(SORT_KEYS, keys, dirs or ["desc"], tie_breaker=models.Instance.id)
    start = paging.start(marker, lambda instance_uuid: _find(uow, context, instance_uuid, deleted=True))
    query = instance_filters.apply(_ANY if filters.with_user_data else _ANY_WITHOUT_USER_DATA, filters)
    try:
        query = instance_filters.with_rare_name(uow, query, filters)
        return _whole(uow, uow.rows(order.page(query, start, limit, instance_filters.fixed(filters))).all())
    except exc.DBAPIError as error:
        if code_of(error) in instance_filters.BAD_PATTERN_CODES:
            raise exceptions.InvalidInput(reason="the database does not take this regular expression") from error
        raise


def at_address(uow: UnitOfWork, address: str, network_id: str | None = None) -> list[Instance]:
    """Return instances with an interface of this address, on this network if one is named."""
    query = _with_interface(sa.select(models.Instance), address, network_id)
    return to_objects(
        uow, uow.session.scalars(query.where(~models.Instance.deleted).order_by(models.Instance.id)).all()
    )


def at_host(
    uow: UnitOfWork, host: str, address: str | None, instance_uuid: str | None, network_id: str | None = None
) -> list[Instance]:
    """Return the instances at this host with an interface of this address, or with this uuid."""
    row = models.Instance
    query = sa.select(row).where(~row.deleted, is_at(host)).order_by(row.id)
    if address is not None:
        query = _with_interface(query, address, network_id)
    else:
        query = query.where(row.uuid == instance_uuid)
    return to_objects(uow, uow.session.scalars(query).all())


def _with_interface(query: sa.Select[Any], address: str, network_id: str | None) -> sa.Select[Any]:
    port = models.Port
    query = query.join(port, port.instance_uuid == models.Instance.uuid).where(port.address == address)
    return query if network_id is None else query.where(port.network_id == network_id)


def on_hosts(uow: UnitOfWork, hosts: list[str]) -> list[HostedInstance]:
    """Return what lists of hypervisors show of the instances of these hosts, oldest first."""
    row = models.Instance
    query = sa.select(row.uuid, row.host, row.node).where(row.host.in_(hosts), ~row.deleted)
    found = uow.rows(query.order_by(row.created_at, row.id)).all()
    return [HostedInstance(uuid=uuid, host=host, node=node or "") for uuid, host, node in found]


def is_at(host: str) -> sa.ColumnElement[bool]:
    """Build the condition "is at this host, or has a claim there"."""
    row, claim, node = models.Instance, models.Allocation, models.ComputeNode
    claimed = sa.exists().where(claim.instance_uuid == row.uuid, claim.compute_node_id == node.id, node.host == host)
    return sa.or_(row.host == host, claimed)


def to_offload(uow: UnitOfWork, shelved_before: datetime.datetime, limit: int) -> list[str]:
    """Return the uuids of instances that were shelved before then and are still on a host."""
    row = models.Instance
    query = sa.select(row.uuid).where(*shelved(shelved_before)).order_by(row.shelved_at)
    return list(uow.session.scalars(query.limit(limit)))


def shelved(before: Time) -> tuple[sa.ColumnElement[bool], ...]:
    """Build the conditions "shelved before then, and no task runs"."""
    row = models.Instance
    idle = (row.vm_state == states.SHELVED, row.task_state.is_(None), ~row.deleted)
    return *_passed(row.shelved_at, before), *idle


def _passed(column: orm.InstrumentedAttribute[datetime.datetime | None], before: Time) -> tuple[Any, ...]:
    """Compare a time that few rows have, and say so for PostgreSQL. Its generic plan assumes that a third of the rows
    match, and would read all servers.
    """
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
    if "hostname" in changes:
        uow.publish(FiltersChanged(row.project_id))
    row.updated_at = uow.now
    return to_object(uow, row)


def of_project(uow: UnitOfWork, project_id: str, uuids: Iterable[str]) -> set[str]:
    """Return the uuids that are instances of the project."""
    table = models.Instance
    return set(uow.session.scalars(sa.select(table.uuid).where(table.uuid.in_(uuids), table.project_id == project_id)))


def _check_pinnable(row: models.Instance, zone: str) -> None:
    """Check that the zone may be pinned: only the zone that the instance is in, and only if none is pinned."""
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
