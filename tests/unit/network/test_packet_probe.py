"""Probes of packets: their marks, the kernel's filter, and the differences from the model."""

from __future__ import annotations

import ctypes
import socket
import struct

import pytest

from nova_lite.base import ip
from nova_lite.network.trace import frames, probe, walk
from nova_lite.network.trace.hosts import Host
from nova_lite.network.trace.packets import Packet
from nova_lite.network.trace.probe import Sending
from nova_lite.objects import (
    VIF,
    HostRouter,
    Network,
    PacketSighting,
    Place,
    PortFilters,
    SecurityGroup,
    SecurityGroupRule,
)
from nova_lite.objects.packet_probe import AT_GATEWAY, AT_OUTSIDE, AT_PORT, AT_TUNNEL, AT_WAY_OUT
from nova_lite.objects.security_group import outward_rules

A, B = (
    Network(id=name, name=name, cidr=f"10.{vni}.0.0/24", gateway=f"10.{vni}.0.1", vni=vni, needs_router=True)
    for name, vni in (("a", 1), ("b", 2))
)
GROUP = "11111111-2222-3333-4444-555555555555"
MARK = 0x12345678
FRIEND = Place(AT_PORT, "b2", False)


def vif(network: Network, unguarded: bool = False) -> VIF:
    return VIF(
        id=f"{network.id}2",
        mac_address=f"fa:16:3e:00:00:0{network.vni}",
        address=network.cidr.replace("0/24", "2"),
        network=network,
        port_security_enabled=not unguarded,
        unguarded=unguarded,
    )


def sending(
    target: str = "10.2.0.2", protocol: str = "icmp", *, is_open: bool = True, unguarded: bool = False
) -> Sending:
    """Return a packet of port a2 on h1. Port b2 is on h2, and a router connects both."""
    group = SecurityGroup(id=GROUP, name="g", rules=outward_rules(GROUP))
    if is_open:
        group.rules.append(SecurityGroupRule(id="in", security_group_id=GROUP, direction="ingress"))
    router = HostRouter(id="r", networks=[A, B], external=True, neighbours={"b": {"10.2.0.2": "fa:16:3e:00:00:02"}})
    hosts = []
    for name, tunnel, other, item in (("h1", "10.8.0.1", "10.8.0.2", A), ("h2", "10.8.0.2", "10.8.0.1", B)):
        filters = PortFilters(
            groups={GROUP: group}, instances={"i": [GROUP]}, routers=[router], peers={"a": [other], "b": [other]}
        )
        hosts.append(Host(name, filters, {"i": [vif(item, unguarded and item is B)]}, tunnel))
    packet = Packet(ip.parse("10.1.0.2"), ip.parse(target), protocol, None if protocol == "icmp" else 80)
    return Sending(walk.Cloud(hosts), hosts[0], hosts[0].interfaces[0], packet)


def at(*places: Place, is_answer: bool = False) -> list[PacketSighting]:
    return [PacketSighting(place, "10.1.0.2", "10.2.0.2", is_answer) for place in places]


START, ROUTED = Place(AT_PORT, "a2", True), Place(AT_GATEWAY, "b", True)
TUNNEL = Place(AT_TUNNEL, "b", True)
ANSWERED = Place(AT_PORT, "a2", False)


def compare(packet: Sending, *here: Place, there: list[PacketSighting] | None = None) -> probe.Comparison:
    trace = walk.from_port(packet.cloud, packet.host, packet.interface, packet.packet)
    return probe.compare(packet, trace, {"h1": at(*here), "h2": there})


# --- marks


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("protocol", ["icmp", "tcp", "udp"])
def test_kernel_shows_a_marked_packet_and_its_answer_alone(protocol: str, version: int) -> None:
    source, target = map(ip.parse, ("10.1.0.2", "10.2.0.2") if version == 4 else ("fd00::1", "fd00::2"))
    packet = Packet(source, target, protocol, None if protocol == "icmp" else 80)
    start = 20 if version == 4 else 40
    asked, other = frames.make(packet, MARK, 1), frames.make(packet, MARK + 1, 1)
    answers = []
    if protocol == "tcp":
        answers = [
            asked[: start + 8] + struct.pack("!IBB", MARK + 1, 80, flags) + asked[start + 14 :] for flags in (18, 20)
        ]
    elif protocol == "icmp":
        answers = [asked[:start] + bytes([0 if version == 4 else 129]) + asked[start + 1 :]]
    data = asked[: start + 13] + b"\x10" + asked[start + 14 :]  # acknowledges, or has another word
    receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with receiver, sender:
        program = frames.kernel_filter(MARK)
        text = ctypes.create_string_buffer(program, len(program))
        receiver.setsockopt(socket.SOL_SOCKET, 26, struct.pack("@HP", len(program) // 8, ctypes.addressof(text)))
        receiver.setblocking(False)
        for item in (other, data, b"\x45" + bytes(60), asked, *answers):
            sender.send(item)
        found = []
        with pytest.raises(BlockingIOError):
            while True:
                found.append(receiver.recv(200))
    assert found == [asked, *answers]
    assert [frames.seen(item) for item in found] == [(MARK, False), *([(MARK, True)] * len(answers))]
    assert frames.seen(data) is None
    assert frames.addresses(asked) == (str(source), str(target))


# --- the probe


def test_probe_goes_to_the_gateway_or_to_a_neighbour() -> None:
    found = sending(protocol="tcp").probe(MARK)
    assert found is not None
    assert (found.instance_uuid, found.port_id, found.source, found.destination) == ("i", "a2", "10.1.0.2", "10.2.0.2")
    assert (found.protocol, found.port, found.neighbour, found.mark) == ("tcp", 80, None, MARK)
    assert sending("10.1.0.9").probe(MARK) is None, "nobody has the address, so the guest finds no neighbour"
    near = sending("10.1.0.2").probe(MARK)
    assert near is not None and near.neighbour == "fa:16:3e:00:00:01"


def test_probe_on_the_way_of_the_model_is_no_difference() -> None:
    found = compare(sending(), START, ROUTED, there=at(TUNNEL, FRIEND))
    assert found.differences == []
    assert found.seen == [True, None, None, True, True, None, True]


def test_probe_that_is_not_seen_any_more_names_the_place_before() -> None:
    found = compare(sending(), START, ROUTED, there=[])
    assert found.seen == [True, None, None, True, False, None, False]
    assert found.differences == [
        "The model: The tunnel 2 leads to 10.8.0.2. The probe was routed into network b on h1, from 10.1.0.2 to "
        "10.2.0.2, and was not seen any more."
    ]
    assert "was not sent" in compare(sending(), there=[]).differences[0]


def test_host_that_did_not_look_is_no_difference() -> None:
    found = compare(sending(), START, ROUTED, there=None)
    assert (found.differences, found.seen[-1]) == ([], None)


def test_probe_beyond_the_part_that_stops_it_in_the_model_is_a_difference() -> None:
    closed = sending(is_open=False)
    assert compare(closed, START, ROUTED, there=at(TUNNEL)).differences == []
    found = compare(closed, START, ROUTED, there=at(TUNNEL, FRIEND)).differences
    assert found == ["The probe reached port b2 on h2, from 10.1.0.2 to 10.2.0.2. The model does not lead it there."]


@pytest.mark.parametrize("place", [Place(AT_WAY_OUT, "r", True), Place(AT_OUTSIDE, "", False)])
def test_probe_that_leaves_elsewhere_is_a_difference(place: Place) -> None:
    found = compare(sending(), START, ROUTED, place, there=at(TUNNEL, FRIEND)).differences
    assert len(found) == 1 and "left" in found[0]


def test_places_to_which_bridges_send_packets_of_unknown_addresses_are_no_difference() -> None:
    flooded = [Place(AT_GATEWAY, "a", False), Place(AT_TUNNEL, "a", False), Place(AT_WAY_OUT, "r", False)]
    assert compare(sending(), START, ROUTED, *flooded, there=at(TUNNEL, FRIEND)).differences == []
    closed = sending(is_open=False, unguarded=True)
    assert compare(closed, START, ROUTED, there=at(TUNNEL, FRIEND)).differences == [], "a port without port security"


def test_answer_of_a_gateway_is_seen_at_the_port() -> None:
    packet = sending("10.1.0.1")
    trace = walk.from_port(packet.cloud, packet.host, packet.interface, packet.packet)
    answered = {"h1": at(START) + at(ANSWERED, is_answer=True)}
    assert probe.compare(packet, trace, answered) == ([True, None, None, True], [])
    silent = probe.compare(packet, trace, {"h1": at(START)})
    assert silent.seen[-1] is False and "The host answers at 10.1.0.1." in silent.differences[0]


def test_answer_to_a_packet_that_does_not_arrive_is_a_difference() -> None:
    closed = sending(is_open=False)
    trace = walk.from_port(closed.cloud, closed.host, closed.interface, closed.packet)
    sightings = {"h1": at(START, ROUTED) + at(ANSWERED, is_answer=True), "h2": at(TUNNEL)}
    assert probe.compare(closed, trace, sightings).differences == [
        "The probe was answered. The model says that it does not arrive."
    ]
