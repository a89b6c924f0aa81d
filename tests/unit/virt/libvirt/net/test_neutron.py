"""Neutron's ports on a libvirt host."""

from __future__ import annotations

import logging
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.hardware import DEFAULT, Hardware
from nova_lite.objects import VIF
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.net import neutron, security_groups
from tests.support.guests import make_network, make_vif

ID = "0f3f3c1e-64a4-4a76-a1a5-5a9c7f3c4b10"


def make_port(**changes: object) -> VIF:
    return make_vif(id=ID, network=make_network(mtu=1442), **{"vif_type": "ovs", **changes})


def interface(**changes: object) -> ET.Element:
    return ET.fromstring(guest_xml.interface_xml(make_port(**changes)))


def hardware_with(**changes: object) -> Hardware:
    return msgspec.structs.replace(DEFAULT, **changes)


def on_hardware(hardware: Hardware, **details: str) -> ET.Element:
    return guest_xml._interface(make_port(vif_details=details), hardware)


class Switch:
    """A program ``ovs-vsctl`` on the path that records its arguments."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "log"
        self._program = directory / "ovs-vsctl"
        self.respond(0)

    def respond(self, status: int, message: str = "") -> None:
        self._program.write_text(f"#!/bin/sh\necho \"$@\" >>{self._log}\necho '{message}' >&2\nexit {status}\n")
        self._program.chmod(0o755)

    @property
    def commands(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Switch:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return Switch(tmp_path)


@pytest.mark.parametrize(("details", "bridge"), [({}, "br-int"), ({"bridge_name": "br-x"}, "br-x")])
def test_port_is_on_the_bridge_that_neutron_names(details: dict[str, str], bridge: str) -> None:
    found = interface(vif_details=details)
    assert found.find(f"source[@bridge='{bridge}']") is not None
    assert found.find(f"virtualport[@type='openvswitch']/parameters[@interfaceid='{ID}']") is not None
    assert found.find("target[@dev='tap0f3f3c1e-64']") is not None
    assert found.find("mtu[@size='1442']") is not None
    assert found.find("filterref") is None, "OVN filters"


def test_guest_completes_its_packets_for_the_datapath_of_open_vswitchs_process() -> None:
    offloads = {"csum": "off", "gso": "off", "tso4": "off", "tso6": "off", "ecn": "off", "ufo": "off"}
    host = interface(vif_details={"datapath_type": "netdev"}).find("driver/host")
    assert host is not None and host.attrib == offloads
    several = hardware_with(queues=2)
    (driver,) = on_hardware(several, datapath_type="netdev").findall("driver")
    assert (driver.get("queues"), [child.tag for child in driver]) == ("2", ["host"])


@pytest.mark.parametrize("details", [{}, {"datapath_type": "system"}])
def test_guest_leaves_work_to_the_datapath_of_the_kernel(details: dict[str, str]) -> None:
    assert interface(vif_details=details).find("driver") is None


def test_device_that_is_not_virtio_has_no_offloads_to_turn_off() -> None:
    assert on_hardware(hardware_with(vif_model="e1000"), datapath_type="netdev").find("driver") is None


def test_port_with_its_bridge_is_plugged(switch: Switch) -> None:
    neutron.plug(make_port(vif_details={"bridge_name": "br-x", "ovs_hybrid_plug": False, "datapath_type": "netdev"}))
    assert switch.commands == ["--timeout=10 br-exists br-x"]


def test_port_without_its_bridge_is_rejected(switch: Switch) -> None:
    switch.respond(2)
    with pytest.raises(exceptions.VirtDriverError, match="no bridge br-int: ovn-controller, or "):
        neutron.plug(make_port())


def test_port_is_rejected_when_open_vswitch_does_not_respond(switch: Switch) -> None:
    switch.respond(1, "database connection failed")
    with pytest.raises(exceptions.VirtDriverError, match="does not respond: database connection failed"):
        neutron.plug(make_port())


def test_port_is_rejected_on_a_host_without_open_vswitch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(exceptions.VirtDriverError, match="No such file or directory: 'ovs-vsctl'"):
        neutron.plug(make_port())


@pytest.mark.parametrize("name", ["--db=tcp:10.0.0.1:6640", "br int", "br-int;ls", "b" * 16, "br-int\n"])
def test_name_that_is_no_bridge_is_rejected(switch: Switch, name: str) -> None:
    with pytest.raises(exceptions.VirtDriverError, match="no name of a bridge"):
        neutron.plug(make_port(vif_details={"bridge_name": name}))
    assert switch.commands == []


def test_port_that_needs_a_linux_bridge_is_rejected(switch: Switch) -> None:
    """A guest that is connected to Open vSwitch directly passes by the filters of that bridge."""
    with pytest.raises(exceptions.VirtDriverError, match="firewall_driver = openvswitch"):
        neutron.plug(make_port(vif_details={"ovs_hybrid_plug": True}))


@pytest.mark.parametrize("vif_type", ["bridge", "tap", "vhostuser", "binding_failed", "unbound"])
def test_port_of_an_unsupported_type_is_rejected(vif_type: str) -> None:
    with pytest.raises(
        exceptions.VirtDriverError, match=f"bound as {vif_type}, but guests can be connected only as ovs"
    ):
        neutron.plug(make_vif(vif_type=vif_type))


def test_unplug_removes_a_port_that_is_left(switch: Switch) -> None:
    neutron.unplug(make_port(vif_details={"bridge_name": "no bridge"}))
    assert switch.commands == ["--timeout=10 --no-wait --if-exists del-port tap0f3f3c1e-64"]


def test_unplug_of_another_type_does_nothing(switch: Switch) -> None:
    neutron.unplug(make_port(vif_type="bridge"))
    assert switch.commands == []


def test_unplug_that_fails_is_logged(switch: Switch, caplog: pytest.LogCaptureFixture) -> None:
    switch.respond(1, "database connection failed")
    with caplog.at_level(logging.WARNING):
        neutron.unplug(make_port())
    assert "Port tap0f3f3c1e-64 of Open vSwitch may be left: database connection failed" in caplog.text


def test_port_is_not_filtered_by_us() -> None:
    ours = make_vif(port_security_enabled=True)
    theirs = make_vif(2, port_security_enabled=True, vif_type="ovs")
    assert security_groups.filtered_vifs([ours, theirs]) == [ours]
