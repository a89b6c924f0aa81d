"""Frames and packets, as bytes."""

from __future__ import annotations

import ipaddress


def ether(source: str, target: str, kind: int, payload: bytes) -> bytes:
    return octets(target) + octets(source) + kind.to_bytes(2, "big") + payload


def octets(mac_address: str) -> bytes:
    return bytes.fromhex(mac_address.replace(":", ""))


def ipv4(source: str, target: str, payload: bytes, protocol: int = 17) -> bytes:
    head = bytes([0x45, 0]) + (20 + len(payload)).to_bytes(2, "big") + bytes([0, 0, 0, 0, 64, protocol])
    ends = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(target).packed
    return head + checksum(head + b"\0\0" + ends) + ends + payload


def checksum(data: bytes) -> bytes:
    total = sum(int.from_bytes(data[index : index + 2], "big") for index in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return (~total & 0xFFFF).to_bytes(2, "big")


def udp(source: int, target: int, payload: bytes = b"") -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in (source, target, 8 + len(payload), 0)) + payload


def ipv6_packet(source: str, target: str, following: int, payload: bytes) -> bytes:
    ends = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(target).packed
    return bytes([0x60, 0, 0, 0]) + len(payload).to_bytes(2, "big") + bytes([following, 255]) + ends + payload


def options(following: int) -> bytes:
    """Return an extension header of eight bytes: options for the destination, or for each hop."""
    return bytes([following, 0, 1, 4, 0, 0, 0, 0])


def fragment(following: int, payload: bytes, offset: int = 0, more: bool = True) -> bytes:
    """Return a fragment header with a piece of a packet. ``offset``: in units of eight bytes."""
    return bytes([following, 0]) + (offset << 3 | more).to_bytes(2, "big") + bytes(4) + payload


def part4(packet: bytes, offset: int = 0, more: bool = True) -> bytes:
    """Make an IPv4 packet a fragment."""
    head = packet[:6] + (more << 13 | offset).to_bytes(2, "big") + packet[8:10] + bytes(2) + packet[12:20]
    return head[:10] + checksum(head) + head[12:] + packet[20:]


def arp(operation: int, source_mac: str, source: str, target: str, target_mac: str = "00:00:00:00:00:00") -> bytes:
    head = bytes.fromhex("000108000604") + operation.to_bytes(2, "big")
    pairs = ((source_mac, source), (target_mac, target))
    return head + b"".join(octets(mac) + ipaddress.IPv4Address(address).packed for mac, address in pairs)


def neighbour(kind: int, target: str) -> bytes:
    return bytes([kind, 0, 0, 0, 0x20, 0, 0, 0]) + ipaddress.IPv6Address(target).packed
