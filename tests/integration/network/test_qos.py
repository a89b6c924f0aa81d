"""Limits and marks of QoS policies, measured between network namespaces."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess

import pytest

from nova_lite.objects import QosLimits
from nova_lite.virt.libvirt.net import qos
from nova_lite.virt.libvirt.net.qos import FLOATING, PORTS
from tests.integration.network.packets import pinged
from tests.integration.network.room import OUTSIDE, Room
from tests.integration.network.routed_host import A, RoutedHost, router

FLOATING_ADDRESS = "192.0.2.50"
#: Largest difference from a limit, in parts of it. A busy machine may starve a measurement, so it is repeated.
TOLERANCE, ATTEMPTS = 0.15, 4

pytestmark = pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")


def load(room: Room, ports: dict[str, QosLimits], floating: dict[str, QosLimits] | None = None) -> None:
    text = qos.whole(PORTS, "q", qos.port_rules({room.guests[name].id: limits for name, limits in ports.items()}))
    text += qos.whole(FLOATING, "q", qos.floating_rules(floating or {}))
    room.in_space(room.host, "nft", "-f", "-", text=text)


def measured(room: Room, who: str, server: str, address: str) -> tuple[float, float]:
    """Return the kbit/s that a guest sends to a machine, and gets from it, after the first second."""
    serving = ["ip", "netns", "exec", room.space(server), "iperf3", "--server", "--one-off", "--forceflush"]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout is not None
        while "listening" not in listener.stdout.readline():
            assert listener.poll() is None
        options = ("--bidir", "--omit", "1", "--time", "2", "--json")
        text = room.in_space(room.space(who), "iperf3", "--client", address, *options)
        listener.communicate(timeout=30)
    end = json.loads(text)["end"]
    found = (end[name]["bits_per_second"] / 1000 for name in ("sum_received", "sum_received_bidir_reverse"))
    return next(found), next(found)


def assert_limited(room: Room, who: str, server: str, address: str, sent: int, received: int) -> None:
    """Check that the guest sends and gets as much as these limits in kbit/s allow."""
    found = []
    for _ in range(ATTEMPTS):
        found.append(measured(room, who, server, address))
        parts = [rate / limit - 1 for rate, limit in zip(found[-1], (sent, received), strict=True)]
        if all(abs(part) <= TOLERANCE for part in parts):
            return
    pytest.fail(f"limits of {sent} and {received} kbit/s, measured {found}")


def test_port_is_limited_in_each_direction_and_marks_its_packets(room: Room) -> None:
    room.guest("a", 10), room.guest("b", 11)
    load(room, {"a": QosLimits(egress=(20_000, 0), ingress=(50_000, 0), dscp=26)})
    assert_limited(room, "a", "b", room.guests["b"].address, 20_000, 50_000)
    counts = "table inet c {\n chain i {\n type filter hook input priority 0\n ip dscp af31 counter\n }\n}\n"
    room.in_space(room.space("b"), "nft", "-f", "-", text=counts)
    assert pinged(room, room.guests["b"].address, "a")
    assert "packets 0" not in room.in_space(room.space("b"), "nft", "list", "table", "inet", "c")


def test_changed_limit_applies_to_a_running_guest(room: Room) -> None:
    room.guest("a", 10), room.guest("b", 11)
    before = qos.port_rules({room.guests["a"].id: QosLimits(egress=(1000, 0), ingress=(1000, 0))})
    room.in_space(room.host, "nft", "-f", "-", text=qos.whole(PORTS, "q", before))
    after = qos.port_rules({room.guests["a"].id: QosLimits(egress=(30_000, 0), ingress=(20_000, 0))})
    room.in_space(room.host, "nft", "-f", "-", text=qos.changes(PORTS, "q", before, after))
    assert_limited(room, "a", "b", room.guests["b"].address, 30_000, 20_000)


def test_floating_address_is_limited_whoever_connects() -> None:
    with contextlib.closing(RoutedHost(1)) as room:
        a = room.guest_on(A, "a", 10)
        room.floating(FLOATING_ADDRESS, "a")
        room.in_space(room.host, "ip", "address", "add", f"{FLOATING_ADDRESS}/32", "dev", "lo")
        room.drive(router(A, guests=[a], external=True))
        load(room, {}, {FLOATING_ADDRESS: QosLimits(egress=(20_000, 0), ingress=(40_000, 0))})
        assert_limited(room, "a", "out", OUTSIDE, 20_000, 40_000)
        assert_limited(room, "out", "a", FLOATING_ADDRESS, 40_000, 20_000)
