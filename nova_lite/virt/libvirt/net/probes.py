"""Probes: a marked packet of a guest's port, and the places of this host where it is seen.

The packet enters where the guest's own would: a device of the probe receives it, and the kernel passes it on as
received from the guest's tap device. The device is gone with its file. No other packet is looked at: the kernel shows
those with the mark alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping

from nova_lite.base import clock, exceptions, ip, threads
from nova_lite.network.trace import frames
from nova_lite.network.trace.packets import PROTOCOLS, Packet
from nova_lite.objects import VIF, PacketProbe, PacketSighting, Place
from nova_lite.objects.packet_probe import AT_OUTSIDE
from nova_lite.virt import abilities
from nova_lite.virt.libvirt.context import HostPart
from nova_lite.virt.libvirt.net import dual_stack, namespaces, nft
from nova_lite.virt.libvirt.net.names import bridge_mac, tap_name
from nova_lite.virt.libvirt.net.networks import HostNetworks
from nova_lite.virt.libvirt.records import file_errors

#: Seconds after which a packet is sent: again, since a neighbour may not be known at first.
SENT = (1.0, 1.8, 2.6)
#: Seconds in which the sending host looks for it, and another one, which the message may reach sooner or later.
SECONDS, LONGER = 4.0, 6.0
#: Numbers of Linux that `socket` does not name.
_EVERYTHING, _ATTACH_FILTER, _OUTGOING = 3, 26, 4
_TUNSETIFF, _TAP, _NO_PI = 0x400454CA, 0x0002, 0x1000
_TUN = "/dev/net/tun"
#: Kinds and ids of places, by the names of devices.
Places = Mapping[str, tuple[str, str]]
#: Beginnings of devices of this daemon, or of another one of this machine, and the kernel's own.
_OWN = ("tap", "nl", "lo")


@dataclasses.dataclass(eq=False)
class PacketProbes(HostPart, abilities.Probes):
    """Probes of this host, one at a time."""

    _networks: HostNetworks

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = threads.Lock()

    @file_errors()
    def run(self, probe: PacketProbe) -> list[PacketSighting]:
        packet = checked(probe)
        found = [item for item in self._records.read_interfaces(probe.instance_uuid) if item.id == probe.port_id]
        if not self._lock.acquire(blocking=False):
            raise exceptions.Conflict(f"Host {self._host} is busy with another probe of a packet.")
        try:
            return run(packet, probe, next(iter(found), None), self._networks.places())
        finally:
            self._lock.release()


def checked(probe: PacketProbe) -> Packet:
    """Return the packet of a probe. Raises `InvalidInput` unless all of its values are valid."""
    try:
        packet = Packet(ip.parse(probe.source), ip.parse(probe.destination), probe.protocol, probe.port)
        source, target = packet.source, packet.destination
        if source.version != target.version or target.is_multicast or str(target) == "255.255.255.255":
            raise ValueError(f"no packet goes from {source} to {target}")
        if probe.protocol not in PROTOCOLS or (probe.protocol == "icmp") is not (probe.port is None):
            raise ValueError(f"protocol {probe.protocol!r}, port {probe.port}")
        if not (0 < (1 if probe.port is None else probe.port) < 65536 and 0 < probe.mark < 2**32 - 1):
            raise ValueError(f"port {probe.port}, mark {probe.mark}")
        if probe.neighbour is not None:
            nft.mac(probe.neighbour)
    except ValueError as error:
        raise exceptions.InvalidInput(reason=f"probe: {error}") from error
    return packet


def run(packet: Packet, probe: PacketProbe, sender: VIF | None, places: Places) -> list[PacketSighting]:
    """Look for a packet, and send it some times if its port is on this host. Return where it was seen, in order.

    Raises `InvalidInput` for an address that is not the port's.
    """
    found: dict[PacketSighting, None] = {}
    with contextlib.ExitStack() as stack:
        watcher = stack.enter_context(_watching(probe.mark))
        send = stack.enter_context(_sending(packet, probe, sender)) if sender is not None else lambda: None
        start = clock.monotonic()
        for moment in SENT:
            _look(watcher, start + moment, places, found)
            send()
        _look(watcher, start + (LONGER if sender is None else SECONDS), places, found)
    return list(found)


@contextlib.contextmanager
def _watching(mark: int) -> Iterator[socket.socket]:
    """Open a socket that gets the packets with a mark, from all devices."""
    program = frames.kernel_filter(mark)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as watcher:
        text = ctypes.create_string_buffer(program, len(program))
        pointer = struct.pack("@HP", len(program) // 8, ctypes.addressof(text))
        watcher.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, pointer)
        # The socket gets packets as soon as it has a protocol, so the filter comes first. Python binds to one device.
        every = struct.pack("=HHi12x", socket.AF_PACKET, socket.htons(_EVERYTHING), 0)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.bind(watcher.fileno(), every, len(every)):
            raise OSError(ctypes.get_errno(), "no packets of all devices")
        yield watcher


@contextlib.contextmanager
def _sending(packet: Packet, probe: PacketProbe, sender: VIF) -> Iterator[Callable[[], object]]:
    """Yield a function that lets the packet come from the port's device."""
    own = [ip.parse(sender.address), *map(ip.parse, dual_stack.addresses(sender))]
    if packet.source not in own or sender.vif_type is not None or sender.is_device:
        raise exceptions.InvalidInput(reason=f"probe: {packet.source} is no address of port {sender.id} here")
    neighbour = nft.mac(probe.neighbour) if probe.neighbour is not None else bridge_mac(sender.network.vni or 0)
    kind = b"\x08\x00" if packet.version == 4 else b"\x86\xdd"
    macs = bytes.fromhex(f"{neighbour}{nft.mac(sender.mac_address)}".replace(":", ""))
    frame = macs + kind + frames.make(packet, probe.mark, probe.mark % 40_000)
    device = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        request = fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"nlprobe%d", _TAP | _NO_PI))
        name = request[:16].rstrip(b"\0").decode()
        namespaces.ip_batch([f"link set dev {name} addrgenmode none", f"link set dev {name} up"])
        redirect = f"action mirred ingress redirect dev {tap_name(sender)}"
        lines = [
            f"qdisc add dev {name} clsact",
            f"filter add dev {name} ingress protocol all u32 match u32 0 0 {redirect}",
        ]
        namespaces.run("tc", "-batch", "-", text="".join(f"{line}\n" for line in lines))
        yield lambda: os.write(device, frame)
    finally:
        os.close(device)


def _look(watcher: socket.socket, deadline: float, places: Places, found: dict[PacketSighting, None]) -> None:
    """Note the packets that are seen until a deadline."""
    while (seconds := deadline - clock.monotonic()) > 0:
        watcher.settimeout(seconds)
        try:
            data, (device, _, kind, *_) = watcher.recvfrom(2048)
        except TimeoutError:
            return
        sighting, place = frames.seen(data), _place(device, kind == _OUTGOING, places)
        if sighting is not None and place is not None:
            source, destination = frames.addresses(data)
            found[PacketSighting(place, source, destination, sighting.is_answer)] = None


def _place(device: str, is_leaving: bool, places: Places) -> Place | None:
    """Return the place of a device, None for a device that shows nothing of the way."""
    if device in places:
        return Place(*places[device], enters=not is_leaving)
    return Place(AT_OUTSIDE, "", enters=False) if is_leaving and not device.startswith(_OWN) else None
