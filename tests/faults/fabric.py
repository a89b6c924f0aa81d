"""Networks of hosts: each has a network namespace of its own, with a link to one bridge, which is the outside.

Tunnels between hosts cross the bridge, floating addresses are reached over it, and the broker is reached through it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import uuid
from pathlib import Path

from tests.faults.real_failover import Machine
from tests.functional import cloud
from tests.integration.network.room import run

#: Interface of a host, and the network of hosts: this machine has the first address.
INTERFACE, ADDRESS = "eth0", "10.250.0.1"
HOST_ADDRESS = "10.250.0.1{number}"
#: Range of floating addresses, and the address of clients there.
OUTSIDE, CLIENTS = "198.51.100.0/24", "198.51.100.250"


def mac_of(number: int) -> str:
    """Return the MAC address of a host."""
    return f"02:00:00:00:00:0{number}"


class Fabric:
    """A namespace with the bridge. ``clients``: the namespace of clients, whose interface is on the bridge, too."""

    def __init__(self) -> None:
        self._name = f"nlt{uuid.uuid4().hex[:6]}"
        self.clients = f"{self._name}-clients"
        for name in (self._name, self.clients):
            run("ip", "netns", "add", name)
        self._ip("link", "add", "fabric", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        self._ip("link", "set", "fabric", "up")
        self._link("machine", self._name, str(os.getpid()))
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", self._name)
        run("ip", "link", "set", self._name, "up")
        self._link("clients", INTERFACE, self.clients)
        for words in (("address", "add", f"{CLIENTS}/24", "dev", INTERFACE), ("link", "set", INTERFACE, "up")):
            run("ip", "-n", self.clients, *words)

    def _ip(self, *words: str) -> str:
        return run("ip", "-n", self._name, *words)

    def _link(self, port: str, interface: str, space: str, *settings: str) -> None:
        """Make a link from the bridge to a namespace, which is a name or the number of a process."""
        self._ip("link", "add", port, "type", "veth", "peer", "name", interface, *settings, "netns", space)
        self._ip("link", "set", port, "master", "fabric", "up")

    def connect(self, name: str, number: int, process: int) -> None:
        self._link(name, INTERFACE, str(process), "address", mac_of(number))

    def disconnect(self, name: str) -> None:
        with contextlib.suppress(AssertionError):  # The kernel removes it with the host's end.
            self._ip("link", "delete", name)

    def close(self) -> None:
        for name in (self.clients, self._name):
            run("ip", "netns", "delete", name)


class NetworkedMachine(Machine):
    """A host with a network of its own."""

    spaces = (*Machine.spaces, "--net")
    steps = f"""{Machine.steps}
ip link set lo up
mkdir -p /run/netns "$BASE/cgroup"
mount -t tmpfs tmpfs /run/netns
mount --rbind /sys/fs/cgroup "$BASE/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$BASE/cgroup" /sys/fs/cgroup
"""

    def __init__(self, fabric: Fabric, running: cloud.Cloud, name: str, shared: Path) -> None:
        super().__init__(running, name, shared)
        self._fabric = fabric
        self.number = running.computes.index(name) + 1

    def boot(self) -> None:
        super().boot()
        self._fabric.connect(self.name, self.number, self.first)
        address = HOST_ADDRESS.format(number=self.number)
        for words in (
            ("address", "add", f"{address}/24", "dev", INTERFACE),
            ("link", "set", INTERFACE, "up"),
            ("route", "add", OUTSIDE, "dev", INTERFACE),
        ):
            run(*self.enter, "ip", *words)

    def cut_power(self, keeper: subprocess.Popen[bytes] | None = None) -> None:
        """Cut the link first: what the processes send while they end reaches no other machine."""
        self._fabric.disconnect(self.name)
        super().cut_power(keeper)
