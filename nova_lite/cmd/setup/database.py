"""Commands for the database's nodes of several controllers: their state, and the return from the loss of a majority.

A cluster without a majority does not form a new one itself: another part may continue elsewhere. Here all machines of
the cloud are known. If each reports that its node is in no majority, none continues elsewhere, and the node with the
last commit may begin.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import NamedTuple

from nova_lite.base import exceptions
from nova_lite.cmd.setup import broker, broker_watch, cluster, galera
from nova_lite.objects import Controller
from nova_lite.rpc import controllers
from nova_lite.rpc.node_reports import JOINS, SILENT, STARTS, STOPPED, USED, WAITS, Node, look_at_all

#: Seconds for which a position may be unknown: systemd starts the node, which finds it.
_POSITION_SECONDS = 60.0
#: Seconds that an orderly stop waits for the others.
SETTLE_SECONDS = 60.0

_STATES = {
    USED: "used",
    JOINS: "in the majority, not ready",
    WAITS: "runs without a majority",
    STARTS: "starts",
    STOPPED: "stopped",
    SILENT: "does not report: {}",
}


class Plan(NamedTuple):
    """The node that may begin. Without one, ``reason`` says why, and ``is_final`` that waiting does not help."""

    host: str = ""
    reason: str = ""
    is_final: bool = True


def plan(found: Sequence[Node], without: Collection[str] = ()) -> Plan:
    """Choose the node that may begin a new majority. ``without``: controllers that are off, by the operator's word."""
    known = [node for node in found if node.host not in without]
    if unknown := sorted({*without} - {node.host for node in found}):
        return Plan(reason=f"{unknown[0]} is no controller of this cloud.")
    if talking := [node.host for node in found if node.host in without and node.state != SILENT]:
        return Plan(reason=f"{talking[0]} reports its state, so it counts: leave out --without {talking[0]}.")
    if present := [node.host for node in known if node.is_in_majority]:
        return Plan(
            reason=f"the node of {present[0]} is in a majority. On each other controller: systemctl restart mariadb"
        )
    if silent := [node for node in known if node.state == SILENT]:
        return Plan(
            reason=f"{silent[0].host} does not report its state ({silent[0].reason}). Its node may continue, or have "
            f"later commits: start the machine. If it is off and stays off, repeat this with --without {silent[0].host}"
        )
    unplaced = [node.host for node in known if node.seqno < 0 and not node.is_empty]
    if unplaced:
        return Plan(
            reason=f"the last commit of {unplaced[0]} is not known yet. There: systemctl start mariadb", is_final=False
        )
    placed = [node for node in known if not node.is_empty]
    if not placed:
        return Plan(reason="no node has data: restore a backup (docs/howto/back-up-and-restore.md).")
    if len({node.uuid for node in placed}) > 1:
        texts = ", ".join(f"{node.host} {node.uuid}" for node in placed)
        return Plan(reason=f"the nodes are of different clusters: {texts}. Decide which data is right.")
    last = max(node.seqno for node in placed)
    first = min((node for node in placed if node.seqno == last), key=lambda node: node.state != WAITS)
    return Plan(first.host)


def status() -> None:
    """Print the state of each node, and what to do if there is no majority."""
    _, listed = _cluster()
    found = look_at_all(listed)
    print(table(found))
    if not any(node.is_in_majority for node in found):
        made = plan(found)
        advice = f"on {made.host}, run nova-lite-setup database recover" if made.host else made.reason
        print(f"No node is in a majority: {advice}")


def table(found: Sequence[Node]) -> str:
    lines = [("controller", "state", "last commit")]
    for node in found:
        place = f"{node.uuid}:{node.seqno}" if node.seqno >= 0 else "no data" if node.is_empty else "-"
        lines.append((node.host, _STATES[node.state].format(node.reason), place))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "\n".join(f"{host:{widths[0]}}  {state:{widths[1]}}  {place}" for host, state, place in lines)


def recover(without: Collection[str]) -> None:
    """Begin a new majority at this node if no other one may have it, or later commits. Raises `ConfigurationError`."""
    local, listed = _cluster()
    deadline = time.monotonic() + _POSITION_SECONDS
    while True:
        found = look_at_all(listed)
        made = plan(found, without)
        if made.host or made.is_final or time.monotonic() > deadline:
            break
        time.sleep(1)
    print(table(found), flush=True)
    if not made.host:
        raise exceptions.ConfigurationError(reason=made.reason)
    if made.host != local.host:
        raise exceptions.ConfigurationError(reason=f"{made.host} has the last commit. Run this command there.")
    (own,) = [node for node in found if node.host == local.host]
    print(f"No node is in a majority, and none has later commits than {local.host}: it begins a new one.", flush=True)
    if own.state == WAITS:
        galera.bootstrap_running()
    else:
        galera.bootstrap_stopped()
    _say_rest(listed, local.host, without)


def _say_rest(listed: Sequence[Controller], own: str, without: Collection[str]) -> None:
    print("This node serves. Nodes that run or start come back themselves.")
    for node in look_at_all(listed):
        if node.host != own and node.host not in without and node.state == STOPPED:
            print(f"The node of {node.host} is stopped. There: systemctl start mariadb")
    for host in without:
        print(f"If {host} comes back, its node gets a copy. What it alone had committed is lost.")


def _cluster() -> tuple[cluster.Local, list[Controller]]:
    local, listed = cluster.local(), controllers.members(str(cluster.KEYS))
    if local is None or not local.has_database or not listed:
        raise exceptions.ConfigurationError(reason="this machine has no node of a database of several controllers.")
    return local, listed


# --- an orderly stop


def settle(part: str) -> None:
    """Wait until the rest of the cluster can continue without this node: a unit's stop calls it.

    Without this, a stop that coincides with the loss of another node costs the majority. It waits for a minute at most.
    """
    local, listed = cluster.local(), controllers.members(str(cluster.KEYS))
    if local is None or len(listed) < 2:
        return
    others = [member for member in listed if member.host != local.host]
    is_settled = _database_is_settled if part == "database" else _broker_is_settled
    deadline = time.monotonic() + SETTLE_SECONDS
    while not is_settled(others):
        if time.monotonic() > deadline:
            print(f"The {part} of another controller is away. This one stops nevertheless.", flush=True)
            return
        time.sleep(1)


def _database_is_settled(others: Sequence[Controller]) -> bool:
    """Check whether each node that this one counts is ready. A dead node counts for some seconds."""
    size = galera.majority_size()
    return size < 2 or sum(node.state == USED for node in look_at_all(others)) >= size - 1


def _broker_is_settled(others: Sequence[Controller]) -> bool:
    """Check whether the others are a majority. Two brokers cannot do without one."""
    accepts = broker_watch.ThisMachine().accepts
    serving = sum(accepts(member.address, broker.TLS_PORT) for member in others)
    return len(others) < 2 or 2 * serving > len(others) + 1
