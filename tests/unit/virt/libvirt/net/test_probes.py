"""Probes of packets on a host: what is refused. tests/integration/network/test_packet_traces.py sends some."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.network.trace.packets import Packet
from nova_lite.objects import VIF, Network, PacketProbe, PacketSighting, Place
from nova_lite.virt.libvirt.net import probes
from nova_lite.virt.libvirt.net.probes import PacketProbes, Places

PORT = "aaaaaaaa-2222-3333-4444-555555555555"
VIF_OF_PORT = VIF(
    id=PORT, mac_address="fa:16:3e:00:00:02", address="10.1.0.2", network=Network(id="n", name="n", cidr="")
)
PROBE = PacketProbe(
    instance_uuid="i", port_id=PORT, source="10.1.0.2", destination="10.2.0.2", protocol="tcp", port=80, neighbour=None,
    mark=7,
)  # fmt: skip
SEEN = PacketSighting(Place("port", PORT, True), "10.1.0.2", "10.2.0.2")

Run = Callable[[Packet, PacketProbe, VIF | None, Places], list[PacketSighting]]


def make(vifs: list[VIF]) -> PacketProbes:
    records = types.SimpleNamespace(read_interfaces=lambda uuid: vifs if uuid == "i" else [])
    context: Any = types.SimpleNamespace(conf=None, host="h1", connection=None, domains=None, records=records)
    networks: Any = types.SimpleNamespace(places=lambda: {"tap": ("port", PORT)})
    return PacketProbes(context, networks)


def test_probe_is_sent_by_the_host_with_the_port_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(probes, "run", lambda *values: calls.append(values) or [SEEN])
    assert make([VIF_OF_PORT]).run(PROBE) == make([]).run(PROBE) == [SEEN]
    assert [sender for _, _, sender, _ in calls] == [VIF_OF_PORT, None]
    assert calls[0][3] == {"tap": ("port", PORT)}


def test_second_probe_at_a_time_is_refused_and_a_later_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    host = make([VIF_OF_PORT])

    def run(*values: Any) -> list[PacketSighting]:
        with pytest.raises(exceptions.Conflict, match="Host h1 is busy"):
            host.run(PROBE)
        raise OSError("no device")

    monkeypatch.setattr(probes, "run", run)
    with pytest.raises(exceptions.VirtDriverError, match="no device"):
        host.run(PROBE)
    monkeypatch.setattr(probes, "run", lambda *values: [])
    assert host.run(PROBE) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"source": "10.1.0.2; reboot"},
        {"destination": "fd00::1"},
        {"destination": "224.0.0.1"},
        {"destination": "255.255.255.255"},
        {"protocol": "sctp"},
        {"protocol": "icmp"},
        {"port": None},
        {"port": 0},
        {"port": 65536},
        {"mark": 0},
        {"mark": 2**32 - 1},
        {"neighbour": "fa:16:3e"},
    ],
)
def test_probe_with_a_wrong_value_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(exceptions.InvalidInput, match="probe: "):
        make([]).run(msgspec.structs.replace(PROBE, **changes))


@pytest.mark.parametrize(
    ("source", "vif"),
    [
        ("10.1.0.3", VIF_OF_PORT),
        ("10.1.0.2", msgspec.structs.replace(VIF_OF_PORT, vif_type="ovs")),
    ],
)
def test_packet_that_is_not_the_ports_is_not_sent(source: str, vif: VIF) -> None:
    wanted = msgspec.structs.replace(PROBE, source=source)
    with (
        pytest.raises(exceptions.InvalidInput, match="is no address of port"),
        probes._sending(probes.checked(wanted), wanted, vif),
    ):
        raise AssertionError("it is sent")


@pytest.mark.parametrize(
    ("device", "is_leaving", "expected"),
    [
        ("tap1", True, Place("port", "p", False)),
        ("tap1", False, Place("port", "p", True)),
        ("eth0", True, Place("outside", "", False)),
        ("eth0", False, None),
        ("tap2", True, None),
        ("nlg2", True, None),
        ("lo", True, None),
    ],
)
def test_device_of_this_host_is_a_place(device: str, is_leaving: bool, expected: Place | None) -> None:
    assert probes._place(device, is_leaving, {"tap1": ("port", "p")}) == expected
