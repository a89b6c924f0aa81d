"""Claims decide what fits where. Each is a conditional update of a compute node's counters, and an allocation.

Two schedulers may choose the same host. The update succeeds exactly as long as there is room (`docs/adr/0007`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import sqlalchemy as sa

from nova_lite.db.core.engine import UnitOfWork, utcnow
from nova_lite.db.core.events import HostChanged, HostFreed
from nova_lite.db.core.models import Allocation, ComputeNode, Instance, Port, Service
from nova_lite.db.core.releases import collecting
from nova_lite.db.hosts import hosts, numa_claims, pci_claims
from nova_lite.db.hosts.services import COMPUTE
from nova_lite.db.volume import cinder
from nova_lite.hardware.numa import NUMARequest
from nova_lite.objects import Flavor, PCIRequest, Selection
from nova_lite.objects.host import admission

#: Claimed resources: columns of `Allocation` and, with ``_used``, of `ComputeNode`.
RESOURCES = ("vcpus", "memory_mb", "disk_gb")


class Place(NamedTuple):
    """A claimed place: the hypervisor, its zone, and the generation of the guest there. ``numa``: the place in the
    NUMA cells, in plain values. ``pci``: devices of the host, in plain values.
    """

    host: str
    node: str | None
    generation: int
    zone: str | None
    numa: dict[str, Any] | None = None
    pci: list[dict[str, Any]] | None = None

    def described(self) -> dict[str, Any]:
        """Return plain values. They name no devices if there are none: then older conductors understand them."""
        return {name: value for name, value in self._asdict().items() if value or name != "pci"}


def claim(
    uow: UnitOfWork,
    instance: Instance,
    selection: Selection,
    numa: NUMARequest | None = None,
    pci: Sequence[PCIRequest] = (),
) -> bool:
    """Claim the selected node and move ``instance`` there; return False if the host is not alive or a resource no
    longer fits.

    The instance gets host, node and the next generation. The caller holds the lock of its row.
    """
    wanted = {name: getattr(instance, name) for name in RESOURCES}
    place = take(uow, instance, selection, wanted, numa, pci)
    if place is not None:
        move(instance, place)
    return place is not None


def take(
    uow: UnitOfWork,
    instance: Instance,
    selection: Selection,
    wanted: Mapping[str, int],
    numa: NUMARequest | None = None,
    pci: Sequence[PCIRequest] = (),
) -> Place | None:
    """Claim ``wanted`` of the selected node for an instance that stays where it is; return None when it does not
    fit. vCPUs with dedicated CPUs (``numa``) do not count as shared ones.
    """
    alive = _alive(uow, selection)
    if alive is None:
        return None
    zone, node_id = alive
    chosen = numa_claims.choose(uow, node_id, numa, pci)
    if chosen is None:
        return None
    topology = chosen.topology
    if topology is not None:
        wanted = {**wanted, "vcpus": topology.shared_vcpus}
    if not _use(uow, node_id, wanted, RESOURCES, chosen.columns):
        return None
    described = None if topology is None else msgspec.to_builtins(topology)
    devices = msgspec.to_builtins(chosen.devices) or None
    place = Place(selection.host, selection.node, next_generation(instance), zone, described, devices)
    allocation = {
        "instance_uuid": instance.uuid,
        "compute_node_id": node_id,
        "generation": place.generation,
        "numa": described,
        "pci": devices,
    }
    uow.change(_CLAIM, {**allocation, "created_at": uow.now, **{name: wanted[name] for name in RESOURCES}})
    if chosen.devices:
        pci_claims.insert(uow, node_id, instance.uuid, chosen.devices)
    uow.publish(HostChanged(node_id))
    return place


def _use(
    uow: UnitOfWork, node_id: int, amounts: Mapping[str, int], checked: Iterable[str], columns: Mapping[str, Any]
) -> bool:
    """Add ``amounts`` to what is used of a node; return False if it lacks room for a ``checked`` one.

    ``checked``: none if the amounts free something. ``columns``: further changes of its row.
    """
    values = {"node_id": node_id, **{f"more_{name}": amounts[name] for name in RESOURCES}}
    values |= {f"new_{name}": value for name, value in columns.items()}
    return uow.change(_adding(tuple(checked), tuple(columns)), values) == 1


@functools.cache
def _adding(checked: Collection[str], columns: Collection[str]) -> sa.Update:
    used = {name: getattr(ComputeNode, f"{name}_used") + sa.bindparam(f"more_{name}") for name in RESOURCES}
    new: dict[str, Any] = {f"{name}_used": amount for name, amount in used.items()}
    new |= {name: sa.bindparam(f"new_{name}") for name in columns} | ({} if checked else {"freed_at": utcnow()})
    has_room = (used[name] <= getattr(ComputeNode, name) for name in checked)
    changed = sa.update(ComputeNode).where(ComputeNode.id == sa.bindparam("node_id"), *has_room)
    return changed.values(generation=ComputeNode.generation + 1, **new)


_CLAIMED = (*RESOURCES, "instance_uuid", "compute_node_id", "generation", "numa", "pci", "created_at")
_CLAIM = sa.insert(Allocation).values({name: sa.bindparam(name) for name in _CLAIMED})


#: A text line for each node of a host: its id and its name.
_NODES = (
    sa.select(sa.func.aggregate_strings(sa.cast(ComputeNode.id, sa.String(20)) + " " + ComputeNode.node, "\n"))
    .where(ComputeNode.service_id == Service.id, ComputeNode.host == Service.host)
    .scalar_subquery()
)
_ALIVE = (
    sa.select(Service.host, Service.availability_zone, _NODES, Service.epoch, Service.identity)
    .where(
        Service.host.in_(sa.bindparam("hosts", expanding=True)),
        Service.binary == COMPUTE,
        Service.up.is_(True),
        Service.forced_down.is_(False),
    )
    .order_by(Service.host)
    .with_for_update(read=True, of=Service)
)


class ClaimedHost(NamedTuple):
    """A host with claimed resources: its zone, the ids of its nodes by name, and the identity of its registration."""

    zone: str
    nodes: dict[str, int]
    admission: str


class _LockedHosts(dict[str, ClaimedHost | None]):
    """Hosts that a transaction has locked. None: the host is not up."""


def lock_hosts(uow: UnitOfWork, names: Iterable[str]) -> None:
    """Lock the hosts of coming claims by one statement. Until the transaction ends no operator forces a live one down.

    A condition on the host in the claim's own update could hold for a row that has changed while the update waited.
    """
    locked = uow.part(_LockedHosts)
    new = sorted(set(names) - locked.keys())
    if not new:
        return
    locked.update(dict.fromkeys(new))
    for host, zone, nodes, epoch, identity in uow.run(_ALIVE, {"hosts": new}):
        lines = (line.split(" ", 1) for line in (nodes.split("\n") if nodes else ()))
        locked[host] = ClaimedHost(zone, {name: int(node_id) for node_id, name in lines}, admission(epoch, identity))


def locked_host(uow: UnitOfWork, name: str) -> ClaimedHost | None:
    """Return a host that `lock_hosts` has locked. None: it is not up."""
    return uow.part(_LockedHosts)[name]


def _alive(uow: UnitOfWork, selection: Selection) -> tuple[str, int] | None:
    """Return zone and id of the selected node if its host is up, and lock the host."""
    lock_hosts(uow, [selection.host])
    host = locked_host(uow, selection.host)
    node_id = None if host is None else host.nodes.get(selection.node)
    return None if host is None or node_id is None else (host.zone, node_id)


def resize(uow: UnitOfWork, instance: Instance, wanted: Mapping[str, int]) -> bool:
    """Change the amounts of the instance's allocation on its host; return False if its host lacks room.

    Without an allocation there is nothing to change.
    """
    columns = [getattr(Allocation, name) for name in RESOURCES]
    mine = (Allocation.instance_uuid == instance.uuid, Allocation.generation == instance.generation)
    query = (
        sa.select(Allocation.id, Allocation.compute_node_id, *columns)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(*mine, ComputeNode.host == instance.host)
    )
    row = uow.session.connection().execute(query.with_for_update(of=Allocation)).first()
    if row is None:
        return True
    allocation_id, node_id, *held_amounts = row
    more = {name: wanted[name] - amount for name, amount in zip(RESOURCES, held_amounts, strict=True)}
    if not any(more.values()):
        return True
    growing = [name for name, amount in more.items() if amount > 0]
    if not _use(uow, node_id, more, growing, {}):
        return False
    uow.change(sa.update(Allocation).where(Allocation.id == allocation_id).values(**wanted))
    uow.publish(HostChanged(node_id) if growing else HostFreed(node_id))
    return True


def needs(flavor: Flavor) -> dict[str, int]:
    """Return the resources of an instance with this flavor."""
    return {name: getattr(flavor, name) for name in RESOURCES}


def next_generation(instance: Instance) -> int:
    """Return a generation that the instance never had on any host."""
    instance.last_generation = max(instance.last_generation, instance.generation) + 1
    return instance.last_generation


def place_of(instance: Instance) -> Place | None:
    """Return the instance's current place."""
    if instance.host is None:
        return None
    zone, numa, pci = instance.availability_zone, instance.numa, instance.pci
    return Place(instance.host, instance.node, instance.generation, zone, numa, pci)


def move(instance: Instance, place: Place) -> None:
    """Move the instance to a place."""
    instance.host, instance.node, instance.generation, instance.availability_zone, instance.numa, instance.pci = place


def leave(instance: Instance) -> None:
    """Remove the instance from its host."""
    instance.host = instance.node = instance.numa = instance.pci = None


class HeldHost(NamedTuple):
    """A host with an allocation of an instance, and the generation there."""

    host: str
    generation: int


def held_hosts(uow: UnitOfWork, instance: Instance) -> list[HeldHost]:
    """Return every host with an allocation of the instance: live hosts first, its own before others. An instance
    without any allocation (deleted, or an old row) may still be where its row says.
    """
    return [end for end, *_ in held(uow, instance)]


_HAS_USERS_PORTS = sa.exists().where(Port.instance_uuid == Allocation.instance_uuid, Port.project_id.is_not(None))


_HELD_COLUMNS = (
    sa.select(
        Allocation.instance_uuid,
        ComputeNode.host,
        Allocation.generation,
        sa.and_(Service.up, ~Service.forced_down),
        _HAS_USERS_PORTS,
    )
    .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
    .join(Service, Service.id == ComputeNode.service_id)
    .order_by(Allocation.id)
)
_HELD = _HELD_COLUMNS.where(Allocation.instance_uuid == sa.bindparam("instance_uuid"))
_HELD_BY = _HELD_COLUMNS.where(Allocation.instance_uuid.in_(sa.bindparam("instance_uuids", expanding=True)))

#: A host with an allocation, whether it is up, and whether the instance may have ports that users made.
Held: TypeAlias = tuple[HeldHost, bool, bool]


def held(uow: UnitOfWork, instance: Instance) -> list[Held]:
    """Return `held_hosts`, each with whether it is up and whether the instance may have ports that users made."""
    rows = uow.run(_HELD, {"instance_uuid": instance.uuid})
    return _held(uow, instance, [_held_of_row(row) for row in rows])


def held_by(uow: UnitOfWork, instances: Collection[Instance]) -> dict[str, list[Held]]:
    """Return `held` of several instances, by their uuids."""
    found: dict[str, list[Held]] = {instance.uuid: [] for instance in instances}
    for row in uow.run(_HELD_BY, {"instance_uuids": list(found)}):
        found[row[0]].append(_held_of_row(row))
    return {instance.uuid: _held(uow, instance, found[instance.uuid]) for instance in instances}


def _held_of_row(row: Any) -> Held:
    _, host, generation, up, ports = row
    return HeldHost(host, generation), bool(up), bool(ports)


def _held(uow: UnitOfWork, instance: Instance, found: list[Held]) -> list[Held]:
    if not found and instance.host is not None:
        return [(HeldHost(instance.host, instance.generation), hosts.is_up(uow, instance.host), True)]
    return sorted(found, key=lambda item: (not item[1], item[0].host != instance.host))


def of_instances(uow: UnitOfWork, instance_uuids: Iterable[str], host: str) -> dict[str, set[int]]:
    """Return, by instance, the generations of its allocations on this host."""
    query = (
        sa.select(Allocation.instance_uuid, Allocation.generation)
        .join(ComputeNode, ComputeNode.id == Allocation.compute_node_id)
        .where(Allocation.instance_uuid.in_(list(instance_uuids)), ComputeNode.host == host)
    )
    found: dict[str, set[int]] = {}
    for instance_uuid, generation in uow.session.execute(query):
        found.setdefault(instance_uuid, set()).add(generation)
    return found


def renew(uow: UnitOfWork, instance: Instance) -> None:
    """Give the instance the next generation on its host, and transfer its claim there to it."""
    set_generation(uow, instance, next_generation(instance))


def set_generation(uow: UnitOfWork, instance: Instance, generation: int) -> None:
    """Give the instance this generation on its host, and transfer its claim there to it."""
    nodes = sa.select(ComputeNode.id).where(ComputeNode.host == instance.host, ComputeNode.node == instance.node)
    mine = (Allocation.instance_uuid == instance.uuid, Allocation.generation == instance.generation)
    instance.generation = generation
    uow.change(sa.update(Allocation).where(*mine, Allocation.compute_node_id.in_(nodes)).values(generation=generation))


def release(uow: UnitOfWork, instance_uuid: str, end: HeldHost | None = None) -> None:
    """Release the instance's allocation on the host ``end``, or (None) all of its allocations."""
    if end is None:
        releases = collecting(uow)
        if releases is not None:
            releases.allocations.add(instance_uuid)
        else:
            release_all(uow, [instance_uuid])
        return
    _release(uow, _RELEASE_AT, {"instance_uuid": instance_uuid, "host": end.host, "generation": end.generation})
    cinder.news(uow, instance_uuid)


def release_all(uow: UnitOfWork, instance_uuids: Collection[str]) -> None:
    """Release all allocations of these instances. Each node is changed once."""
    _release(uow, _RELEASE, {"instance_uuids": sorted(instance_uuids)})
    for instance_uuid in instance_uuids:
        cinder.news(uow, instance_uuid)


_RELEASED = [getattr(Allocation, name) for name in ("compute_node_id", *RESOURCES, "numa", "pci")]
_RELEASE = (
    sa.delete(Allocation)
    .where(Allocation.instance_uuid.in_(sa.bindparam("instance_uuids", expanding=True)))
    .returning(*_RELEASED)
)
_RELEASE_AT = (
    sa.delete(Allocation)
    .where(
        Allocation.instance_uuid == sa.bindparam("instance_uuid"),
        Allocation.compute_node_id.in_(sa.select(ComputeNode.id).where(ComputeNode.host == sa.bindparam("host"))),
        Allocation.generation == sa.bindparam("generation"),
    )
    .returning(*_RELEASED)
)


def _release(uow: UnitOfWork, gone: Any, values: dict[str, Any]) -> None:
    """Delete allocations, and subtract them from the counters of their nodes."""
    amounts: dict[int, list[int]] = {}
    cells: dict[int, list[dict[str, Any]]] = {}
    devices: dict[int, list[dict[str, Any]]] = {}
    for node_id, *released, numa, pci in uow.run(gone, values):
        sums = amounts.get(node_id, [0] * len(RESOURCES))
        amounts[node_id] = [one + other for one, other in zip(sums, released, strict=True)]
        if numa is not None:
            cells.setdefault(node_id, []).append(numa)
        devices.setdefault(node_id, []).extend(pci or ())
    for node_id in sorted(amounts):
        freed = {name: -amount for name, amount in zip(RESOURCES, amounts[node_id], strict=True)}
        left: dict[str, Any] = {}
        if node_id in cells:
            left["numa_used"] = numa_claims.without(uow, node_id, cells[node_id])
        if devices[node_id]:
            left["pci_used"] = pci_claims.delete(uow, node_id, devices[node_id])
        _use(uow, node_id, freed, (), left)
        uow.publish(HostFreed(node_id))
