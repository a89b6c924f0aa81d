"""The invariants between rows, as queries, and their repair.

Each check compares in one statement, so that it sees a consistent moment of a database in use. A repair first locks the
row that concurrent changes would lock, then counts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgspec
import sqlalchemy as sa
from sqlalchemy import orm

from nova_lite.db.core import rows
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.core.events import HostChanged
from nova_lite.db.core.models import (
    Allocation,
    ComputeNode,
    Instance,
    InstanceAction,
    Migration,
    Network,
    PCIClaim,
    Port,
    QuotaUsage,
    RouterInterface,
    RouterInterface6,
    UnknownDomains,
    Volume,
    VolumeAttachment,
)
from nova_lite.db.core.quota_counts import COUNTED
from nova_lite.db.core.statements import insert_if_missing
from nova_lite.db.hosts import pci_claims
from nova_lite.db.network import builtin_networks, further_addresses
from nova_lite.db.servers import newer_domains
from nova_lite.db.volume import attachments, volumes
from nova_lite.objects import InstanceNUMATopology, PCIDevice, ipv6
from nova_lite.objects import Network as NetworkObject
from nova_lite.objects.numa import usage_of
from nova_lite.operations import migration_states, states

Check: TypeAlias = "Callable[[UnitOfWork], Iterator[Problem]]"

RESOURCES = ("vcpus", "memory_mb", "disk_gb")


@dataclass(frozen=True)
class Problem:
    """A broken invariant and its repair; None: an operator has to repair it."""

    check: str
    subject: str
    found: str
    expected: str
    repair: Callable[[UnitOfWork], object] | None


def find(uow: UnitOfWork) -> list[Problem]:
    return [problem for check in CHECKS for problem in check(uow)]


def find_apart(database: Database) -> list[Problem]:
    """Run each check in a transaction of its own. A large database then keeps no old rows for all of them."""
    return [problem for check in CHECKS for problem in database.read(_run, check)]


def fix(database: Database) -> tuple[list[Problem], list[Problem]]:
    """Repair check by check: one repair may change what the next check counts. Return what was repaired, and what an
    operator has to repair.

    Only a check that found something to repair runs again in a write transaction, which locks rows.
    """
    mended, left = [], []
    for check in CHECKS:
        found = database.read(_run, check)
        if any(problem.repair is not None for problem in found):
            mended += database.write(_fix, check)
        left += [problem for problem in found if problem.repair is None]
    return mended, left


def _run(uow: UnitOfWork, check: Check) -> list[Problem]:
    return list(check(uow))


def _fix(uow: UnitOfWork, check: Check) -> list[Problem]:
    mended = []
    for problem in list(check(uow)):
        if problem.repair is not None:
            problem.repair(uow)
            uow.session.flush()
            mended.append(problem)
    return mended


# --- tasks and moves


def tasks_without_action(uow: UnitOfWork) -> Iterator[Problem]:
    query = sa.select(Instance.uuid, Instance.task_state).where(
        Instance.task_state.is_not(None), Instance.deleted == sa.false(), ~_open_action(Instance.uuid)
    )
    for instance_uuid, task_state in uow.session.execute(query):
        yield Problem(
            "task",
            f"server {instance_uuid}",
            str(task_state),
            "an open action",
            partial(_end_task, instance_uuid=instance_uuid),
        )


def evacuations_without_action(uow: UnitOfWork) -> Iterator[Problem]:
    """Find open evacuations without an action, as an older conductor leaves them during an upgrade."""
    query = sa.select(Migration.id, Migration.instance_uuid, Migration.status).where(
        Migration.status.in_(migration_states.OPEN),
        Migration.migration_type == migration_states.EVACUATION,
        ~_open_action(Migration.instance_uuid),
    )
    for migration_id, instance_uuid, status in uow.session.execute(query):
        ended = sa.update(Migration).where(Migration.id == migration_id, Migration.status == status)
        yield Problem(
            "migration",
            f"server {instance_uuid}",
            f"an evacuation that is {status}",
            "an open action",
            partial(UnitOfWork.change, statement=ended.values(status=migration_states.FAILED, updated_at=uow.now)),
        )


def _end_task(uow: UnitOfWork, instance_uuid: str) -> None:
    """Clear the task state. An instance that was being built goes to ERROR."""
    row = uow.session.scalars(
        sa.select(Instance)
        .where(Instance.uuid == instance_uuid, ~_open_action(Instance.uuid))
        .with_for_update()
        .execution_options(populate_existing=True)
    ).first()
    if row is None:
        return
    row.task_state, row.updated_at = None, uow.now
    if row.vm_state == states.BUILDING:
        row.vm_state = states.ERROR
        row.fault = {
            "code": 500,
            "message": "The build was lost.",
            "details": "An audit found no open action.",
            "created_at": uow.now.isoformat(),
        }


# --- leftovers


def leftover_allocations(uow: UnitOfWork) -> Iterator[Problem]:
    """Find allocations of instances that are gone. A cleanup that waits for a silent host has an open action and keeps
    them.
    """
    query = (
        sa.select(Allocation.id, Allocation.instance_uuid, ComputeNode.host)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(~_alive(Allocation.instance_uuid), ~_open_action(Allocation.instance_uuid))
    )
    for allocation_id, instance_uuid, host in uow.session.execute(query):
        yield Problem(
            "allocation",
            f"server {instance_uuid}",
            f"an allocation on {host}",
            "none: it is deleted",
            partial(UnitOfWork.change, statement=sa.delete(Allocation).where(Allocation.id == allocation_id)),
        )


def leftover_volumes(uow: UnitOfWork) -> Iterator[Problem]:
    """Find volumes that belong to a server that is gone. A cleanup that waits for a silent host has an open action and
    keeps them.
    """
    query = sa.select(Volume.id, Volume.instance_uuid, Volume.status).where(
        Volume.instance_uuid.is_not(None), ~_alive(Volume.instance_uuid), ~_open_action(Volume.instance_uuid)
    )
    for volume_id, instance_uuid, status in uow.session.execute(query):
        mine = (Volume.id == volume_id, Volume.instance_uuid == instance_uuid)
        free = {"status": "available", "instance_uuid": None, "attachment_id": None, "device": None}
        yield Problem(
            "volume",
            f"volume {volume_id}",
            f"{status}, of server {instance_uuid}",
            "free: the server is deleted",
            partial(UnitOfWork.change, statement=sa.update(Volume).where(*mine).values(**free)),
        )


def leftover_attachments(uow: UnitOfWork) -> Iterator[Problem]:
    """Find servers that are gone, and still have a volume that several may have."""
    query = sa.select(VolumeAttachment.id, VolumeAttachment.volume_id, VolumeAttachment.instance_uuid).where(
        VolumeAttachment.recorded.is_(False),
        ~_alive(VolumeAttachment.instance_uuid),
        ~_open_action(VolumeAttachment.instance_uuid),
    )
    for attachment_id, volume_id, instance_uuid in uow.session.execute(query):
        yield Problem(
            "volume attachment",
            f"volume {volume_id}",
            f"attached to server {instance_uuid}",
            "not attached to it: the server is deleted",
            partial(_end_attachment, volume_id=volume_id, attachment_id=attachment_id),
        )


def _end_attachment(uow: UnitOfWork, volume_id: str, attachment_id: str) -> None:
    volume, row = volumes.by_id(uow, volume_id, lock=True), uow.session.get(VolumeAttachment, attachment_id)
    if row is None:
        return
    if volume is None:
        uow.session.delete(row)
    else:
        attachments.remove(uow, volume, [row])


def leftover_ports(uow: UnitOfWork) -> Iterator[Problem]:
    """Find ports of instances that are gone. A cleanup that waits for a silent host has an open action and keeps them.
    The repair frees a port that a user made.
    """
    query = sa.select(Port.id, Port.instance_uuid, Port.address, Port.project_id).where(
        Port.instance_uuid.is_not(None), ~_alive(Port.instance_uuid), ~_open_action(Port.instance_uuid)
    )
    for port_id, instance_uuid, address, project_id in uow.session.execute(query):
        mine = (Port.id == port_id, Port.instance_uuid == instance_uuid)
        is_kept = project_id is not None
        mended = (
            sa.update(Port).where(*mine).values(**builtin_networks.FREE) if is_kept else sa.delete(Port).where(*mine)
        )
        yield Problem(
            "port",
            f"server {instance_uuid}",
            f"port {port_id}" if is_kept else f"address {address}",
            "free: it is deleted" if is_kept else "none: it is deleted",
            partial(UnitOfWork.change, statement=mended),
        )


def ownerless_ports(uow: UnitOfWork) -> Iterator[Problem]:
    """Find ports without a server and without a user. Nothing would ever release their addresses."""
    nobodys = (Port.instance_uuid.is_(None), Port.project_id.is_(None), further_addresses.IS_PORT)
    for port_id, address in uow.session.execute(sa.select(Port.id, Port.address).where(*nobodys)):
        yield Problem(
            "port",
            f"port {port_id}",
            f"address {address}",
            "none: no server or project has it",
            partial(UnitOfWork.change, statement=sa.delete(Port).where(Port.id == port_id, *nobodys)),
        )


def unfree_ports(uow: UnitOfWork) -> Iterator[Problem]:
    """Find ports without a server that still name a host."""
    free = (Port.instance_uuid.is_(None), Port.project_id.is_not(None), Port.state.is_not(None))
    for port_id, state in uow.session.execute(sa.select(Port.id, Port.state).where(*free)):
        yield Problem(
            "port",
            f"port {port_id}",
            str(state),
            "nothing: no server has it",
            partial(UnitOfWork.change, statement=sa.update(Port).where(Port.id == port_id, *free).values(state=None)),
        )


def wrong_ipv6(uow: UnitOfWork) -> Iterator[Problem]:
    """Find ports whose IPv6 address differs from the address that guests derive from the MAC address, if they do."""
    columns = (Port.id, Port.mac_address, Port.address, Port.address6, Network)
    query = sa.select(*columns).join(Network, Network.id == Port.network_id)
    query = query.where(*(~sa.exists().where(kind.port_id == Port.id) for kind in (RouterInterface, RouterInterface6)))
    for port_id, mac_address, address, address6, row in uow.session.execute(
        query.where(sa.or_(Network.cidr6 != "", Port.address6.is_not(None)), further_addresses.IS_PORT)
    ):
        if (row.cidr6 and not ipv6.is_derived(row.subnet6)) or (address is None and address6 is None):
            continue
        right = ipv6.address_on(rows.to_object(NetworkObject, row), mac_address)
        if address6 != right:
            mended = sa.update(Port).where(Port.id == port_id, Port.mac_address == mac_address)
            yield Problem(
                "port",
                f"port {port_id}",
                f"address {address6 or 'none'}",
                f"address {right or 'none'}",
                partial(UnitOfWork.change, statement=mended.values(address6=right)),
            )


def stray_allocations(uow: UnitOfWork) -> Iterator[Problem]:
    """Find allocations on hosts that the instance neither occupies nor moves from or to. An admin's reset of a resized
    server leaves them. After the repair the host destroys its leftovers.
    """
    waiting = sa.exists().where(
        Migration.instance_uuid == Instance.uuid,
        Migration.status == migration_states.FINISHED,
        Instance.vm_state == states.RESIZED,
    )
    query = (
        sa.select(Allocation.id, Instance.uuid, ComputeNode.host)
        .join(Instance, Instance.uuid == Allocation.instance_uuid)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(
            Instance.deleted == sa.false(),
            Instance.host.is_not(None),
            ComputeNode.host != Instance.host,
            ~_open_action(Instance.uuid),
            ~waiting,
        )
    )
    for allocation_id, instance_uuid, host in uow.session.execute(query):
        yield Problem(
            "allocation",
            f"server {instance_uuid}",
            f"an allocation on {host}",
            "none: it is not moving",
            partial(UnitOfWork.change, statement=sa.delete(Allocation).where(Allocation.id == allocation_id)),
        )


def missing_allocations(uow: UnitOfWork) -> Iterator[Problem]:
    """Find instances on a host without an allocation. An instance that is being deleted releases its hosts one by
    one.
    """
    query = (
        sa.select(Instance.uuid, Instance.host, ComputeNode.id)
        .join(ComputeNode, sa.and_(ComputeNode.host == Instance.host, ComputeNode.node == Instance.node))
        .where(
            Instance.deleted == sa.false(),
            Instance.vm_state.in_((states.ACTIVE, states.STOPPED, states.RESIZED)),
            sa.or_(Instance.task_state.is_(None), Instance.task_state != states.DELETING),
            ~sa.exists().where(Allocation.instance_uuid == Instance.uuid, Allocation.compute_node_id == ComputeNode.id),
        )
    )
    for instance_uuid, host, node_id in uow.session.execute(query):
        yield Problem(
            "allocation",
            f"server {instance_uuid}",
            "none",
            f"one on {host}",
            partial(_allocate, instance_uuid=instance_uuid, node_id=node_id),
        )


def _allocate(uow: UnitOfWork, instance_uuid: str, node_id: int) -> None:
    row = uow.session.scalars(sa.select(Instance).where(Instance.uuid == instance_uuid).with_for_update()).one()
    insert_if_missing(
        uow,
        Allocation,
        {
            "instance_uuid": instance_uuid,
            "compute_node_id": node_id,
            "generation": row.generation,
            "created_at": uow.now,
            **_amounts_of(row),
        },
    )


def _amounts_of(row: Instance) -> dict[str, Any]:
    """Return what an instance uses of its node."""
    amounts: dict[str, Any] = {name: getattr(row, name) for name in RESOURCES}
    if row.numa is not None:
        amounts["numa"] = row.numa
        amounts["vcpus"] = msgspec.convert(row.numa, InstanceNUMATopology).shared_vcpus
    if row.pci is not None:
        amounts["pci"] = row.pci
    return amounts


def unknown_domains(uow: UnitOfWork) -> Iterator[Problem]:
    """Find domains of hosts that are of no server, as a restore of an older database leaves them. No repair: only the
    operator knows whether such a guest is still needed.
    """
    columns = (UnknownDomains.host, UnknownDomains.uuids, UnknownDomains.total)
    for host, uuids, total in uow.session.execute(sa.select(*columns).order_by(UnknownDomains.host)):
        subject = f"host {host}"
        for uuid in uuids:
            remedy = (
                f"a server of this database: look at it on {host} (virsh dominfo {uuid}), save what is needed, and "
                "remove it there (virsh destroy, virsh undefine) with its directory below the instances path"
            )
            yield Problem("domain", subject, f"domain {uuid} of no server", remedy, None)
        if total > len(uuids):
            found = f"{total - len(uuids)} more domains of no server"
            yield Problem("domain", subject, found, "none: remove the first ones, and they are named here", None)


def missing_disks(uow: UnitOfWork) -> Iterator[Problem]:
    """Find servers whose host has not found all files of their disks. No repair: the data may be elsewhere."""
    columns = (UnknownDomains.host, UnknownDomains.without_disks)
    for host, uuids in uow.session.execute(sa.select(*columns).order_by(UnknownDomains.host)):
        here = (Instance.uuid.in_(uuids or ()), Instance.host == host, Instance.deleted == sa.false())
        for uuid in uow.session.scalars(sa.select(Instance.uuid).where(*here).order_by(Instance.uuid)):
            remedy = (
                f"its disks: mount on {host} what should be mounted there, or restore a backup of the server. "
                "A guest that runs still has its disks open: save its data from within before it stops"
            )
            yield Problem("disks", f"server {uuid}", f"disks that are missing on {host}", remedy, None)


def newer_guests(uow: UnitOfWork) -> Iterator[Problem]:
    """Find servers whose guest is newer than their row. No repair: the operator chooses what becomes of the guest."""
    for item in newer_domains.all_newer(uow):
        found = f"guest at {item.host} of generation {item.generation}, newer than its row"
        remedy = "one that commands reach: nova-lite-manage server newer shows it, and what you can do"
        yield Problem("domain", f"server {item.uuid}", found, remedy, None)


# --- counters


def node_counters(uow: UnitOfWork) -> Iterator[Problem]:
    sums = [sa.func.coalesce(sa.func.sum(getattr(Allocation, name)), 0) for name in RESOURCES]
    used = [getattr(ComputeNode, f"{name}_used") for name in RESOURCES]
    query = (
        sa.select(ComputeNode.id, ComputeNode.host, ComputeNode.node, *used, *sums)
        .outerjoin(Allocation, Allocation.compute_node_id == ComputeNode.id)
        .group_by(ComputeNode.id, ComputeNode.host, ComputeNode.node, *used)
        .order_by(ComputeNode.id)
    )
    for node_id, host, node, *numbers in uow.session.execute(query):
        found, expected = [int(n) for n in numbers[:3]], [int(n) for n in numbers[3:]]
        if found != expected:
            yield Problem(
                "used",
                f"host {host}, node {node}",
                _amounts(found),
                _amounts(expected),
                partial(_recount_node, node_id=node_id),
            )


def numa_usage(uow: UnitOfWork) -> Iterator[Problem]:
    """Find nodes whose NUMA usage differs from the sum of their allocations, and CPUs that two servers share."""
    query = (
        sa.select(ComputeNode.id, ComputeNode.host, ComputeNode.numa_used, Allocation.instance_uuid, Allocation.numa)
        .outerjoin(Allocation, sa.and_(Allocation.compute_node_id == ComputeNode.id, Allocation.numa.is_not(None)))
        .where(sa.or_(ComputeNode.numa_used.is_not(None), Allocation.numa.is_not(None)))
        .order_by(ComputeNode.id, Allocation.id)
    )
    for (node_id, host), of_node in itertools.groupby(uow.session.execute(query), key=lambda row: (row[0], row[1])):
        (found, *first), *others = [row[2:] for row in of_node]
        held = [
            (uuid, msgspec.convert(numa, InstanceNUMATopology))
            for uuid, numa in (first, *(row[1:] for row in others))
            if numa is not None
        ]
        expected = msgspec.to_builtins(usage_of(numa for _, numa in held))
        if (found or {}) != expected:
            yield Problem(
                "numa", f"host {host}", _cells(found), _cells(expected), partial(_recount_numa, node_id=node_id)
            )
        yield from _shared_cpus(host, held)


def _shared_cpus(host: str, held: list[tuple[str, InstanceNUMATopology]]) -> Iterator[Problem]:
    """Report CPUs that several guests share. No repair: the operator has to decide which guest moves."""
    owners: dict[int, str] = {}
    for uuid, numa in held:
        for cpu in numa.host_cpus:
            if owners.setdefault(cpu, uuid) != uuid:
                other = f"CPU {cpu} of host {host}, which is server {owners[cpu]}'s too"
                yield Problem("cpu", f"server {uuid}", other, "a CPU of its own: migrate it", None)


def _cells(usage: dict[str, Any] | None) -> str:
    return "; ".join(f"cell {cell}: {used}" for cell, used in sorted((usage or {}).items())) or "nothing"


def _recount_numa(uow: UnitOfWork, node_id: int) -> None:
    uow.session.execute(sa.select(ComputeNode.id).where(ComputeNode.id == node_id).with_for_update())
    numas = uow.session.scalars(
        sa.select(Allocation.numa).where(Allocation.compute_node_id == node_id, Allocation.numa.is_not(None))
    )
    usage = usage_of(msgspec.convert(numa, InstanceNUMATopology) for numa in numas)
    values = {"numa_used": msgspec.to_builtins(usage) or None, "generation": ComputeNode.generation + 1}
    uow.change(sa.update(ComputeNode).where(ComputeNode.id == node_id).values(**values))
    uow.publish(HostChanged(node_id))


#: A text line for each claim of a device of a node.
_CLAIMS = (
    sa.select(sa.func.aggregate_strings(PCIClaim.address + " " + PCIClaim.instance_uuid, "\n"))
    .where(PCIClaim.compute_node_id == ComputeNode.id)
    .scalar_subquery()
)


def pci_devices(uow: UnitOfWork) -> Iterator[Problem]:
    """Find nodes whose claims of devices differ from their allocations, and devices that two servers have."""
    columns = (
        ComputeNode.id,
        ComputeNode.host,
        ComputeNode.pci_used,
        _CLAIMS,
        Allocation.instance_uuid,
        Allocation.pci,
    )
    has_claims = sa.exists().where(PCIClaim.compute_node_id == ComputeNode.id)
    query = (
        sa.select(*columns)
        .outerjoin(Allocation, sa.and_(Allocation.compute_node_id == ComputeNode.id, Allocation.pci.is_not(None)))
        .where(sa.or_(ComputeNode.pci_used.is_not(None), Allocation.pci.is_not(None), has_claims))
        .order_by(ComputeNode.id)
    )
    for (node_id, host), of_node in itertools.groupby(uow.session.execute(query), key=lambda row: (row[0], row[1])):
        rows_of_node = [row[2:] for row in of_node]
        used, claims, *_ = rows_of_node[0]
        expected = sorted((item["address"], uuid) for *_, uuid, devices in rows_of_node for item in devices or ())
        found = sorted(tuple(line.split(" ")) for line in (claims or "").splitlines())
        addresses = [address for address, _ in expected]
        if len(set(addresses)) < len(addresses):
            yield from _shared_devices(host, expected)
        elif (found, used or []) != (expected, addresses):
            repair = partial(_recount_pci, node_id=node_id)
            yield Problem("pci", f"host {host}", _devices(found, used), _devices(expected, addresses), repair)


def _shared_devices(host: str, held: list[tuple[str, str]]) -> Iterator[Problem]:
    """Report devices that several servers have. No repair: the operator has to decide which server moves."""
    owners: dict[str, str] = {}
    for address, uuid in held:
        if owners.setdefault(address, uuid) != uuid:
            other = f"PCI device {address} of host {host}, which is server {owners[address]}'s too"
            yield Problem("pci", f"server {uuid}", other, "a device of its own: migrate it", None)


def _devices(claimed: Sequence[tuple[str, ...]], used: list[str] | None) -> str:
    claims = ", ".join(f"{address} of server {uuid}" for address, uuid in claimed) or "no claims"
    return f"{claims}; in use: {', '.join(used or ()) or 'none'}"


def _recount_pci(uow: UnitOfWork, node_id: int) -> None:
    uow.session.execute(sa.select(ComputeNode.id).where(ComputeNode.id == node_id).with_for_update())
    query = sa.select(Allocation.instance_uuid, Allocation.pci).where(Allocation.compute_node_id == node_id)
    placed = {
        uuid: msgspec.convert(devices, list[PCIDevice])
        for uuid, devices in uow.session.execute(query.where(Allocation.pci.is_not(None)))
    }
    uow.change(sa.delete(PCIClaim).where(PCIClaim.compute_node_id == node_id))
    for uuid, devices in placed.items():
        pci_claims.insert(uow, node_id, uuid, devices)
    used = sorted(device.address for devices in placed.values() for device in devices)
    values = {"pci_used": used or None, "generation": ComputeNode.generation + 1}
    uow.change(sa.update(ComputeNode).where(ComputeNode.id == node_id).values(**values))
    uow.publish(HostChanged(node_id))


def _amounts(numbers: list[int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in zip(RESOURCES, numbers, strict=True))


def _recount_node(uow: UnitOfWork, node_id: int) -> None:
    uow.session.execute(sa.select(ComputeNode.id).where(ComputeNode.id == node_id).with_for_update())
    sums = uow.session.execute(
        sa.select(*(sa.func.coalesce(sa.func.sum(getattr(Allocation, name)), 0) for name in RESOURCES)).where(
            Allocation.compute_node_id == node_id
        )
    ).one()
    values: dict[str, Any] = {f"{name}_used": int(amount) for name, amount in zip(RESOURCES, sums, strict=True)}
    values["generation"] = ComputeNode.generation + 1
    uow.change(sa.update(ComputeNode).where(ComputeNode.id == node_id).values(**values))
    uow.publish(HostChanged(node_id))


def quota_counters(uow: UnitOfWork) -> Iterator[Problem]:
    for resource in COUNTED:
        for query in _usage_and_amounts(resource):
            for name, found, expected in uow.session.execute(query):
                if int(found) != int(expected):
                    subject = f"{resource} of {'user' if resource == 'key_pairs' else 'project'} {name}"
                    yield Problem(
                        "quota",
                        subject,
                        str(found),
                        str(int(expected)),
                        partial(_recount_quota, name=name, resource=resource),
                    )


@functools.cache
def _usage_and_amounts(resource: str) -> tuple[sa.Select[Any], ...]:
    """Return the statements that list owner, counter, and actual use: for each counter, and for each owner without
    one."""
    counted = COUNTED[resource]
    amounts = sa.select(counted.owner.label("owner"), counted.amount.label("amount"))
    real = amounts.where(counted.counts).group_by(counted.owner).subquery()
    usage = sa.select(QuotaUsage).where(QuotaUsage.resource == resource).subquery()
    return (
        sa.select(usage.c.project_id, usage.c.used, sa.func.coalesce(real.c.amount, 0)).outerjoin(
            real, real.c.owner == usage.c.project_id
        ),
        sa.select(real.c.owner, sa.literal(0), real.c.amount)
        .outerjoin(usage, real.c.owner == usage.c.project_id)
        .where(usage.c.project_id.is_(None)),
    )


def _recount_quota(uow: UnitOfWork, name: str, resource: str) -> None:
    counted = COUNTED[resource]
    mine = (QuotaUsage.project_id == name, QuotaUsage.resource == resource)
    insert_if_missing(uow, QuotaUsage, {"project_id": name, "resource": resource, "used": 0})
    uow.session.execute(sa.select(QuotaUsage.used).where(*mine).with_for_update())
    real = uow.session.execute(sa.select(counted.amount).where(counted.counts, counted.owner == name)).scalar()
    uow.change(sa.update(QuotaUsage).where(*mine).values(used=int(real or 0)))


# --- what the checks share


def _open_action(instance_uuid: orm.InstrumentedAttribute[Any]) -> sa.ColumnElement[bool]:
    return sa.exists().where(InstanceAction.instance_uuid == instance_uuid, InstanceAction.finish_time.is_(None))


_AN_INSTANCE = orm.aliased(Instance)


def _alive(instance_uuid: orm.InstrumentedAttribute[Any]) -> sa.ColumnElement[bool]:
    return sa.exists().where(_AN_INSTANCE.uuid == instance_uuid, _AN_INSTANCE.deleted == sa.false())


CHECKS = (
    tasks_without_action,
    evacuations_without_action,
    leftover_allocations,
    leftover_ports,
    ownerless_ports,
    unfree_ports,
    wrong_ipv6,
    leftover_volumes,
    leftover_attachments,
    missing_allocations,
    stray_allocations,
    unknown_domains,
    missing_disks,
    newer_guests,
    node_counters,
    numa_usage,
    pci_devices,
    quota_counters,
)
