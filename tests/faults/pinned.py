"""Servers with CPUs and devices of their own: whatever fails, none is two guests', and none stays with no server."""

from __future__ import annotations

import sqlalchemy as sa

from nova_lite.db.core import models
from nova_lite.db.core.engine import UnitOfWork
from nova_lite.db.hosts import compute_nodes
from tests.faults.arena import SETTLE_SECONDS, Arena, Site
from tests.support.waiting import wait_for

#: Addresses of the device and of the vGPU of each host.
DEVICE, VGPU = "0000:41:00.0", "0000:81:00.0#0"
#: Address of the virtual function of each host, for a port.
FUNCTION = "0000:c1:01.0"
DEVICES = f"""[pci]
alias = {{"name": "gpu", "vendor_id": "10de", "product_id": "1eb8"}}
device_spec = {{"address": "{DEVICE}"}}
device_spec = {{"address": "{FUNCTION}", "physical_network": "physnet1"}}
[devices]
enabled_mdev_types = nvidia-35
[mdev_nvidia-35]
max_instances = 1
"""

#: Each of two hosts has two CPUs, one device and one vGPU for that, which are one server's.
SITE = Site(dedicated_cpus="0-1", config=DEVICES)

PINNED = "pinned"
FLAVOR = {"id": PINNED, "name": PINNED, "ram": 64, "disk": 1, "vcpus": 3}


def flavor(arena: Arena) -> None:
    """Make a flavor with two dedicated CPUs, a shared one, a device and a vGPU."""
    arena.insist("POST", "/flavors", {"flavor": FLAVOR}, (200, 409))
    specs = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0"}
    specs |= {"pci_passthrough:alias": "gpu:1", "resources:VGPU": "1"}
    arena.insist("POST", f"/flavors/{PINNED}/os-extra_specs", {"extra_specs": specs}, (200,))


def create(arena: Arena) -> None:
    """Create as many servers as fit. Each guest has the CPUs, the device and the vGPU of its row."""
    arena.create(2, PINNED)
    arena.settle("ACTIVE", 2)
    arena.nothing_open()
    parts = sorted(arena.own_parts().values())
    assert parts == [(host, [0, 1], [DEVICE, VGPU]) for host in sorted(arena.cloud.computes)]


def delete_while_building(arena: Arena) -> None:
    """Delete servers during their builds. Then as many fit again."""
    arena.create(2, PINNED)
    for server in arena.servers():
        arena.insist("DELETE", f"/servers/{server['id']}", None, (204, 404))
    arena.gone()
    arena.nothing_open()
    create(arena)


def one_with_device(arena: Arena) -> None:
    flavor(arena)
    arena.create(1, PINNED)
    arena.settle("ACTIVE", 1)


def device_lost(arena: Arena) -> None:
    """Take the device off its machine: the history of the server has one entry, and the guest stays.

    The next case finds the devices of all hosts again.
    """
    (server,) = arena.servers()
    arena.control_hosts(unplugged=[DEVICE])
    try:
        wait_for("its owner sees the loss", lambda: _losses(arena, server["id"]), SETTLE_SECONDS)
        arena.nothing_open()
        assert _losses(arena, server["id"]) == 1, "it was reported more than once"
        assert server["id"] in arena.guests()
    finally:
        arena.control_hosts()
        wait_for(
            "all hosts offer the device", lambda: arena.db.read(_offering) == set(arena.cloud.computes), SETTLE_SECONDS
        )


def _offering(uow: UnitOfWork) -> set[str]:
    """Return the hosts whose last report has the device."""
    nodes = uow.session.scalars(sa.select(models.ComputeNode))
    return {
        node.host
        for node in nodes
        if DEVICE in {device.address for device in compute_nodes.pci_devices(node.inventory)}
    }


def _losses(arena: Arena, server_id: str) -> int:
    answer = arena.send("GET", f"/servers/{server_id}/os-instance-actions", None)
    listed = [] if answer is None or answer.status_code != 200 else answer.json()["instanceActions"]
    return sum(item["action"] == "device_lost" for item in listed)
