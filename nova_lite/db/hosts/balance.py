"""Load of hosts as they report it, and moves that relieve hosts.

A plan has a number, and only moves of the newest plan begin. So two conductors that plan at the same time do not begin
moves by figures that the other one has changed. Budgets are counted again in the transaction that begins a move.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import hardware
from nova_lite.balance import planner
from nova_lite.balance.planner import Cloud, Group, Host, Limits, Room, Server
from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import (
    Allocation,
    BalanceMove,
    BalanceRun,
    ComputeNode,
    HostLoad,
    Instance,
    InstanceAction,
    InstanceGroup,
    InstanceGroupMember,
    Service,
)
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.hosts import evacuations, hosts, leases, services
from nova_lite.hardware import mem_encryption, pci
from nova_lite.objects import Flavor, Image
from nova_lite.objects import balance as objects
from nova_lite.objects.balance import RESOURCES, Load, LoadRequest
from nova_lite.objects.server_group import MAX_PER_HOST
from nova_lite.operations import states
from nova_lite.operations.states import PowerState

OFF, DRY_RUN, ON = "off", "dry_run", "on"
DONE, FAILED = "done", "failed"

_HOUR = datetime.timedelta(hours=1)
#: A server whose move failed stays for so long: its devices may be the cause.
_AFTER_FAILURE = datetime.timedelta(hours=24)
#: Moves that ended are kept for so long.
_KEPT = datetime.timedelta(days=7)
#: A measurement is outdated after so many intervals.
_OUTDATED = 5
#: Servers or hosts in one query.
_PAGE = 500
#: Servers whose transfer would take longer are not moved.
MAX_MOVE_SECONDS = 300.0
#: The only row of `BalanceRun`.
_ONLY = 1

_COLUMNS = (
    Instance.id, Instance.uuid, Instance.display_name, Instance.host, Instance.vm_state, Instance.power_state,
    Instance.task_state, Instance.locked, Instance.shares, Instance.points, Instance.flavor, Instance.image,
    Instance.pci, Instance.metadata_, Instance.system_metadata, Instance.project_id, Instance.block_devices,
)  # fmt: skip


def limits_of(conf: cfg.ConfigOpts) -> Limits:
    """Return the limits of ``[balance]``. Raises `ConfigurationError` for an unknown resource."""
    options = conf.balance
    if unknown := sorted(set(options.high) - set(RESOURCES)):
        raise exceptions.ConfigurationError(
            reason=f"[balance] high: there is no resource {', '.join(unknown)}. Resources are {', '.join(RESOURCES)}."
        )
    return Limits(
        high={name: options.high.get(name, 80) / 100 for name in RESOURCES},
        margin=options.margin / 100,
        gain=options.min_gain / 100,
        moves=options.moves_per_hour,
        moves_in=options.moves_in_per_hour,
        moves_out=options.moves_out_per_hour,
        at_once=options.at_once,
        bandwidth=float(options.bandwidth),
        move_seconds=MAX_MOVE_SECONDS,
    )


def report_load(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str, load: objects.HostLoad | None) -> LoadRequest:
    """Store the load of a host, and return what the next report has to be."""
    if conf.conductor.rebalance == OFF:
        return LoadRequest()
    if load is not None and hosts.exists(uow, host):
        insert_if_missing(uow, HostLoad, {"host": host, "reported_at": uow.now, "hot": False, "load": {}})
        values = {"reported_at": uow.now, "load": msgspec.to_builtins(load)}
        uow.change(sa.update(HostLoad).where(HostLoad.host == host).values(values))
    return LoadRequest(interval=conf.balance.interval, window=conf.balance.window)


# --- the data of a plan


class _History(NamedTuple):
    """Moves of the last hour, by host and direction, and what keeps servers from moving again."""

    moves: int
    running: int
    moves_in: Counter[str]
    moves_out: Counter[str]
    stays: dict[str, str]


def read_cloud(uow: UnitOfWork, conf: cfg.ConfigOpts, concerned: Collection[str] = ()) -> Cloud:
    """Return hosts and servers as the planner sees them. A server that moves counts where it goes.

    Servers are read of hosts that may be under pressure by their reports, and of hosts that are ``concerned``, with the
    members of these servers' groups. All other servers are in the rest of their host's load, as it has reported them.
    """
    loads = {row.host: row for row in uow.session.scalars(sa.select(HostLoad))}
    measured = {host: _measured(row) for host, row in loads.items()}
    known = {uuid: load for item in measured.values() for uuid, load in item.servers.items()}
    dirty = {uuid: rate for item in measured.values() for uuid, rate in item.dirty.items()}
    history = _history(uow, conf)
    destinations = _destinations(uow)
    hosts_alone = _hosts(uow, conf, loads, measured, history)
    by_reports = tuple(_with_reported(host, measured, known, destinations, ()) for host in hosts_alone)
    read = planner.hot_hosts(Cloud(hosts=by_reports, servers=()), limits_of(conf)).union(concerned)

    coming = [uuid for uuid, host in destinations.items() if host in read]
    rows = {row.uuid: row for row in (*_rows(uow, Instance.host, read), *_rows(uow, Instance.uuid, coming))}
    groups = _groups(uow, rows)
    rows |= {row.uuid: row for row in _rows(uow, Instance.uuid, groups.keys() - rows.keys())}
    destinations |= _claims_elsewhere(uow, rows)
    servers = tuple(
        _server(conf, row, destinations, _load_of(row, measured, known), dirty.get(row.uuid, 0.0), history, groups)
        for row in sorted(rows.values(), key=lambda row: row.id)
    )
    found = tuple(
        host if host.name in read else _with_reported(host, measured, known, destinations, rows) for host in hosts_alone
    )
    return Cloud(hosts=found, servers=servers, moves=history.moves, running=history.running)


def _rows(uow: UnitOfWork, column: sa.orm.InstrumentedAttribute[Any], values: Collection[str]) -> Iterator[Any]:
    """Yield the servers on any host with one of these values in a column, by pages."""
    query = sa.select(*_COLUMNS).where(Instance.host.is_not(None), Instance.deleted == sa.false())
    for page in _pages(values):
        yield from uow.session.execute(query.where(column.in_(page)))


def _pages(values: Collection[Any]) -> Iterator[list[Any]]:
    every = sorted(values)
    for start in range(0, len(every), _PAGE):
        yield every[start : start + _PAGE]


def _with_reported(
    host: Host,
    measured: Mapping[str, objects.HostLoad],
    known: Mapping[str, Load],
    destinations: Mapping[str, str],
    read: Collection[str],
) -> Host:
    """Return the host with the load of its servers in the rest, by reports. Servers that are ``read`` do not count."""
    report = measured.get(host.name)
    here = {} if report is None else report.servers
    counted = {uuid: load for uuid, load in here.items() if destinations.get(uuid, host.name) == host.name}
    counted |= {uuid: known[uuid] for uuid, target in destinations.items() if target == host.name and uuid in known}
    other = functools.reduce(Load.plus, (load for uuid, load in counted.items() if uuid not in read), host.other)
    return dataclasses.replace(host, other=other)


def _measured(row: HostLoad) -> objects.HostLoad:
    return msgspec.convert(row.load, objects.HostLoad)


def _load_of(row: Any, measured: Mapping[str, objects.HostLoad], known: Mapping[str, Load]) -> Load | None:
    """Return the load of a server, by its own host first; None if it runs and no host has measured it."""
    here = measured.get(row.host)
    load = (here.servers.get(row.uuid) if here is not None else None) or known.get(row.uuid)
    return load if row.vm_state == states.ACTIVE and row.power_state == PowerState.RUNNING else Load()


def _server(
    conf: cfg.ConfigOpts,
    row: Any,
    destinations: Mapping[str, str],
    load: Load | None,
    dirty: float,
    history: _History,
    groups: Mapping[str, Group],
) -> Server:
    flavor = msgspec.convert(row.flavor, Flavor)
    image = None if row.image is None else msgspec.convert(row.image, Image)
    topology = hardware.numa_of(flavor, image)
    alone = topology is not None and bool(topology.dedicated)
    stays = history.stays.get(row.uuid, "")
    if row.pci or pci.wants_devices(flavor):
        stays = "it has devices of its host"
    if mem_encryption.model_of(row.flavor, row.image) is not None:
        stays = "its memory is encrypted"
    if row.shares:
        stays = "it has shares of its host"
    if row.points:
        stays = "it has snapshot points"
    if row.locked:
        stays = "it is locked"
    if row.vm_state != states.ACTIVE:
        stays = f"it is {row.vm_state}, and only active servers move"
    if row.task_state is not None or row.uuid in destinations:
        stays = "an operation on it is in progress"
    return Server(
        uuid=row.uuid,
        name=row.display_name,
        host=destinations.get(row.uuid, row.host),
        load=load,
        room=Room(flavor.vcpus if topology is None else topology.shared_vcpus, flavor.memory_mb, flavor.disk_gb),
        stays=stays,
        disk_gb=float(flavor.disk_gb) if evacuations.has_local_disk(row) else 0.0,
        dirty=dirty,
        alone=alone,
        protected=leases.protection_of(conf, row).restart,
        group=groups.get(row.uuid),
    )


def _hosts(
    uow: UnitOfWork,
    conf: cfg.ConfigOpts,
    loads: Mapping[str, HostLoad],
    measured: Mapping[str, objects.HostLoad],
    history: _History,
) -> list[Host]:
    """Return the hosts without the load of their servers."""
    fenceable = {item.host for item in leases.all_hosts(uow) if item.is_fenceable}
    latest = uow.now - datetime.timedelta(seconds=_OUTDATED * conf.balance.interval)
    found = []
    for node in sorted(uow.session.execute(_NODES), key=lambda node: node.host):
        row, load = loads.get(node.host), measured.get(node.host)
        found.append(
            Host(
                name=node.host,
                capacity=Load() if load is None else load.capacity,
                other=Load() if load is None else load.other,
                seconds=0.0 if load is None else load.seconds,
                absent=_absent(node, row, latest),
                was_hot=row is not None and row.hot,
                fenceable=node.host in fenceable,
                free=Room(
                    node.vcpus - node.vcpus_used, node.memory_mb - node.memory_mb_used, node.disk_gb - node.disk_gb_used
                ),
                moves_in=history.moves_in[node.host],
                moves_out=history.moves_out[node.host],
            )
        )
    return found


#: Hosts without their servers, which `hosts.states` reads.
_NODES = sa.select(
    ComputeNode.host,
    ComputeNode.vcpus,
    ComputeNode.vcpus_used,
    ComputeNode.memory_mb,
    ComputeNode.memory_mb_used,
    ComputeNode.disk_gb,
    ComputeNode.disk_gb_used,
    Service.up,
    Service.forced_down,
    Service.disabled,
).join(Service, Service.id == ComputeNode.service_id)


def _absent(node: Any, row: HostLoad | None, latest: datetime.datetime) -> str:
    if not node.up or node.forced_down:
        return "it is down"
    if node.disabled:
        return "it is disabled"
    if row is None:
        return "it has not reported its load"
    return "its last report of its load is outdated" if row.reported_at < latest else ""


def _destinations(uow: UnitOfWork) -> dict[str, str]:
    """Return where servers go that move now, by uuid: by their claims, or before that by the plan of the move."""
    planned = sa.select(BalanceMove.instance_uuid, BalanceMove.target).where(BalanceMove.ended_at.is_(None))
    found = {row.instance_uuid: row.target for row in uow.session.execute(planned.order_by(BalanceMove.id))}
    query = (
        sa.select(Allocation.instance_uuid, ComputeNode.host)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .join(Instance, Instance.uuid == Allocation.instance_uuid)
        .join(InstanceAction, InstanceAction.instance_uuid == Allocation.instance_uuid)
        .where(InstanceAction.finish_time.is_(None), Instance.host != ComputeNode.host)
        .order_by(Allocation.id)
    )
    return found | {row.instance_uuid: row.host for row in uow.session.execute(query)}


def _claims_elsewhere(uow: UnitOfWork, servers: Mapping[str, Any]) -> dict[str, str]:
    """Return the other hosts that have claims of these servers, also after the end of a move."""
    claims: list[Any] = []
    for page in _pages(servers):
        query = sa.select(Allocation.id, Allocation.instance_uuid, Allocation.compute_node_id)
        claims += uow.session.execute(query.where(Allocation.instance_uuid.in_(page)))
    names: dict[int, str] = {}
    for ids in _pages({claim.compute_node_id for claim in claims}):
        nodes = sa.select(ComputeNode.id, ComputeNode.host).where(ComputeNode.id.in_(ids))
        names |= {node.id: node.host for node in uow.session.execute(nodes)}
    return {
        claim.instance_uuid: names[claim.compute_node_id]
        for claim in sorted(claims, key=lambda claim: claim.id)
        if names[claim.compute_node_id] != servers[claim.instance_uuid].host
    }


def _groups(uow: UnitOfWork, uuids: Collection[str]) -> dict[str, Group]:
    """Return the groups of these servers, by each of their members."""
    member = InstanceGroupMember
    rows: dict[int, InstanceGroup] = {}
    for page in _pages(uuids):
        query = sa.select(InstanceGroup).join(member, member.group_id == InstanceGroup.id)
        rows |= {row.id: row for row in uow.session.scalars(query.where(member.instance_uuid.in_(page)))}
    groups = {key: Group(row.uuid, row.policy, int(row.rules.get(MAX_PER_HOST, 1))) for key, row in rows.items()}
    found: dict[str, Group] = {}
    for ids in _pages(groups):
        members = sa.select(member.instance_uuid, member.group_id).where(member.group_id.in_(ids))
        found |= {row.instance_uuid: groups[row.group_id] for row in uow.session.execute(members)}
    return found


def _history(uow: UnitOfWork, conf: cfg.ConfigOpts) -> _History:
    cooldown = datetime.timedelta(seconds=conf.balance.cooldown)
    since = uow.now - max(_HOUR, cooldown, _AFTER_FAILURE)
    query = sa.select(BalanceMove).where(sa.or_(BalanceMove.begun_at >= since, BalanceMove.ended_at.is_(None)))
    rows = list(uow.session.scalars(query.order_by(BalanceMove.id)))
    latest = [row for row in rows if row.begun_at >= uow.now - _HOUR]
    stays = {}
    for row in rows:
        if row.begun_at >= uow.now - cooldown:
            stays[row.instance_uuid] = f"it moved less than {conf.balance.cooldown} s ago"
        elif row.result == FAILED:
            stays[row.instance_uuid] = "its last move has failed within a day"
    return _History(
        moves=len(latest),
        running=sum(row.ended_at is None for row in rows),
        moves_in=Counter(row.target for row in latest),
        moves_out=Counter(row.source for row in latest),
        stays=stays,
    )


# --- carrying it out


class Ended(NamedTuple):
    """A move that has ended. ``seconds``: that it took."""

    instance_uuid: str
    target: str
    result: str
    seconds: float


def begin_plan(uow: UnitOfWork) -> int:
    """Return the number of a new plan. Moves of earlier plans do not begin any more."""
    row = _run(uow)
    row.number += 1
    row.begun_at = uow.now
    return row.number


def _run(uow: UnitOfWork) -> BalanceRun:
    """Return the row of plans, locked."""
    query = sa.select(BalanceRun).where(BalanceRun.id == _ONLY).with_for_update()
    query = query.execution_options(populate_existing=True)
    row = uow.session.scalars(query).first()
    if row is None:
        insert_if_missing(uow, BalanceRun, {"id": _ONLY, "number": 0, "begun_at": uow.now})
        row = uow.session.scalars(query).one()
    return row


def note_hot(uow: UnitOfWork, names: set[str]) -> None:
    """Record which hosts are under pressure, so that they are relieved down to the low mark."""
    for row in uow.session.scalars(sa.select(HostLoad).order_by(HostLoad.host).with_for_update()):
        if row.hot != (row.host in names):
            row.hot = row.host in names


def hot(uow: UnitOfWork) -> set[str]:
    return set(uow.session.scalars(sa.select(HostLoad.host).where(HostLoad.hot.is_(True))))


def check_move(uow: UnitOfWork, conf: cfg.ConfigOpts, number: int, move: objects.BalanceMove) -> None:
    """Raise `MoveRefused` unless the move may begin now. Locks the row of plans until the transaction ends."""
    limits = limits_of(conf)
    if _run(uow).number != number:
        raise exceptions.MoveRefused(reason="another conductor has made a newer plan")
    history = _history(uow, conf)
    instance = uow.session.scalars(sa.select(Instance).where(Instance.uuid == move.instance_uuid)).first()
    service = services.find(uow, move.target, services.COMPUTE)
    reason = history.stays.get(move.instance_uuid, "")
    if instance is None or instance.deleted or instance.host != move.source:
        reason = f"it is no longer on host {move.source}"
    elif instance.locked:
        reason = "it is locked"
    elif service is None or not _takes_servers(service):
        reason = f"host {move.target} is down or disabled"
    elif history.running >= limits.at_once or history.moves >= limits.moves:
        reason = "the budget of moves is used"
    elif history.moves_in[move.target] >= limits.moves_in or history.moves_out[move.source] >= limits.moves_out:
        reason = "the budget of a host is used"
    if reason:
        raise exceptions.MoveRefused(reason=reason)


def _takes_servers(service: Service) -> bool:
    return bool(service.up and not service.disabled and not service.forced_down)


def add_move(uow: UnitOfWork, move: objects.BalanceMove, action_id: int) -> None:
    """Record a move that begins with this action."""
    row = BalanceMove(instance_uuid=move.instance_uuid, source=move.source, target=move.target)
    row.action_id, row.begun_at, row.reason = action_id, uow.now, move.reason
    uow.session.add(row)


def has_running(uow: UnitOfWork) -> bool:
    """Check whether moves are recorded as under way."""
    return uow.session.scalar(sa.select(BalanceMove.id).where(BalanceMove.ended_at.is_(None)).limit(1)) is not None


def settle_moves(uow: UnitOfWork) -> list[Ended]:
    """Record the ends of moves, and forget old ones. Return the moves that have ended since the last call.

    A move has failed if its action did, or if the action's row is gone and the server is not at its target.
    """
    query = (
        sa.select(BalanceMove, InstanceAction, Instance.host)
        .outerjoin(InstanceAction, InstanceAction.id == BalanceMove.action_id)
        .outerjoin(Instance, Instance.uuid == BalanceMove.instance_uuid)
        .where(BalanceMove.ended_at.is_(None))
        .order_by(BalanceMove.id)
        .with_for_update(of=BalanceMove)
    )
    ended = []
    for row, action, host in uow.session.execute(query).all():
        if action is not None and action.finish_time is None:
            continue
        row.ended_at = uow.now if action is None else action.finish_time
        row.result = DONE if host == row.target and (action is None or action.message is None) else FAILED
        seconds = (row.ended_at - row.begun_at).total_seconds()
        ended.append(Ended(row.instance_uuid, row.target, row.result, seconds))
    uow.change(sa.delete(BalanceMove).where(BalanceMove.ended_at < uow.now - _KEPT))
    return ended
