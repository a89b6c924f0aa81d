"""Times changes of a host's networks, by how much there is already, and measures the throughput between guests.

As root, from a checkout, with nft, dnsmasq and iperf3, without a cloud::

    PYTHONPATH=$PWD python benchmarks/network_sizes.py --routers 10,100,1000 --rules 100,1000,10000 --json result.json

It runs in a network namespace of its own, so the machine's networks stay as they are. Guests are namespaces.

- ``router``: add a router with a network and its first guest to a host that has so many; change one; remove one.
- ``rule``: set a group's rules for a guest; then add one rule, and one member.
- ``throughput``: one TCP connection for ``--seconds``, interleaved, in Gbit/s: over a bare bridge, between guests of a
  network, between networks of a router, and the latter two with security groups.

Rows: ``what``, ``size``, and the median, least and greatest of ``--runs``, in milliseconds unless said otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from nova_lite.objects import VIF, HostRouter, Network, PortFilters, SecurityGroup, SecurityGroupRule
from nova_lite.virt.libvirt.net import dhcp, former_networks, names
from nova_lite.virt.libvirt.net.anti_spoofing import AntiSpoofing
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.net.routers import HostRouters
from nova_lite.virt.libvirt.net.security_groups import PortFirewall

_INSIDE = "NOVA_LITE_SIZES_INSIDE"


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def number_of(kind: str, number: int) -> str:
    """Return an id."""
    return str(uuid5(NAMESPACE_OID, f"{kind} {number}"))


def network_of(number: int) -> Network:
    """Return a network. All have the same addresses, as networks of many tenants do."""
    return Network(
        id=number_of("net", number),
        name=f"n{number}",
        cidr="10.0.0.0/24" if number % 2 else "10.1.0.0/24",
        gateway="10.0.0.1" if number % 2 else "10.1.0.1",
        bridge=f"b{number}",
        mtu=1450,
        vni=1000 + number,
        project_id=f"p{number}",
        needs_router=True,
    )


def guest_on(network: Network, number: int) -> VIF:
    """Return an interface with a tap device, which is half of a link, in the network's bridge."""
    digits = f"{(network.vni or 0) * 16 + number:06x}"
    return VIF(
        id=number_of("port", (network.vni or 0) * 256 + number),
        mac_address=f"fa:16:3e:{digits[:2]}:{digits[2:4]}:{digits[4:]}",
        address=network.cidr.replace("0/24", str(10 + number)),
        network=network,
        port_security_enabled=True,
    )


def attach(vif: VIF, space: str) -> None:
    """Give the interface to a guest: a namespace. The bridge must exist."""
    tap, gateway = names.tap_name(vif), vif.network.gateway
    run("ip", "netns", "add", space)
    run("ip", "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", space)
    run("ip", "link", "set", tap, "master", names.bridge_name(vif.network), "up")
    run("ip", "-n", space, "link", "set", "eth0", "address", vif.mac_address, "mtu", "1450", "up")
    run("ip", "-n", space, "address", "add", f"{vif.address}/24", "dev", "eth0")
    run("ip", "-n", space, "route", "add", "default", "via", gateway or "")


def router_of(number: int, guests: list[VIF]) -> HostRouter:
    neighbours: dict[str, dict[str, str]] = {}
    for vif in guests:
        neighbours.setdefault(vif.network.id, {})[vif.address] = vif.mac_address
    found = {vif.network.id: vif.network for vif in guests}
    return HostRouter(
        id=number_of("rout", number), networks=list(found.values()), external=True, snat=True, neighbours=neighbours
    )


class Host:
    """The parts of a compute daemon that make networks."""

    def __init__(self, directory: str) -> None:
        conf = SimpleNamespace(
            my_ip="127.0.0.1",
            network=SimpleNamespace(
                metadata_service=False, host_ports=[], security_groups=True, public_interface="lo", dns_domain="test"
            ),
        )
        dhcp.DIRECTORY = directory
        former_networks.take_over = lambda *_: set()
        for name in ("remove", "remove_rules", "lead_to", "forget"):
            setattr(former_networks, name, lambda *_: None)
        self.networks = HostNetworks(conf, None, "s")  # type: ignore[arg-type]
        self.routers = HostRouters(self.networks, "s", directory)
        self.networks.init_host([])
        self.anti_spoofing = AntiSpoofing("s")
        self.firewall = PortFirewall(conf, "s", directory, self.networks.numbers)  # type: ignore[arg-type]
        self.firewall.prepare({})
        self.known: list[HostRouter] = []

    def add(self, number: int) -> VIF:
        """Add a router with a network and a guest, as a boot does."""
        vif = guest_on(network_of(number), 0)
        self.known.append(router_of(number, [vif]))
        self.routers.set(list(self.known))
        assert self.networks.plug(vif, "guest")
        self.firewall.plug(vif.id, [vif])
        return vif

    def change(self, number: int) -> None:
        """Let a router learn one more neighbour."""
        router = self.known[number]
        more = {key: value | {"10.0.0.99": "fa:16:3e:99:99:99"} for key, value in router.neighbours.items()}
        self.known[number] = HostRouter(
            id=router.id, networks=router.networks, external=True, snat=True, neighbours=more
        )
        self.routers.set(list(self.known))

    def remove(self, vif: VIF) -> None:
        """Remove the guest, its router and, as it is idle, its network."""
        self.firewall.unplug(vif.id)
        self.networks.unplug(vif)
        self.known = [router for router in self.known if router.networks[0].id != vif.network.id]
        self.routers.set(list(self.known))
        assert self.networks.remove_idle(0) == [vif.network.id]


class Times:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, size: int, values: list[float]) -> None:
        """Print a row, and keep it."""
        row = {"what": what, "size": size, "median": statistics.median(values)}
        row |= {"least": min(values), "greatest": max(values)}
        self.rows.append(row)
        print(f"{what:46} {size:6} {row['median']:9.1f} {row['least']:9.1f} {row['greatest']:9.1f}", flush=True)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds that it takes, and what it returns."""
    started = time.perf_counter()
    result = work()
    return 1000 * (time.perf_counter() - started), result


def measure_routers(times: Times, host: Host, sizes: list[int], runs: int) -> None:
    for size in sizes:
        while len(host.known) < size:
            host.add(len(host.known))
        found: dict[str, list[float]] = {"add": [], "change": [], "look at all": [], "remove": []}
        for _ in range(runs):
            took, vif = timed(lambda: host.add(100_000))
            found["add"].append(took)
            found["change"].append(timed(lambda: host.change(len(host.known) // 2))[0])
            found["look at all"].append(timed(lambda: host.routers.set(list(host.known)))[0])
            found["remove"].append(timed(lambda vif=vif: host.remove(vif))[0])
        for what, values in found.items():
            times.add(f"router: {what}", size, values)
        times.add("memory of dnsmasq, MB", size, [memory()])


def memory() -> float:
    """Return the memory of this directory's dnsmasq processes, each page counted once."""
    total = 0
    for path in Path(dhcp.DIRECTORY).glob("*.pid"):
        for line in Path(f"/proc/{path.read_text().strip()}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1])
    return total / 1024


def rules_of(count: int) -> SecurityGroup:
    """Return a group of rules for single ports and ranges of addresses, none of which includes another."""
    group = SecurityGroup(id="g", name="g")
    group.rules = [
        SecurityGroupRule(
            id=f"r{number}",
            security_group_id="g",
            direction="ingress",
            ethertype="IPv4",
            protocol="tcp",
            port_range_min=1 + number % 60000,
            port_range_max=1 + number % 60000,
            remote_ip_prefix=f"10.{number // 256 % 256}.{number % 256}.0/24",
        )
        for number in range(count)
    ]
    return group


def measure_rules(times: Times, host: Host, sizes: list[int], runs: int) -> None:
    vif = host.add(200_000)
    for size in sizes:
        found: dict[str, list[float]] = {"set all": [], "add one": [], "look": []}
        for _ in range(runs):
            host.firewall.set(PortFilters())
            few = PortFilters(groups={"g": rules_of(size)}, instances={vif.id: ["g"]})
            more = PortFilters(groups={"g": rules_of(size + 1)}, instances={vif.id: ["g"]})
            found["set all"].append(timed(lambda few=few: host.firewall.set(few))[0])
            found["add one"].append(timed(lambda more=more: host.firewall.set(more))[0])
            found["look"].append(timed(lambda more=more: host.firewall.set(more))[0])
        for what, values in found.items():
            times.add(f"rule: {what}", size, values)
    host.remove(vif)


def measure_throughput(times: Times, host: Host, runs: int, seconds: float) -> None:
    one, two = network_of(300_000), network_of(300_001)
    vifs = [guest_on(one, 0), guest_on(one, 1), guest_on(two, 2)]
    host.known.append(router_of(300_000, vifs))
    host.routers.set(list(host.known))
    for place, vif in enumerate(vifs):
        assert host.networks.plug(vif, "guest")
        host.firewall.plug(vif.id, [vif])
        attach(vif, f"sg{place}")
    host.routers.set(list(host.known))
    bare("sb0", "sb1")
    every = [
        SecurityGroupRule(id=way, security_group_id="g", direction=way, ethertype="IPv4")
        for way in ("ingress", "egress")
    ]
    filters = PortFilters(
        groups={"g": SecurityGroup(id="g", name="g", rules=every)}, instances={vif.id: ["g"] for vif in vifs}
    )
    host.firewall.set(filters)
    ways = {
        "a bare bridge": ("sb0", "sb1", "10.250.0.2"),
        "guests of a network": ("sg0", "sg1", vifs[1].address),
        "guests behind a router": ("sg0", "sg2", vifs[2].address),
    }
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        for what, way in ways.items():
            found.setdefault(what, []).append(throughput(*way, seconds))
    for what, values in found.items():
        times.add(f"throughput, Gbit/s: {what}", 1, values)
    base = statistics.median(found["a bare bridge"])
    for what, values in found.items():
        print(f"  {what}: {statistics.median(values) / base:.2f} of a bare bridge")


def bare(first: str, second: str) -> None:
    """Connect two namespaces by a bridge without anything else. Bridged packets pass no rules of the host."""
    run("ip", "link", "add", "bare", "type", "bridge")
    run("ip", "link", "set", "bare", "up")
    for number, space in enumerate((first, second), 1):
        run("ip", "netns", "add", space)
        run("ip", "link", "add", f"bare{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", f"bare{number}", "master", "bare", "up")
        run("ip", "-n", space, "link", "set", "eth0", "mtu", "1450", "up")
        run("ip", "-n", space, "address", "add", f"10.250.0.{number}/24", "dev", "eth0")


def throughput(client: str, server: str, address: str, seconds: float) -> float:
    serving = ["ip", "netns", "exec", server, "iperf3", "--server", "--one-off", "--forceflush"]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        while "listening" not in listener.stdout.readline():
            assert listener.poll() is None
        text = run("ip", "netns", "exec", client, "iperf3", "--client", address, "--time", str(seconds), "--json")
        listener.communicate(timeout=30)
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"]) / 1e9


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",") if word]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--routers", type=numbers, default=[10, 100, 1000], help="default: 10,100,1000")
    parser.add_argument("--rules", type=numbers, default=[100, 1000, 10000], help="default: 100,1000,10000")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each connection (default: 3)")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    if _INSIDE not in os.environ:
        own = "mount -t tmpfs tmpfs /run/netns && mount -t sysfs sysfs /sys && ip link set lo up"
        command = f'mkdir -p /run/netns && {own} && exec "$0" "$@"'
        words = ["unshare", "--net", "--mount", "sh", "-c", command, sys.executable, *sys.argv]
        return subprocess.run(words, env={**os.environ, _INSIDE: "1"}, check=False).returncode
    times = Times()
    with tempfile.TemporaryDirectory(prefix="sizes", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        try:
            host = Host(directory)
            measure_throughput(times, host, arguments.runs, arguments.seconds)
            measure_rules(times, host, arguments.rules, arguments.runs)
            measure_routers(times, host, arguments.routers, arguments.runs)
        finally:
            for path in Path(directory).glob("*.pid"):
                os.kill(int(path.read_text()), signal.SIGKILL)
    if arguments.json:
        arguments.json.write_text(json.dumps(times.rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
