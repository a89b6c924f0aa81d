"""A guest attacks a tenant that has every address in common with its own: nothing of it arrives there, or under the
address of the other.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.integration.network.frames import arp, ether, ipv4, part4, udp
from tests.integration.network.room import OUTSIDE, within_patience
from tests.integration.network.routed_host import A, RoutedHost
from tests.integration.network.tenants import FLOATING, OTHER_FLOATING, answer, populate

OWN, NEIGHBOUR, GATEWAY = "10.1.0.10", "10.1.0.20", "10.1.0.1"
EVERYBODY = "ff:ff:ff:ff:ff:ff"
CONTROL = "control."

#: Prints the source and the mark of each packet that arrives at eth0, except errors that quote it.
_WATCH = """
import re, socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 0))
print("watching", flush=True)
while True:
    frame, address = s.recvfrom(2000)
    mark = re.search(rb"(attack \\d\\d|control)[.]", frame)
    if mark and address[2] != socket.PACKET_OUTGOING and frame[23] != socket.IPPROTO_ICMP:
        print(socket.inet_ntoa(frame[26:30]), mark[0].decode(), flush=True)
"""
_SEND = """
import socket, sys
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
for frame in sys.argv[1:]:
    s.send(bytes.fromhex(frame))
"""


@contextlib.contextmanager
def watching(host: RoutedHost, who: str) -> Iterator[Callable[[], list[str]]]:
    """Watch a machine. Yields a function that returns what has arrived with a mark, up to a control."""
    command = ["ip", "netns", "exec", host.space(who), sys.executable, "-c", _WATCH]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None and watcher.stdout.readline() == "watching\n"
        lines = iter(watcher.stdout.readline, "")

        def arrived() -> list[str]:
            found = list[str]()
            while not found or CONTROL not in found[-1]:
                found.append(next(lines).strip())
            return found

        try:
            yield arrived
        finally:
            watcher.kill()


def send(host: RoutedHost, who: str, *frames: bytes) -> None:
    host.in_space(host.space(who), sys.executable, "-c", _SEND, *(frame.hex() for frame in frames))


def send_control(host: RoutedHost, who: str, address: str) -> None:
    """Send a datagram that has to arrive after what was sent before."""
    text = f"import socket; socket.socket(type=socket.SOCK_DGRAM).sendto({CONTROL.encode()!r}, ({address!r}, 80))"
    host.in_space(host.space(who), sys.executable, "-c", text)


def device(host: RoutedHost, space: str, name: str, what: str) -> str:
    """Return the ``link/ether`` or ``inet`` of a device."""
    words = host.in_space(space, "ip", "-4" if what == "inet" else "-0", "address", "show", "dev", name).split()
    return words[words.index(what) + 1].split("/")[0]


def attacks(one: RoutedHost) -> dict[str, Callable[[bytes], bytes]]:
    """Return frames of q1, by what they try, as functions of a mark of ten bytes."""
    mine, theirs = one.guests["q1"].mac_address, one.guests["p1"].mac_address
    beyond = theirs.replace(":0a", ":14")
    gateway = device(one, one.realm("router-q"), "brsame", "link/ether")
    link = device(one, one.realm("router-p"), "nlup", "inet")

    def routed(source: str, target: str, wrapped: Callable[[bytes], bytes] = bytes) -> Callable[[bytes], bytes]:
        return lambda mark: ether(mine, gateway, 0x0800, ipv4(source, target, udp(5555, 80, wrapped(mark))))

    def bridged(source: str, target: str, source_ip: str, target_ip: str) -> Callable[[bytes], bytes]:
        return lambda mark: ether(source, target, 0x0800, ipv4(source_ip, target_ip, udp(5555, 80, mark)))

    def tunnelled(source: str, target: str) -> Callable[[bytes], bytes]:
        inner, head = bridged(mine, theirs, NEIGHBOUR, OWN), b"\x08\0\0\0" + (A.vni or 0).to_bytes(3, "big") + b"\0"
        return lambda mark: ether(mine, gateway, 0x0800, ipv4(source, target, udp(4789, 4789, head + inner(mark))))

    def part(offset: int, more: bool) -> Callable[[bytes], bytes]:
        text = (lambda mark: udp(5555, 80, mark + bytes(6))) if more else (lambda mark: mark + bytes(6))
        return lambda mark: ether(mine, gateway, 0x0800, part4(ipv4(link, OUTSIDE, text(mark)), offset, more))

    #: Links of realms and of floating addresses.
    links = {f"from link {number}": routed(f"169.254.192.{number}", OUTSIDE) for number in range(1, 9)}
    return links | {
        "from the other's link to its floating address": routed(link, FLOATING),
        "from the other's floating address": routed(FLOATING, OUTSIDE),
        "from the host": routed("10.8.0.1", OUTSIDE),
        "to the other's link": routed(OWN, link),
        "to the other's link, from the host's": routed("169.254.192.1", link),
        "to the other's machine": bridged(mine, theirs, OWN, NEIGHBOUR),
        "as the other's machine": bridged(theirs, beyond, OWN, NEIGHBOUR),
        "as the gateway": bridged(mine, theirs, GATEWAY, OWN),
        "in a tunnel to the host": tunnelled(OWN, "10.8.0.1"),
        "in a tunnel to the other host": tunnelled(OWN, "10.8.0.2"),
        "in a tunnel as the other host": tunnelled("10.8.0.2", "10.8.0.1"),
        "first fragment": part(0, True),
        "next fragment": part(2, False),
        "address resolution": lambda mark: ether(mine, EVERYBODY, 0x0806, arp(2, mine, NEIGHBOUR, OWN, theirs) + mark),
    }


@pytest.mark.parametrize("unguarded", [(), ("q1",)], ids=["guarded", "without port security"])
def test_attacks_on_a_tenant_with_equal_addresses_reach_nobody(
    hosts: tuple[RoutedHost, RoutedHost], unguarded: tuple[str, ...]
) -> None:
    one, two = populate(hosts, *unguarded)
    assert within_patience(lambda: answer(one, "q1", NEIGHBOUR) == "q2")
    assert within_patience(lambda: answer(one, "p1", NEIGHBOUR) == "p2")
    tried = attacks(one)
    with contextlib.ExitStack() as stack:
        seen = [stack.enter_context(watching(host, who)) for host, who in ((one, "p1"), (two, "p2"), (one, "out"))]
        send(one, "q1", *(frame(b"attack %02d." % number) for number, frame in enumerate(tried.values())))
        for who, address in (("out", FLOATING), ("p1", NEIGHBOUR), ("q1", OUTSIDE)):
            send_control(one, who, address)
        arrived = [lines() for lines in seen]
    wanted = [[f"{source} {CONTROL}"] for source in (OUTSIDE, OWN, OTHER_FLOATING)]
    assert arrived == wanted, list(enumerate(tried))
