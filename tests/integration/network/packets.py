"""Packets between network namespaces: pings and TCP connections."""

from __future__ import annotations

import sys

from nova_lite.objects import SecurityGroupRule
from tests.integration.network.room import Room, within_patience


def rule(**values: object) -> SecurityGroupRule:
    return SecurityGroupRule(id="r", security_group_id="g", **values)  # type: ignore[arg-type]


def tcp(port: int, **values: object) -> SecurityGroupRule:
    return rule(protocol="tcp", port_range_min=port, port_range_max=port, **values)


_PING = """
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.settimeout(0.7)
head = struct.pack("!BBHHH", 8, 0, 0, 7, 1)
total = sum(struct.unpack("!4H", head))
s.sendto(struct.pack("!BBHHH", 8, 0, ~(total + (total >> 16)) & 0xFFFF, 7, 1), (sys.argv[1], 0))
try:
    print(s.recv(100)[20])
except TimeoutError:
    print("nothing")
"""


def pinged(room: Room, address: str, who: str = "out") -> bool:
    return within_patience(lambda: not unpinged(room, address, who))


def unpinged(room: Room, address: str, who: str = "out") -> bool:
    """Check whether one ping remains unanswered."""
    return room.in_space(room.space(who), sys.executable, "-c", _PING, address) != "0\n"
