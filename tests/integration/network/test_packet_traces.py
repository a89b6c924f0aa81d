"""The model of ``network trace`` against packets: generated topologies on two hosts, each guest a namespace.

The networks of many topologies, which have equal addresses, are on the hosts together.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pytest

from nova_lite.network.trace import frames, probe, walk
from nova_lite.network.trace.packets import GATEWAY, HOST, METADATA, OUTSIDE, Packet, Trace
from nova_lite.network.trace.probe import Comparison, Sending
from nova_lite.objects import PacketProbe, PacketSighting, PortFilters, ipv6
from nova_lite.virt.libvirt.net import namespaces, realms
from nova_lite.virt.libvirt.net.names import bridge_name, tap_name
from tests.integration.network import routed_host
from tests.integration.network.room import run
from tests.integration.network.routed_host import RoutedHost
from tests.support import topologies
from tests.support.topologies import HOST_OUTSIDE6, HOSTS, OUTSIDE6, Topology

#: Seeds of the test command, and of the long run. A round has as many topologies together.
SHORT, LONG, ROUND = range(1, 4), range(1, 1001), 20
_ALL = 3  # ETH_P_ALL
_TO_US = 0  # PACKET_HOST
#: Machines forward nothing, and use IPv6 addresses at once.
_SETTINGS = (
    "ipv4/ip_forward=0", "ipv6/conf/all/forwarding=0", "ipv6/conf/all/accept_dad=0", "ipv6/conf/default/accept_dad=0",
)  # fmt: skip
_ROUTES = ("198.51.0.0/16", "100.64.0.0/10")


#: Program that carries out probes as compute daemons do, which carry out one at a time.
_PROBE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import msgspec
from nova_lite.objects import VIF, PacketProbe
from nova_lite.virt.libvirt.net import probes
wanted, places = msgspec.json.decode(sys.stdin.readline(), type=tuple[list[tuple[PacketProbe, VIF | None]], dict])
print("ready", flush=True)
sys.stdin.readline()
probes.SENT, probes.SECONDS, probes.LONGER = (0.4, 0.9, 1.4), 1.9, 3.4  # the other host begins now, too
with ThreadPoolExecutor(100) as pool:
    found = pool.map(lambda item: probes.run(probes.checked(item[0]), *item, places), wanted)
    print(msgspec.json.encode(list(found)).decode())
"""


#: A rule of another program: frames leave no bridge.
_CLOSED = "table bridge closed { chain c { type filter hook postrouting priority 300; drop; }; }"


class TracedHost(RoutedHost):
    """A host with generated guests. ``observers``: sockets that see packets, by the name of their place."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.observers: dict[str, socket.socket] = {}
        self._senders: dict[tuple[str, int], socket.socket] = {}
        self._places: dict[str, tuple[str, str]] = {}
        out = self.space("out")
        namespaces.set_up(_SETTINGS, out)
        self._batch(self.host, [f"address add {HOST_OUTSIDE6}/64 dev up0 nodad", f"route add default via {OUTSIDE6}"])
        ways = [f"route add {target} via {topologies.HOST_OUTSIDE}" for target in _ROUTES]
        ways.append(f"route add fd00::/16 via {HOST_OUTSIDE6}")
        self._batch(out, [f"address add {OUTSIDE6}/64 dev eth0 nodad", *ways])
        self._observe(OUTSIDE, out)

    def _batch(self, space: str, lines: Sequence[str]) -> None:
        run("ip", "-n", space, "-batch", "-", text="\n".join([*lines, ""]))

    def _observe(self, name: str, space: str) -> None:
        """Open the sockets of a namespace."""
        with namespaces.within(space):
            self.observers[name] = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ALL))
            for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
                self._senders[name, version] = socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def add(self, name: str, topology: Topology) -> None:
        """Add the guests of a topology that are on this host. ``name``: the host's."""
        mine = [vif for vif in topology.vifs if topology.host_of[vif.id] == name]
        links = []
        for network in {vif.network.id: vif.network for vif in mine}.values():
            bridge = bridge_name(network)
            links.append(f"link add {bridge} mtu {network.mtu} type bridge")
            links.append(f"link set {bridge} addrgenmode none alias {realms.ALIAS}{network.id} up")
        for vif in mine:
            space = self.space(vif.id[:8])
            self._space(space)
            namespaces.set_up(_SETTINGS, space)
            links.append(f"link add {tap_name(vif)} type veth peer name eth0 netns {space}")
            links.append(f"link set {tap_name(vif)} addrgenmode none master {bridge_name(vif.network)} up")
        self._batch(self.host, links)
        for vif in mine:
            self.guests[vif.id] = vif
            lines = [f"link set eth0 address {vif.mac_address} mtu {vif.network.mtu} up"]
            lines.append(f"address add {vif.address}/24 dev eth0")
            lines += [f"address add {item.address}/64 dev eth0 nodad" for item in vif.more]
            lines += [
                f"address add {text} dev eth0" + " nodad" * (":" in text) for text in topology.virtual.get(vif.id, ())
            ]
            for gateway in (vif.network.gateway, ipv6.gateway(vif.network) if vif.more else None):
                lines += [f"route add default via {gateway}"] if gateway else []
            self._batch(self.space(vif.id[:8]), lines)
            self._observe(vif.id, self.space(vif.id[:8]))

    def carry_out(self, filters: PortFilters) -> None:
        """Run the daemon once with these filters."""
        settings = self._settings(tuple(filters.routers or ()), True)
        settings |= {"peers": filters.peers, "filters": msgspec.to_builtins(filters)}
        text = msgspec.json.encode(settings).decode()
        output = self.in_space(self.host, sys.executable, "-W", "ignore", "-c", routed_host._DRIVE, text=text)
        self._places = msgspec.json.decode(output)

    def probing(self, wanted: Sequence[PacketProbe]) -> subprocess.Popen[bytes]:
        """Start the host's part of probes, all at once. It continues when it gets a line."""
        command = ["ip", "netns", "exec", self.host, sys.executable, "-W", "ignore", "-c", _PROBE]
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert program.stdin is not None and program.stdout is not None
        mine = [(item, self.guests.get(item.port_id)) for item in wanted]
        program.stdin.write(msgspec.json.encode([mine, self._places]) + b"\n")
        program.stdin.flush()
        assert program.stdout.readline() == b"ready\n"
        return program

    def send(self, name: str, packet: Packet, data: bytes) -> None:
        """Send a packet from a place. One without a route is not sent."""
        with contextlib.suppress(OSError):
            self._senders[name, packet.version].sendto(data, (str(packet.destination), 0))

    def close(self) -> None:
        for item in (*self.observers.values(), *self._senders.values()):
            item.close()
        super().close()


@contextlib.contextmanager
def running(made: Sequence[Topology]) -> Iterator[Round]:
    """Provide two hosts with the guests of some topologies."""
    cloud, filters = topologies.merged(made)
    with contextlib.ExitStack() as stack:
        hosts = {}
        for number, name in enumerate(HOSTS, 1):
            hosts[name] = TracedHost(number)
            stack.callback(hosts[name].close)
        one, two = hosts.values()
        one.in_space(one.host, "ip", "link", "add", "under", "type", "veth", "peer", "name", "under", "netns", two.host)
        for name, host in hosts.items():
            host._batch(host.host, [f"address add {host.local_ip}/24 dev under", "link set under up"])
            for topology in made:
                host.add(name, topology)
            host.carry_out(filters[name])
        yield Round(made, cloud, hosts)


class Round(NamedTuple):
    """Topologies, and hosts that have all of them."""

    made: Sequence[Topology]
    cloud: walk.Cloud
    hosts: dict[str, TracedHost]

    def cases(self) -> list[_Case]:
        sent = [(topology, *item) for topology in self.made for item in topology.packets]
        return [
            _Case(topology, sender, packet, topologies.traced(self.cloud, topology, sender, packet), number)
            for number, (topology, sender, packet) in enumerate(sent)
        ]

    def sendings(self) -> list[tuple[Sending, Trace, PacketProbe]]:
        """Return the packets of ports that send from own addresses, with the model's answers and the probes."""
        found = []
        for case in self.cases():
            host = self.cloud.hosts[case.host]
            for interface in host.interfaces:
                if interface.id == case.sender and interface.has(case.packet.source):
                    sending = Sending(self.cloud, host, interface, case.packet)
                    if (item := sending.probe(case.mark)) is not None:
                        found.append((sending, case.trace, item))
        return found


class _Case:
    """Packet with the model's answer, and the places where it was seen."""

    def __init__(self, topology: Topology, sender: str | None, packet: Packet, trace: Trace, number: int) -> None:
        self.topology, self.sender, self.packet, self.trace = topology, sender, packet, trace
        self.mark = 0x6E6C0000 + number
        self.data = frames.make(packet, self.mark, number)
        first = trace.hops[0].host or HOSTS[0]
        self.host = topology.host_of[sender] if sender is not None else first
        self.seen: set[str] = set()
        self.is_answered = False

    @property
    def expected(self) -> tuple[set[str], bool | None]:
        """Return the places that see the packet, and whether a realm answers it. None: that does not matter."""
        at = self.trace.arrived_at
        if at in (METADATA, GATEWAY, HOST):
            return set(), True
        if at is None:
            return set(), False
        return {f"{OUTSIDE}-{self.host}" if at == OUTSIDE else at}, None

    def fits(self) -> bool:
        places, answered = self.expected
        return self.seen == places and answered in (None, self.is_answered)

    def __str__(self) -> str:
        hops = "\n".join(f"    {hop.host} {hop.kind}: {hop.text}" for hop in self.trace.hops)
        seen = f"seen at {sorted(self.seen)}, answered {self.is_answered}"
        return f"seed {self.topology.seed}, from {self.sender} on {self.host}, {self.packet}: {seen}\n{hops}"


def fates(hosts: dict[str, TracedHost], cases: list[_Case]) -> None:
    """Send the packets, some times, and note where they are seen."""
    by_mark = {case.mark: case for case in cases}
    with selectors.DefaultSelector() as selector:
        for name, host in hosts.items():
            for place, observer in host.observers.items():
                where = f"{OUTSIDE}-{name}" if place == OUTSIDE else place
                selector.register(observer, selectors.EVENT_READ, where)
        for _ in range(2):
            for case in cases:
                hosts[case.host].send(case.sender or OUTSIDE, case.packet, case.data)
                _look(selector, by_mark, 0.0)
            _look(selector, by_mark, 1.0)
        deadline = time.monotonic() + 10.0
        while (late := [case for case in cases if not case.fits()]) and time.monotonic() < deadline:
            for case in late:
                hosts[case.host].send(case.sender or OUTSIDE, case.packet, case.data)
            _look(selector, by_mark, 0.7)


def _look(selector: selectors.BaseSelector, by_mark: dict[int, _Case], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while found := selector.select(max(0.0, deadline - time.monotonic())):
        for key, _ in found:
            data, (_, _, kind, *_) = key.fileobj.recvfrom(200)  # type: ignore[union-attr]
            sighting = frames.seen(data)
            if kind != _TO_US or sighting is None or sighting.mark not in by_mark:
                continue
            case = by_mark[sighting.mark]
            if sighting.is_answer:
                case.is_answered |= key.data == case.sender
            elif case.sender is not None or not key.data.startswith(OUTSIDE):
                case.seen.add(key.data)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft"))), reason="needs root, ip and nft"
)


@pytest.fixture(scope="module")
def short() -> Iterator[Round]:
    with running([topologies.generate(seed) for seed in SHORT]) as made:
        yield made


@needs_root
def test_answer_of_the_model_equals_the_fate_of_packets(short: Round) -> None:
    cases = short.cases()
    fates(short.hosts, cases)
    wrong = [case for case in cases if not case.fits()]
    assert not wrong, "\n".join(map(str, wrong))
    assert len(cases) > 20


class _Probed(NamedTuple):
    """A probe: the sending, the model's answer, and the comparison."""

    sending: Sending
    trace: Trace
    comparison: Comparison

    def __str__(self) -> str:
        return f"{self.trace.packet}: {self.comparison.differences}"


def probed(round_: Round, tries: int = 3) -> list[_Probed]:
    """Send probes of the packets whose sources are those of their ports. A probe that differs is sent again.

    On a busy machine one host may end before another one has sent.
    """
    found, late = [], round_.sendings()
    while late and tries:
        tries -= 1
        every = _probed_once(round_.hosts, late)
        again = {number for number, item in enumerate(every) if item.comparison.differences and tries}
        found += [item for number, item in enumerate(every) if number not in again]
        late = [late[number] for number in sorted(again)]
    return found


def _probed_once(hosts: dict[str, TracedHost], wanted: Sequence[tuple[Sending, Trace, PacketProbe]]) -> list[_Probed]:
    programs = {name: host.probing([item for *_, item in wanted]) for name, host in hosts.items()}
    for program in programs.values():
        assert program.stdin is not None
        program.stdin.write(b"\n")
        program.stdin.flush()
    outputs = {name: program.communicate()[0] for name, program in programs.items()}
    by_host = {name: msgspec.json.decode(text, type=list[list[PacketSighting]]) for name, text in outputs.items()}
    made = []
    for number, (sending, trace, _) in enumerate(wanted):
        sightings = {name: items[number] for name, items in by_host.items()}
        made.append(_Probed(sending, trace, probe.compare(sending, trace, sightings)))
    return made


@needs_root
def test_probe_goes_the_way_of_the_model_and_a_changed_host_is_a_difference(short: Round) -> None:
    found = probed(short)
    wrong = [item for item in found if item.comparison.differences]
    assert not wrong, "\n".join(map(str, wrong))
    assert sum(item.comparison.seen.count(True) for item in found) > 20
    for host in short.hosts.values():
        host.in_space(host.host, "nft", "-f", "-", text=_CLOSED)
    changed = {item.trace.packet for item in probed(short, tries=1) if item.comparison.differences}
    assert changed == {item.trace.packet for item in found if item.trace.arrives}


@needs_root
@pytest.mark.skipif(os.environ.get("NOVA_LITE_LONG") != "1", reason="takes long; NOVA_LITE_LONG=1 runs it")
@pytest.mark.timeout(4 * 3600)
def test_answer_of_the_model_equals_the_fate_of_packets_and_probes_in_a_thousand_topologies() -> None:
    wrong: list[str] = []
    count = 0
    for first in LONG[::ROUND]:
        with running([topologies.generate(seed) for seed in range(first, first + ROUND)]) as made:
            cases = made.cases()
            fates(made.hosts, cases)
            wrong += [str(case) for case in cases if not case.fits()]
            found = probed(made)
            wrong += [str(item) for item in found if item.comparison.differences]
            count += len(cases) + len(found)
        print(f"topologies to {first + ROUND - 1}: {count} packets and probes, {len(wrong)} differ", flush=True)
    assert not wrong, "\n".join(wrong)
