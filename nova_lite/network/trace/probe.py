"""Probes of the way of a packet: the packet that hosts look for, and the differences from the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nova_lite.network.trace import walk
from nova_lite.network.trace.hosts import Host, Interface
from nova_lite.network.trace.packets import GATEWAY, HOST, METADATA, Packet, Trace
from nova_lite.objects import PacketProbe, PacketSighting, Place
from nova_lite.objects.packet_probe import AT_GATEWAY, AT_OUTSIDE, AT_PORT, AT_TUNNEL, AT_WAY_OUT

#: Places that hosts have seen, by host. None: the host did not answer.
Sightings = Mapping[str, Sequence[PacketSighting] | None]


class Sending(NamedTuple):
    """A packet that a port of a cloud sends."""

    cloud: walk.Cloud
    host: Host
    interface: Interface
    packet: Packet

    def probe(self, mark: int) -> PacketProbe | None:
        """Return the probe of the packet. None: its guest would send nothing, since no neighbour takes the packet."""
        neighbour = walk.neighbour(*self)
        if neighbour is None:
            return None
        return PacketProbe(
            instance_uuid=self.interface.instance_uuid,
            port_id=self.interface.id,
            source=str(self.packet.source),
            destination=str(self.packet.destination),
            protocol=self.packet.protocol,
            port=self.packet.port,
            neighbour=neighbour or None,
            mark=mark,
        )


class Comparison(NamedTuple):
    """``seen``: by hop of the model, whether the probe was seen after it; None: no place shows that.

    ``differences``: sentences; none if the model and the probe agree.
    """

    seen: list[bool | None]
    differences: list[str]


def compare(sending: Sending, trace: Trace, sightings: Sightings) -> Comparison:
    """Compare the way of the model with the places where hosts have seen the probe."""
    found = {
        (host, item.place): item for host, items in sightings.items() for item in items or () if not item.is_answer
    }
    is_answered = any(item.is_answer for item in sightings.get(sending.host.name) or ())
    answers = trace.arrived_at in (METADATA, GATEWAY, HOST) and sending.packet.protocol != "udp"
    seen: list[bool | None] = []
    last = "was not sent"
    differences: list[str] = []
    for hop in trace.hops:
        is_known = sightings.get(hop.host or "") is not None
        if hop.place is not None:
            seen.append((hop.host, hop.place) in found if is_known else None)
        else:
            seen.append(is_answered if is_known and answers and hop is trace.hops[-1] else None)
        if seen[-1] and hop.place is not None:
            last = _words(str(hop.host), found[str(hop.host), hop.place])
        elif seen[-1] is False and not differences:
            differences.append(f"The model: {hop.text} The probe {last}, and was not seen any more.")
    expected = {hop.place for hop in trace.hops}
    for (host, place), item in found.items():
        if place not in expected and _counts(sending, host, place):
            differences.append(f"The probe {_words(host, item)}. The model does not lead it there.")
    if is_answered and not trace.arrives:
        differences.append("The probe was answered. The model says that it does not arrive.")
    return Comparison(seen, differences)


def _counts(sending: Sending, host: str, place: Place) -> bool:
    """Check whether a packet comes to a place only by its way. Bridges send some packets to all of their devices."""
    if place.kind == AT_TUNNEL or place.enters is (place.kind in (AT_PORT, AT_OUTSIDE)):
        return False
    return not any(item.id == place.id and item.vif.unguarded for item in sending.cloud.hosts[host].interfaces)


_PLACES = {
    (AT_PORT, True): "came from port {id}",
    (AT_PORT, False): "reached port {id}",
    (AT_GATEWAY, True): "was routed into network {id}",
    (AT_TUNNEL, True): "came through the tunnel of network {id}",
    (AT_WAY_OUT, True): "left router or network {id}",
    (AT_OUTSIDE, False): "left the host",
}


def _words(host: str, item: PacketSighting) -> str:
    place = _PLACES[item.place.kind, item.place.enters].format(id=item.place.id)
    return f"{place} on {host}, from {item.source} to {item.destination}"
