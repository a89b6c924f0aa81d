"""IP packets with a mark that translations of addresses leave alone."""

from __future__ import annotations

import struct
from typing import NamedTuple

from nova_lite.network.trace.packets import TCP, UDP, Packet
from nova_lite.objects.security_group import ICMP, ICMPV6

_SYN, _RST, _ACK = 2, 4, 16
_REPLIES = {ICMP: 0, ICMPV6: 129}


class Sighting(NamedTuple):
    """A packet that was seen. ``is_answer``: it answers the marked packet."""

    mark: int
    is_answer: bool


def make(packet: Packet, mark: int, number: int) -> bytes:
    """Return a packet with an IP header. ``number``: another one for each packet, up to 40,000."""
    source, target, protocol = packet.source.packed, packet.destination.packed, packet.number
    marked = struct.pack("!I", mark)
    if protocol == TCP:
        body = struct.pack("!HHIIBBHHH", 20_000 + number, packet.port, mark, 0, 5 << 4, _SYN, 1024, 0, 0)
        place = 16
    elif protocol == UDP:
        body, place = struct.pack("!HHHH", 20_000 + number, packet.port, 12, 0) + marked, 6
    else:
        body, place = struct.pack("!BBHHH", packet.icmp[0], 0, 0, number + 1, 1) + marked, 2
    pseudo = b"" if protocol == ICMP else source + target + struct.pack("!II", len(body), protocol)
    body = body[:place] + struct.pack("!H", _checksum(pseudo + body) or 0xFFFF) + body[place + 2 :]
    if packet.version == 6:
        return struct.pack("!IHBB", 6 << 28, len(body), protocol, 64) + source + target + body
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), number + 1, 0, 64, protocol, 0) + source + target
    return head[:10] + struct.pack("!H", _checksum(head)) + head[12:] + body


def _checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def seen(data: bytes) -> Sighting | None:
    """Return the mark of a packet with an IP header, None for others."""
    if len(data) < 32:
        return None
    version = data[0] >> 4
    protocol, body = (data[9], data[(data[0] & 15) * 4 :]) if version == 4 else (data[6], data[40:])
    if len(body) < 12 or protocol not in (TCP, UDP, ICMP, ICMPV6):
        return None
    if protocol == TCP:
        if len(body) < 20:
            return None
        number, answered, flags = (*struct.unpack("!II", body[4:12]), body[13])
        if flags & _ACK and flags & (_SYN | _RST):
            return Sighting(answered - 1, True)
        return Sighting(number, False) if flags == _SYN else None
    (mark,) = struct.unpack("!I", body[8:12])
    if protocol == UDP:
        return Sighting(mark, False)
    if body[0] == _REPLIES[protocol]:
        return Sighting(mark, True)
    return Sighting(mark, False) if body[0] in (8, 128) else None
