"""Costs of steps for users, in plain words: interruptions, moves, reboots, lost data. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nova_lite.cmd.apply.plan import Op, Step

_DELETED = {
    "project": "users lose their access to it; what it holds stays, and costs, until an admin removes it",
    "flavor": "servers keep their size; no new server can have it",
    "key pair": "servers keep the key that they have",
    "security group rule": "new connections by this rule are refused",
    "router gateway": "its networks lose their way out, and running connections end",
    "router interface": "the subnet loses its way to other networks and outside",
    "port": "its address is free for others",
    "server": "DATA LOSS: the data of its own disks are lost",
    "interface": "the guest loses its connection to the network",
    "volume": "DATA LOSS: all data of the volume are lost",
    "attachment": "the guest loses the disk: unmount it before",
    "floating address": "the address goes back to its pool; another project may get it",
    "association": "the server cannot be reached at the floating address any more",
    "backup policy": "no more backups are made by it; those that are there stay",
}
_REPLACED = {
    "flavor": "servers keep their size until they are resized",
    "server": "DATA LOSS, DOWNTIME: a new server takes its place, with the same addresses and empty disks",
    "port": "the server gets another address on this network",
    "interface": "INTERRUPTION: the guest loses its connection to the network for seconds",
    "attachment": "INTERRUPTION: the guest loses the disk, and gets it back: unmount it before",
    "floating address": "the server gets another floating address",
    "association": "INTERRUPTION: connections by the floating address end",
    "router gateway": "INTERRUPTION: connections to the outside end",
    "router interface": "INTERRUPTION: connections through the router end",
}


def effects(step: Step) -> list[str]:
    """Return one sentence for each cost of a step. An empty list: no user notices it."""
    if step.op == Op.UPDATE:
        return list(_of_update(step))
    if step.op == Op.CREATE:
        return []
    costs = _DELETED | _REPLACED if step.is_replacement else _DELETED
    return [costs[step.key[0]]] if step.key[0] in costs else []


def _of_update(step: Step) -> Iterator[str]:
    kind, changed = step.key[0], set(step.changed)
    if kind == "server" and (rebuilding := changed & {"image", "key_pair", "user_data"}):
        what = ", ".join(sorted(name.replace("_", " ") for name in rebuilding))
        yield (
            f"DATA LOSS, REBOOT: a change of {what} rebuilds the server: its root disk is made anew; "
            "addresses and volumes stay"
        )
    if kind == "server" and "flavor" in changed:
        yield (
            "DOWNTIME: the server is stopped, may move to another host, and starts again; its data stay. "
            "It keeps running if hw:max_vcpus and hw:max_memory of both flavors allow it"
        )
    if kind == "server" and "unconfirmed" in changed:
        yield "the resize that waits is confirmed: there is no way back to the old size"
    if kind == "port" and "security_groups" in changed:
        yield "other connections are allowed or refused than before"
    if kind == "volume" and "size" in changed:
        yield "the guest sees the larger disk; its file system has to be grown"
    if kind == "subnet" and "dns" in changed:
        yield "guests learn the name servers with their next DHCP lease"
    if kind == "flavor" and "projects" in changed:
        yield "projects without access make no new servers with it"
