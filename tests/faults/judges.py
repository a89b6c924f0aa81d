"""Judges of a case, during it and after it. Each function raises AssertionError with its finding."""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from nova_lite.db.core import models, rows
from nova_lite.db.core.engine import Database, UnitOfWork
from nova_lite.db.upkeep import invariants, server_traces
from nova_lite.objects import InstanceNUMATopology, Network, ipv6
from nova_lite.operations import states
from nova_lite.operations.states import PowerState

#: Power states of a guest by the vm state of its server. Each driver suspends in its own way.
POWER = {
    states.ACTIVE: {PowerState.RUNNING},
    states.STOPPED: {PowerState.SHUTDOWN},
    states.PAUSED: {PowerState.PAUSED},
    states.SUSPENDED: {PowerState.SUSPENDED, PowerState.SHUTDOWN},
    states.RESIZED: {PowerState.RUNNING, PowerState.SHUTDOWN},
    states.RESCUED: {PowerState.RUNNING},
}


def power_states(servers: list[dict[str, Any]], guests: dict[str, tuple[str, int]]) -> None:
    """Check that the API and the hypervisors agree on each server's power state, and that it fits the vm state.
    ``guests``: server id to host and power state.
    """
    for server in servers:
        vm_state, shown = server["OS-EXT-STS:vm_state"], server["OS-EXT-STS:power_state"]
        if vm_state in POWER:
            _, real = guests.get(server["id"], (None, None))
            assert shown == real and real in POWER[vm_state], (
                f"{server['id']} is {vm_state}, its power state is {shown} in the API and {real} at the hypervisor"
            )


def at_any_time(uow: UnitOfWork) -> None:
    """Check what holds at any time: no host has more used than it has, and every task state has an open action."""
    node = models.ComputeNode
    more = (node.vcpus_used > node.vcpus) | (node.memory_mb_used > node.memory_mb) | (node.disk_gb_used > node.disk_gb)
    overfull = list(uow.session.scalars(sa.select(node.host).where(more)))
    assert not overfull, f"more is used than there is on {overfull}"
    _none(list(invariants.tasks_without_action(uow)))


def all_rows(uow: UnitOfWork) -> None:
    """Check all invariants of `nova-lite-manage audit`, which hold at any time."""
    _none(invariants.find(uow))


def _none(problems: list[invariants.Problem]) -> None:
    assert not problems, f"audit: {[f'{p.check} of {p.subject}: {p.found}, not {p.expected}' for p in problems]}"


def traces(db: Database) -> None:
    """Check that ``nova-lite-manage audit --trace`` finds nothing, while no action is open."""
    wrong = [verdict for verdict in server_traces.judge(db) if verdict.wrong is not None]
    assert not wrong, f"audit --trace: {[f'{item.server} at {item.at}: {item.wrong}' for item in wrong]}"


def claims(uow: UnitOfWork) -> None:
    """Check the claims while no action is open. A server on a host holds one claim there. A server without a host
    holds none. An unconfirmed move holds another one at its source, unless it has ended where it began.
    """
    allocation, instance, node = models.Allocation, models.Instance, models.ComputeNode
    held = uow.session.execute(
        sa.select(allocation.instance_uuid, node.host).join(node, node.id == allocation.compute_node_id)
    )
    found = Counter((uuid, host) for uuid, host in held)
    alive = uow.session.execute(sa.select(instance.uuid, instance.host).where(~instance.deleted))
    expected = Counter((uuid, host) for uuid, host in alive if host is not None)
    waiting = uow.session.scalars(sa.select(models.Migration).where(models.Migration.status == "finished"))
    expected += Counter((row.instance_uuid, row.source_host) for row in waiting if row.source != row.destination)
    assert found == expected, f"claims are {dict(found)}, not {dict(expected)}"


def addresses(uow: UnitOfWork) -> None:
    """Check the addresses while no action is open: each guest has one address of the built-in networks, and it is
    unique.
    """
    instance, port = models.Instance, models.Port
    given = Counter(uow.session.scalars(sa.select(port.address)))
    assert max(given.values(), default=1) == 1, f"addresses are given out twice: {given}"
    owners = Counter(uow.session.scalars(sa.select(port.instance_uuid)))
    alive = uow.session.scalars(sa.select(instance.uuid).where(~instance.deleted, instance.vm_state.in_(POWER)))
    guests = Counter(alive)
    assert {uuid: owners[uuid] for uuid in guests} == guests, f"ports are {dict(owners)}, not {dict(guests)}"


def open_actions(uow: UnitOfWork) -> list[str]:
    action = models.InstanceAction
    query = sa.select(action.action, action.step, action.instance_uuid).where(action.finish_time.is_(None))
    return [f"{kind} of {uuid} at {step}" for kind, step, uuid in uow.session.execute(query)]


def nothing_held(uow: UnitOfWork) -> bool:
    if any(uow.session.query(table).count() for table in (models.Allocation, models.PCIClaim, models.Port)):
        return False
    columns = (models.ComputeNode.numa_used, models.ComputeNode.pci_used)
    return not any(used for row in uow.session.execute(sa.select(*columns)) for used in row)


# --- load balancers


def holders(path: Path) -> dict[str, list[str]]:
    """Return the hosts of a cloud at ``path`` that have the address of a load balancer now, by its id."""
    found = defaultdict[str, list[str]](list)
    for file in path.glob("*/instances/fake-*/load-balancers.json"):
        for balancer in json.loads(file.read_text()):
            if balancer["until"] > time.monotonic():
                found[balancer["id"]].append(file.parent.name.removeprefix("fake-"))
    return found


def one_holder(path: Path) -> None:
    """Check that no two hosts have the address of a load balancer."""
    twice = {key: hosts for key, hosts in holders(path).items() if len(hosts) > 1}
    assert not twice, f"addresses of load balancers are on several hosts: {twice}"


def balancer_hosts(uow: UnitOfWork) -> list[tuple[str | None, str | None]]:
    """Return the host of each load balancer, and the former host that has to release it first."""
    query = sa.select(models.LoadBalancer.host, models.LoadBalancer.former_host)
    return list(uow.session.execute(query).tuples())


def balancing_hosts(uow: UnitOfWork) -> int:
    return uow.session.query(models.LoadBalancerHost).count()


def default_subnet(uow: UnitOfWork) -> str:
    return ipv6.subnet_id_of(
        rows.to_object(Network, uow.session.query(models.Network).filter_by(is_default=True).one())
    )


def own_parts(uow: UnitOfWork, server_id: str) -> tuple[str, list[int], list[str]]:
    """Return the host, the dedicated CPUs and the devices of the server's only allocation."""
    allocation, node = models.Allocation, models.ComputeNode
    query = sa.select(node.host, allocation.numa, allocation.pci).join(node, node.id == allocation.compute_node_id)
    host, numa, devices = uow.session.execute(query.where(allocation.instance_uuid == server_id)).one()
    cpus = [] if numa is None else msgspec.convert(numa, InstanceNUMATopology).host_cpus
    return host, cpus, [device["address"] for device in devices or ()]
