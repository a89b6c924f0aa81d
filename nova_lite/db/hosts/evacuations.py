"""Protected servers of fenced hosts: which are to run again elsewhere, in which order, and how often that is tried.

The rows are the plan, so that another conductor continues it.
"""

from __future__ import annotations

import datetime

import msgspec
import sqlalchemy as sa
from oslo_config import cfg

from nova_lite import hardware, operations
from nova_lite.db.core import actions
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.core.models import HostLease, Instance, Restart
from nova_lite.db.hosts import crashes, host_storage, leases
from nova_lite.objects import BlockDevice, block_device
from nova_lite.objects.fencing import HostFencing
from nova_lite.operations import states

#: Seconds after a failed attempt, first, second, and so on. The last one repeats.
BACKOFF = (10, 30, 60, 120)

#: Cause of a plan to start a server where it is.
START = "Host {host} has lost power or had stopped the server, and ha:restart=always of the {source} is set."

#: A server whose local disk may not be lost is planned for this time: never.
NEVER = datetime.datetime(9999, 1, 1)

LOCAL_DISK = (
    "Host {host} is lost. The server has a disk on it that no other host sees, so it waits for the host. "
    "ha:local-disk=rebuild would make it elsewhere with a new disk."
)

TPM = (
    "Host {host} is lost. The server has a TPM, whose state no other host has, so it waits for the host. It can be "
    "deleted."
)


def is_needed(uow: UnitOfWork) -> bool:
    """Check whether a host is fenced or a server is planned."""
    return bool(uow.rows(_IS_NEEDED, {}).scalar_one())


_IS_NEEDED = sa.select(
    sa.exists().where(HostLease.fenced == leases.LEASE)
    | sa.exists().where(HostLease.fenced == leases.OFF)
    | sa.exists().select_from(Restart)
)


def plan_restarts(uow: UnitOfWork, conf: cfg.ConfigOpts) -> list[str]:
    """Plan the protected servers that ran on fenced hosts, and forget plans that are over. Return lines to log."""
    lines = []
    fenced = {item.host: item for item in leases.fenced_hosts(uow)}
    planned = {row.instance_uuid: row for row in uow.session.scalars(sa.select(Restart).with_for_update())}
    for host in fenced.values():
        lines += _plan_host(uow, conf, host, planned)
    rows = {row.uuid: row for row in uow.session.scalars(sa.select(Instance).where(Instance.uuid.in_(planned)))}
    for uuid, row in planned.items():
        outcome = _outcome(conf, row, rows.get(uuid), row.host in fenced)
        if not outcome and is_start(row) and actions.newest_kind(uow, uuid) != operations.START.kind:
            outcome = "another operation was requested"
        if outcome:
            lines.append(f"Server {uuid} of host {row.host}: {outcome}")
            uow.session.delete(row)
    return lines


def _plan_host(uow: UnitOfWork, conf: cfg.ConfigOpts, host: HostFencing, planned: dict[str, Restart]) -> list[str]:
    query = sa.select(Instance).where(Instance.host == host.host, Instance.deleted.is_(False))
    crashed = crashes.to_start(uow, host.host)
    lines = []
    for instance in uow.session.scalars(query.order_by(Instance.id)):
        protection = leases.protection_of(conf, instance)
        is_off = host.fenced == leases.OFF or instance.uuid in host.guests
        earlier = planned.get(instance.uuid)
        starts = earlier is not None and is_start(earlier)
        if not protection.restart or not is_off or not (starts or has_to_run(instance) or instance.uuid in crashed):
            continue
        if earlier is not None and not starts:
            continue
        cause = f"Host {host.host} is lost ({host.fenced_by}), and ha:restart=always of the {protection.source} is set."
        due_at = uow.now + datetime.timedelta(seconds=protection.delay)
        if has_local_disk(instance) and not protection.rebuild and not host_storage.sharing(uow, host.host):
            cause, due_at = LOCAL_DISK.format(host=host.host), NEVER
        if hardware.has_tpm(instance.flavor, instance.image):
            cause, due_at = TPM.format(host=host.host), NEVER
        lines.append(f"Server {instance.uuid}: {cause}")
        row = earlier or Restart(instance_uuid=instance.uuid)
        row.host, row.priority = host.host, protection.priority
        row.attempts, row.due_at, row.cause = 0, due_at, cause
        uow.session.add(row)
    return lines


def plan_start(uow: UnitOfWork, conf: cfg.ConfigOpts, instance: Instance) -> None:
    """Plan to repeat the start of a protected server that has begun, unless it succeeds."""
    protection = leases.protection_of(conf, instance)
    if not protection.restart or instance.host is None or uow.session.get(Restart, instance.uuid) is not None:
        return
    row = Restart(instance_uuid=instance.uuid, host=instance.host, priority=protection.priority)
    row.attempts, row.due_at = 1, uow.now + datetime.timedelta(seconds=BACKOFF[0])
    row.cause = START.format(host=instance.host, source=protection.source)
    uow.session.add(row)


def is_start(row: Restart) -> bool:
    """Check whether the plan is to start a server where it is."""
    return row.cause.startswith(START.format(host=row.host, source="").partition(",")[0])


def has_to_run(instance: Instance) -> bool:
    """Check whether the server runs, or was about to start when its host was lost."""
    starts = (instance.vm_state, instance.task_state) == (states.STOPPED, states.POWERING_ON)
    return starts or instance.vm_state == states.ACTIVE


def _outcome(conf: cfg.ConfigOpts, row: Restart, instance: Instance | None, is_fenced: bool) -> str:
    """Return why a plan is over, or ""."""
    if instance is None or instance.deleted:
        return "it is deleted"
    if instance.task_state is not None:
        return ""
    if instance.host == row.host and is_fenced:
        return ""
    if instance.host == row.host and not is_start(row):
        return "its host is back"
    if instance.host == row.host and instance.vm_state != states.STOPPED:
        return "it runs again"
    if instance.host not in (None, row.host):
        return f"it is on host {instance.host}"
    if row.attempts >= leases.protection_of(conf, instance).attempts:
        return f"{row.attempts} attempts to run it have failed"
    return ""


def has_local_disk(instance: Instance) -> bool:
    """Check whether the server has a disk on its host."""
    devices = [msgspec.convert(device, BlockDevice) for device in instance.block_devices or ()]
    flavor = instance.flavor
    return block_device.root_volume(devices) is None or bool(flavor.get("ephemeral_gb") or flavor.get("swap"))


def due(uow: UnitOfWork, limit: int) -> list[str]:
    """Return the servers whose next attempt may begin, the most important first."""
    query = (
        sa.select(Restart.instance_uuid)
        .join(Instance, Instance.uuid == Restart.instance_uuid)
        .where(Restart.due_at <= uow.now, sa.or_(Instance.host == Restart.host, Instance.task_state.is_(None)))
        .order_by(Restart.priority.desc(), Restart.due_at, Restart.instance_uuid)
        .limit(limit)
    )
    return list(uow.session.scalars(query))


def begin(uow: UnitOfWork, instance_uuid: str) -> Restart | None:
    """Count an attempt, and return its row, locked. None if it is over."""
    query = sa.select(Restart).where(Restart.instance_uuid == instance_uuid).with_for_update()
    row = uow.session.scalars(query).first()
    if row is not None:
        seconds = BACKOFF[min(row.attempts, len(BACKOFF) - 1)]
        row.attempts += 1
        row.due_at = uow.now + datetime.timedelta(seconds=seconds)
    return row


def put_off_restart(uow: UnitOfWork, instance_uuid: str) -> None:
    """Try again later, because the server was busy. That is no attempt."""
    later = uow.now + datetime.timedelta(seconds=BACKOFF[0])
    uow.change(sa.update(Restart).where(Restart.instance_uuid == instance_uuid).values(due_at=later))


def of_host(uow: UnitOfWork, host: str) -> list[Restart]:
    """Return the plan of a host, in its order."""
    query = sa.select(Restart).where(Restart.host == host)
    return list(uow.session.scalars(query.order_by(Restart.priority.desc(), Restart.instance_uuid)))
