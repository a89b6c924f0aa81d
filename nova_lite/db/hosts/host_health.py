"""Health of hosts' machines, and what conductors do about hosts with a problem. See docs/howto/host-health.md.

Nothing enables a host again but a person. Then the same problems count no more, until they are over and come again.
Locks are taken service first, health second.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import objects, operations
from nova_lite.base import exceptions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import HostHealth, Instance, InstanceAction, Migration, Service
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.hosts import services
from nova_lite.objects import HostProblem
from nova_lite.operations import migration_states, states

#: States of a host because of its health. Each of them counts towards ``max_hosts`` while the host is disabled.
DISABLED, DRAINING, DRAINED = "disabled", "draining", "drained"

#: Reason of a service that was disabled because of its health, and of a drain, which is a maintenance.
REASON = "host health: {}"
DRAIN_REASON = "nova-lite-manage host maintenance, after migration {}: {}"
_REASON_LENGTH = 255

#: Most problems of a host, and the length of each text, that are stored.
MAX_PROBLEMS, MAX_LENGTH = 50, 200

#: A server whose move has failed is tried again after this time.
RETRY = datetime.timedelta(minutes=10)

#: States of servers that are moved live.
LIVE = (states.ACTIVE, states.PAUSED)

# --- reports


def record(uow: UnitOfWork, host: str, problems: Collection[HostProblem]) -> None:
    """Record the problems of a host, which replace the earlier ones. The host's service is locked."""
    row = _locked(uow, host)
    if row is None:
        if not problems:
            return
        insert_if_missing(uow, HostHealth, {"host": host, "problems": [], "acted": [], "state": "", "cold": []})
        row = _locked(uow, host)
        assert row is not None
    since = {item["key"]: item["since"] for item in row.problems}
    now = uow.now.isoformat()
    stored = [(_clean(item.key), _clean(item.kind), _clean(item.text)) for item in list(problems)[:MAX_PROBLEMS]]
    row.problems = [
        {"key": key, "kind": kind, "text": text, "since": since.get(key, now)} for key, kind, text in stored
    ]
    keys = {key for key, _, _ in stored}
    row.acted = [key for key in row.acted if key in keys]
    if not problems and not row.state:
        uow.session.delete(row)


def _clean(text: str) -> str:
    """Return what is stored of a text of a host, which operators and tools read."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:MAX_LENGTH])


def _locked(uow: UnitOfWork, host: str) -> HostHealth | None:
    query = sa.select(HostHealth).where(HostHealth.host == host).with_for_update()
    return uow.session.scalars(query.execution_options(populate_existing=True)).first()


def list_(uow: UnitOfWork) -> list[objects.HostHealth]:
    """Return the health of all hosts that have a problem, or were disabled because of one."""
    rows = uow.session.scalars(sa.select(HostHealth).order_by(HostHealth.host))
    return [
        objects.HostHealth(
            host=row.host,
            problems=[HostProblem(key=item["key"], kind=item["kind"], text=item["text"]) for item in row.problems],
            since={item["key"]: _since(item) for item in row.problems},
            state=row.state,
        )
        for row in rows
    ]


def _since(problem: dict[str, str]) -> datetime.datetime:
    return datetime.datetime.fromisoformat(problem["since"])


# --- what is to be done


def to_disable(uow: UnitOfWork, conf: cfg.ConfigOpts) -> list[str]:
    """Return the enabled hosts with a problem that has lasted, and because of which nothing was done yet."""
    query = (
        sa.select(HostHealth)
        .join(Service, Service.host == HostHealth.host)
        .where(Service.binary == services.COMPUTE, Service.disabled.is_(False), Service.forced_down.is_(False))
        .order_by(HostHealth.host)
    )
    return [row.host for row in uow.session.scalars(query) if _new(uow, conf, row)]


def _new(uow: UnitOfWork, conf: cfg.ConfigOpts, row: HostHealth) -> list[dict[str, str]]:
    """Return the problems that have lasted, and because of which nothing was done yet."""
    latest = uow.now - datetime.timedelta(seconds=conf.host_health.hold)
    return [item for item in row.problems if item["key"] not in row.acted and _since(item) <= latest]


def disable_failing(uow: UnitOfWork, conf: cfg.ConfigOpts, host: str) -> str:
    """Disable a host with a problem, and return the reason. "": there is none any more.

    Raises `Conflict` if as many hosts are disabled as may be, or if no other host would take new servers.
    """
    service = services.locked(uow, host, services.COMPUTE)
    query = sa.select(HostHealth).order_by(HostHealth.host).with_for_update()
    rows = {row.host: row for row in uow.session.scalars(query)}
    row = rows.get(host)
    if service is None or row is None or service.disabled or service.forced_down:
        return ""
    problems = _new(uow, conf, row)
    if not problems:
        return ""
    others = [name for name, other in rows.items() if other.state and name != host]
    held = len(_disabled(uow, others))
    if held >= conf.host_health.max_hosts:
        raise exceptions.Conflict(f"{held} host(s) are disabled because of their health, and no more may be.")
    if not _is_another_enabled(uow, host):
        raise exceptions.Conflict("it is the last host that is up and enabled.")
    reason = REASON.format(problems[0]["text"])[:_REASON_LENGTH]
    services.update(uow, service.uuid, {"disabled": True, "disabled_reason": reason})
    row.acted = [item["key"] for item in row.problems]
    row.state, row.cold = DISABLED, []
    return reason


def _disabled(uow: UnitOfWork, names: Sequence[str]) -> list[str]:
    query = sa.select(Service.host).where(
        Service.host.in_(names), Service.binary == services.COMPUTE, Service.disabled.is_(True)
    )
    return list(uow.session.scalars(query))


def _is_another_enabled(uow: UnitOfWork, host: str) -> bool:
    query = sa.exists().where(
        Service.binary == services.COMPUTE,
        Service.host != host,
        Service.up.is_(True),
        Service.disabled.is_(False),
        Service.forced_down.is_(False),
    )
    return bool(uow.session.scalar(sa.select(query)))


def in_state(uow: UnitOfWork, state: str) -> list[str]:
    query = sa.select(HostHealth.host).where(HostHealth.state == state)
    return list(uow.session.scalars(query.order_by(HostHealth.host)))


def begin_drain(uow: UnitOfWork, host: str, after: int) -> bool:
    """Begin to move the servers of a host that is disabled because of its health. Return False if it is not.

    ``after``: id of the newest migration, by which the end of the drain finds the servers that have left.
    """
    service = services.locked(uow, host, services.COMPUTE)
    row = _locked(uow, host)
    if service is None or row is None or row.state != DISABLED or not (service.disabled and service.up):
        return False
    cause = (service.disabled_reason or "").removeprefix(REASON.format(""))
    reason = DRAIN_REASON.format(after, cause)[:_REASON_LENGTH]
    services.update(uow, service.uuid, {"disabled": True, "disabled_reason": reason})
    row.state = DRAINING
    return True


def settle(uow: UnitOfWork) -> list[str]:
    """Forget the state of hosts that a person has enabled, and return them."""
    query = (
        sa.select(HostHealth.host)
        .join(Service, Service.host == HostHealth.host)
        .where(Service.binary == services.COMPUTE, Service.disabled.is_(False), HostHealth.state != "")
    )
    enabled = []
    for host in uow.session.scalars(query.order_by(HostHealth.host)).all():
        service, row = services.locked(uow, host, services.COMPUTE), _locked(uow, host)
        if service is None or row is None or service.disabled:
            continue
        enabled.append(host)
        row.state, row.cold = "", []
        if not row.problems:
            uow.session.delete(row)
    return enabled


def has_enabled(uow: UnitOfWork) -> bool:
    """Check whether `settle` has work."""
    query = sa.exists().where(
        HostHealth.state != "",
        Service.host == HostHealth.host,
        Service.binary == services.COMPUTE,
        Service.disabled.is_(False),
    )
    return bool(uow.session.scalar(sa.select(query)))


# --- draining


class Drain(NamedTuple):
    """Servers of a host that is drained. ``moving``: the number of servers that move, or are confirmed elsewhere.

    ``live`` and ``cold`` are to be moved so now, ``confirm``: their cold move is over. ``ended``: their cold move was
    confirmed or reverted, or has failed. ``left``: the number of servers that are still here, or whose cold move is not
    confirmed.
    """

    moving: int
    live: list[str]
    cold: list[str]
    confirm: list[str]
    ended: list[str]
    left: int


def drain_of(uow: UnitOfWork, host: str) -> Drain:
    """Return what is to be done for a host that is drained. A server whose move has failed lately waits."""
    row = uow.session.get(HostHealth, host)
    begun = list(row.cold) if row is not None else []
    query = sa.select(Instance).where(Instance.deleted.is_(False))
    here = list(uow.session.scalars(query.where(Instance.host == host).order_by(Instance.id)))
    moves = _open_cold_moves(uow, host, begun)
    open_moves = [item for item in uow.session.scalars(query.where(Instance.uuid.in_(moves))) if item.host != host]
    confirm = [item.uuid for item in open_moves if item.vm_state == states.RESIZED and item.task_state is None]
    failed = _failed_lately(uow, [item.uuid for item in here])
    idle = [item for item in here if item.task_state is None and item.uuid not in failed]
    return Drain(
        moving=sum(item.task_state is not None for item in here) + len(open_moves),
        live=[item.uuid for item in idle if item.vm_state in LIVE],
        cold=[item.uuid for item in idle if item.vm_state == states.STOPPED],
        confirm=confirm,
        ended=[uuid for uuid in begun if uuid not in moves],
        left=len(here) + len(open_moves),
    )


def _open_cold_moves(uow: UnitOfWork, host: str, uuids: Collection[str]) -> set[str]:
    """Return which of these servers have an open cold migration from the host. Their owners' resizes do not count."""
    move = Migration
    query = sa.select(move.instance_uuid).where(
        move.instance_uuid.in_(uuids),
        move.status.in_(migration_states.OPEN),
        move.migration_type == migration_states.MIGRATION,
        move.source_host == host,
    )
    return set(uow.session.scalars(query))


def _failed_lately(uow: UnitOfWork, uuids: list[str]) -> set[str]:
    """Return the servers whose last move has failed within `RETRY`."""
    action = InstanceAction
    query = sa.select(action.instance_uuid).where(
        action.instance_uuid.in_(uuids),
        action.action.in_((operations.LIVE_MIGRATE.kind, operations.MIGRATE.kind)),
        action.message.is_not(None),
        action.finish_time > uow.now - RETRY,
    )
    return set(uow.session.scalars(query))


def require_draining(uow: UnitOfWork, host: str) -> HostHealth:
    """Return the locked row of a host. Raises `Conflict` unless the host is being drained."""
    row = _locked(uow, host)
    if row is None or row.state != DRAINING or not _disabled(uow, [host]):
        raise exceptions.Conflict(f"host {host} is not drained any more.")
    return row


def begin_cold_move(uow: UnitOfWork, host: str, instance_uuid: str) -> None:
    """Record that a stopped server leaves the host, so that its move is confirmed. Raises `Conflict`."""
    row = require_draining(uow, host)
    if instance_uuid not in row.cold:
        row.cold = [*row.cold, instance_uuid]


def require_cold_move(uow: UnitOfWork, host: str, instance_uuid: str) -> None:
    """Raise `Conflict` unless the server's open migration is the drain's move of it. The server is locked."""
    row = require_draining(uow, host)
    if instance_uuid not in row.cold or not _open_cold_moves(uow, host, [instance_uuid]):
        raise exceptions.Conflict(f"server {instance_uuid} has ended its move from host {host}.")


def forget_ended(uow: UnitOfWork, host: str) -> None:
    """Forget the cold moves of a drain that have ended: later migrations of these servers are not the drain's."""
    row = _locked(uow, host)
    if row is not None:
        moves = _open_cold_moves(uow, host, row.cold)
        row.cold = [uuid for uuid in row.cold if uuid in moves]


def end_drain(uow: UnitOfWork, host: str) -> bool:
    """Record that the host is empty. Return False if it is not, or is not drained any more."""
    row = _locked(uow, host)
    if row is None or row.state != DRAINING or drain_of(uow, host).left:
        return False
    row.state, row.cold = DRAINED, []
    return True


def servers_of(uow: UnitOfWork, host: str) -> list[str]:
    """Return the servers of a host, the oldest first."""
    query = sa.select(Instance.uuid).where(Instance.host == host, Instance.deleted.is_(False))
    return list(uow.session.scalars(query.order_by(Instance.id)))
