"""IP packets with a mark that translations of addresses leave alone, and the kernel's filter that finds them alone."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from nova_lite.network.trace.packets import TCP, UDP, Packet
from nova_lite.objects.security_group import ICMP, ICMPV6

_SYN, _RST, _ACK = 2, 4, 16
_REPLIES = {ICMP: 0, ICMPV6: 129}
#: Follows the mark in pings and datagrams.
_WORD = b"nlpp"
#: Bytes of a found packet that the kernel shows: headers and the mark.
_SHOWN = 128
#: Operations of the kernel's filters (``linux/filter.h``): load into A or X, compare, mask, and return.
_LD_BYTE, _LD_WORD_X, _LD_BYTE_X, _LDX_HEADER, _LDX = 0x30, 0x40, 0x50, 0xB1, 0x01
_JEQ, _JSET, _AND, _RET = 0x15, 0x45, 0x54, 0x06


class Sighting(NamedTuple):
    """A packet that was seen. ``is_answer``: it answers the marked packet."""

    mark: int
    is_answer: bool


def make(packet: Packet, mark: int, number: int) -> bytes:
    """Return a packet with an IP header. ``number``: another one for each packet, up to 40,000."""
    source, target, protocol = packet.source.packed, packet.destination.packed, packet.number
    marked = struct.pack("!I", mark) + _WORD
    if protocol == TCP:
        body = struct.pack("!HHIIBBHHH", 20_000 + number, packet.port, mark, 0, 5 << 4, _SYN, 1024, 0, 0)
        place = 16
    elif protocol == UDP:
        body, place = struct.pack("!HHHH", 20_000 + number, packet.port, 8 + len(marked), 0) + marked, 6
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
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def seen(data: bytes) -> Sighting | None:
    """Return the mark of a packet with an IP header, None for others."""
    if len(data) < 36:
        return None
    version = data[0] >> 4
    protocol, body = (data[9], data[(data[0] & 15) * 4 :]) if version == 4 else (data[6], data[40:])
    if len(body) < 16 or protocol not in (TCP, UDP, ICMP, ICMPV6):
        return None
    if protocol == TCP:
        if len(body) < 20:
            return None
        number, answered, flags = (*struct.unpack("!II", body[4:12]), body[13])
        if flags & _ACK and flags & (_SYN | _RST):
            return Sighting(answered - 1, True)
        return Sighting(number, False) if flags == _SYN else None
    if body[12:16] != _WORD:
        return None
    (mark,) = struct.unpack("!I", body[8:12])
    if protocol == UDP:
        return Sighting(mark, False)
    if body[0] == _REPLIES[protocol]:
        return Sighting(mark, True)
    return Sighting(mark, False) if body[0] in (8, 128) else None


def addresses(data: bytes) -> tuple[str, str]:
    """Return source and destination of a packet with an IP header."""
    kind, first, size = (socket.AF_INET, 12, 4) if data[0] >> 4 == 4 else (socket.AF_INET6, 8, 16)
    middle = first + size
    return socket.inet_ntop(kind, data[first:middle]), socket.inet_ntop(kind, data[middle : middle + size])


def kernel_filter(mark: int) -> bytes:
    """Return the program by which the kernel shows packets with this mark, and their answers, and no others.

    It reads packets from their IP header on.
    """
    (word,) = struct.unpack("!I", _WORD)
    lines: list[tuple[int, int, str | None, str | None]] = [
        (_LD_BYTE, 0, None, None),
        (_AND, 0xF0, None, None),
        (_JEQ, 0x60, "six", None),
        (_JEQ, 0x40, None, "nothing"),
        (_LDX_HEADER, 0, None, None),
        (_LD_BYTE, 9, None, None),
        (_JEQ, TCP, "tcp", "others"),
    ]
    names = {"six": len(lines)}
    lines += [(_LDX, 40, None, None), (_LD_BYTE, 6, None, None), (_JEQ, TCP, "tcp", None)]
    names["others"] = len(lines)
    lines += [
        *((_JEQ, number, "marked", None) for number in (UDP, ICMP)),
        (_JEQ, ICMPV6, "marked", "nothing"),
    ]
    names["marked"] = len(lines)
    lines += [
        (_LD_WORD_X, 8, None, None),
        (_JEQ, mark, None, "nothing"),
        (_LD_WORD_X, 12, None, None),
        (_JEQ, word, "found", "nothing"),
    ]
    names["tcp"] = len(lines)
    lines += [
        (_LD_BYTE_X, 13, None, None),
        (_JEQ, _SYN, None, "answer"),
        (_LD_WORD_X, 4, None, None),
        (_JEQ, mark, "found", "nothing"),
    ]
    names["answer"] = len(lines)
    lines += [
        (_JSET, _ACK, None, "nothing"),
        (_JSET, _SYN | _RST, None, "nothing"),
        (_LD_WORD_X, 8, None, None),
        (_JEQ, mark + 1, "found", "nothing"),
    ]
    names["found"] = len(lines)
    lines.append((_RET, _SHOWN, None, None))
    names["nothing"] = len(lines)
    lines.append((_RET, 0, None, None))
    return b"".join(
        struct.pack("=HBBI", code, *(names[to] - at - 1 if to else 0 for to in ways), value)
        for at, (code, value, *ways) in enumerate(lines)
    )
