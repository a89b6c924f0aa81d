"""Neutron's ports on a libvirt host."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from nova_lite.base import exceptions
from nova_lite.virt.libvirt.domain import guest_xml
from nova_lite.virt.libvirt.net import neutron, security_groups
from tests.support.guests import make_network, make_vif

ID = "0f3f3c1e-64a4-4a76-a1a5-5a9c7f3c4b10"


def interface(**changes: object) -> ET.Element:
    vif = make_vif(id=ID, network=make_network(bridge="brq5f3f3c1e-64", mtu=1450), **changes)
    return ET.fromstring(guest_xml.interface_xml(vif, False))


def test_port_on_a_linux_bridge() -> None:
    found = interface(vif_type="bridge")
    assert found.find("source[@bridge='brq5f3f3c1e-64']") is not None
    assert found.find("target[@dev='tap0f3f3c1e-64']") is not None
    assert found.find("mtu[@size='1450']") is not None
    assert found.find("filterref") is None, "Neutron's agent filters"


@pytest.mark.parametrize(("details", "bridge"), [({}, "br-int"), ({"bridge_name": "br-x"}, "br-x")])
def test_port_on_open_vswitch(details: dict[str, str], bridge: str) -> None:
    found = interface(vif_type="ovs", vif_details=details)
    assert found.find(f"source[@bridge='{bridge}']") is not None
    assert found.find(f"virtualport[@type='openvswitch']/parameters[@interfaceid='{ID}']") is not None
    assert found.find("filterref") is None


@pytest.mark.parametrize("vif_type", ["tap", "vhostuser", "binding_failed", "unbound"])
def test_port_of_an_unsupported_type_is_rejected(vif_type: str) -> None:
    with pytest.raises(exceptions.VirtDriverError, match=f"bound as {vif_type}"):
        neutron.plug(make_vif(vif_type=vif_type))


def test_port_is_not_filtered_by_us() -> None:
    ours = make_vif(port_security_enabled=True)
    theirs = make_vif(2, port_security_enabled=True, vif_type="bridge")
    assert security_groups.filtered_vifs([ours, theirs]) == [ours]


def test_bridge_that_cannot_be_created_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def refuse(*arguments: str) -> str:
        commands.append(arguments)
        return "not permitted"

    monkeypatch.setattr(neutron, "_ip", refuse)
    with pytest.raises(exceptions.VirtDriverError, match="not permitted"):
        neutron.plug(make_vif(vif_type="bridge", network=make_network(bridge="brqnotthere-00")))
    assert commands[0][:4] == ("link", "add", "name", "brqnotthere-00")
