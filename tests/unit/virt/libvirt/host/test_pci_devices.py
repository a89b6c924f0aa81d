"""Node devices of libvirt, as hosts with GPUs and SR-IOV cards describe them."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nova_lite.base import exceptions
from nova_lite.objects import PCIDevice
from nova_lite.objects.pci import TYPE_PF, TYPE_VF
from nova_lite.virt.libvirt.host import pci_devices
from tests.support import make

ROOT_PORT = """<device>
  <name>pci_0000_80_01_0</name>
  <path>/sys/devices/pci0000:80/0000:80:01.0</path>
  <parent>pci_0000_80_00_0</parent>
  <driver><name>pcieport</name></driver>
  <capability type='pci'>
    <class>0x060400</class>
    <domain>0</domain><bus>128</bus><slot>1</slot><function>0</function>
    <product id='0x6f02'>Xeon E7 v4/Xeon E5 v4/Xeon E3 v4/Xeon D PCI Express Root Port 1</product>
    <vendor id='0x8086'>Intel Corporation</vendor>
    <capability type='pci-bridge'/>
    <iommuGroup number='40'><address domain='0x0000' bus='0x80' slot='0x01' function='0x0'/></iommuGroup>
    <numa node='1'/>
  </capability>
</device>"""

GPU = """<device>
  <name>pci_0000_81_00_0</name>
  <path>/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0</path>
  <parent>pci_0000_80_01_0</parent>
  <driver><name>vfio-pci</name></driver>
  <capability type='pci'>
    <class>0x030200</class>
    <domain>0</domain><bus>129</bus><slot>0</slot><function>0</function>
    <product id='0x1eb8'>TU104GL [Tesla T4]</product>
    <vendor id='0x10de'>NVIDIA Corporation</vendor>
    <capability type='virt_functions' maxCount='16'/>
    <iommuGroup number='41'><address domain='0x0000' bus='0x81' slot='0x00' function='0x0'/></iommuGroup>
    <numa node='1'/>
    <pci-express>
      <link validity='cap' port='0' speed='8' width='16'/>
      <link validity='sta' speed='2.5' width='16'/>
    </pci-express>
  </capability>
</device>"""

CARD = """<device>
  <name>pci_0000_04_00_1</name>
  <path>/sys/devices/pci0000:00/0000:00:02.0/0000:04:00.1</path>
  <parent>pci_0000_00_02_0</parent>
  <driver><name>i40e</name></driver>
  <capability type='pci'>
    <class>0x020000</class>
    <domain>0</domain><bus>4</bus><slot>0</slot><function>1</function>
    <product id='0x1572'>Ethernet Controller X710 for 10GbE SFP+</product>
    <vendor id='0x8086'>Intel Corporation</vendor>
    <capability type='virt_functions' maxCount='64'>
      <address domain='0x0000' bus='0x04' slot='0x0a' function='0x0'/>
      <address domain='0x0000' bus='0x04' slot='0x0a' function='0x1'/>
    </capability>
    <iommuGroup number='31'><address domain='0x0000' bus='0x04' slot='0x00' function='0x1'/></iommuGroup>
    <numa node='0'/>
  </capability>
</device>"""

FUNCTION = """<device>
  <name>pci_0000_04_0a_1</name>
  <path>/sys/devices/pci0000:00/0000:00:02.0/0000:04:0a.1</path>
  <parent>pci_0000_00_02_0</parent>
  <driver><name>iavf</name></driver>
  <capability type='pci'>
    <class>0x020000</class>
    <domain>0</domain><bus>4</bus><slot>10</slot><function>1</function>
    <product id='0x154c'>Ethernet Virtual Function 700 Series</product>
    <vendor id='0x8086'>Intel Corporation</vendor>
    <capability type='phys_function'>
      <address domain='0x0000' bus='0x04' slot='0x00' function='0x1'/>
    </capability>
    <iommuGroup number='71'><address domain='0x0000' bus='0x04' slot='0x0a' function='0x1'/></iommuGroup>
    <numa node='0'/>
  </capability>
</device>"""

INTERFACE = """<device>
  <name>net_ens1f1_3c_fd_fe_a1_b2_c3</name>
  <path>/sys/devices/pci0000:00/0000:00:02.0/0000:04:00.1/net/ens1f1</path>
  <parent>pci_0000_04_00_1</parent>
  <capability type='net'>
    <interface>ens1f1</interface>
    <address>3c:fd:fe:a1:b2:c3</address>
    <link speed='10000' state='up'/>
    <capability type='80203'/>
  </capability>
</device>"""

#: A network card behind a volume management device, whose domain has five digits.
FAR = CARD.replace("<domain>0</domain>", "<domain>65536</domain>").replace("pci_0000_04", "pci_10000_04")

EVERYTHING = [ROOT_PORT, GPU, CARD, FUNCTION, INTERFACE, FAR]


def test_node_devices_are_parsed_without_bridges() -> None:
    found = pci_devices.parse(EVERYTHING)
    assert [item.device for item in found.devices] == [
        PCIDevice(address="0000:81:00.0", vendor_id="10de", product_id="1eb8", dev_type=TYPE_PF, numa_cell=1),
        PCIDevice(address="0000:04:00.1", vendor_id="8086", product_id="1572", dev_type=TYPE_PF, numa_cell=0),
        PCIDevice(
            address="0000:04:0a.1",
            vendor_id="8086",
            product_id="154c",
            dev_type=TYPE_VF,
            numa_cell=0,
            parent="0000:04:00.1",
        ),
    ]
    assert [item.names for item in found.devices] == [(), ("ens1f1",), ("ens1f1",)]
    assert found.isolated == {"0000:81:00.0", "0000:04:00.1", "0000:04:0a.1"}


def offer(texts: list[str], *specs: dict[str, Any], path: Path | str = "/nonexistent") -> pci_devices.Offer:
    conf = make.conf("sqlite://", path)
    conf.set_override("device_spec", [json.dumps(spec) for spec in specs], "pci")
    connection = mock.Mock()
    connection.connect_call.side_effect = lambda name, flags: [mock.Mock(XMLDesc=text) for text in texts]
    connection.call_unless.side_effect = lambda codes, text, flags: text
    return pci_devices.Offer(conf, connection)


def test_offer_has_the_devices_of_the_option(tmp_path: Path) -> None:
    spec = {"devname": "ens1f1", "product_id": "154c", "physical_network": "net1"}
    found = offer(EVERYTHING, spec, path=tmp_path).devices()
    assert [(device.address, device.physical_network) for device in found] == [("0000:04:0a.1", "net1")]


def test_card_that_a_guest_has_is_offered_by_its_last_name(tmp_path: Path) -> None:
    """Its interface is gone, also for a daemon that starts meanwhile. Another card of the name replaces it later."""
    spec = {"devname": "ens1f1", "product_id": "1572"}
    assert [device.address for device in offer(EVERYTHING, spec, path=tmp_path).devices()] == ["0000:04:00.1"]
    assert [device.address for device in offer([CARD], spec, path=tmp_path).devices()] == ["0000:04:00.1"]
    renamed = INTERFACE.replace("<interface>ens1f1<", "<interface>ens9<")
    assert offer([CARD, renamed], spec, path=tmp_path).devices() == []
    (tmp_path / "pci-names.json").write_text("{")
    assert offer([CARD], spec, path=tmp_path).devices() == []


def test_offer_without_the_option_asks_libvirt_nothing() -> None:
    silent = offer(EVERYTHING)
    assert silent.devices() == []
    silent._connection.connect_call.assert_not_called()  # type: ignore[attr-defined]


def test_device_without_an_iommu_group_is_not_offered_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start, end = GPU.index("<iommuGroup"), GPU.index("</iommuGroup>") + len("</iommuGroup>")
    found = offer([GPU[:start] + GPU[end:], FUNCTION], {})
    with caplog.at_level(logging.WARNING):
        assert [[device.address for device in found.devices()] for _ in range(2)] == [["0000:04:0a.1"]] * 2
    (warning,) = caplog.messages
    assert warning.startswith("PCI device 0000:81:00.0 is not offered to guests: it is in no IOMMU group")


def test_offer_with_a_mistake_in_the_option_stops_the_daemon() -> None:
    with pytest.raises(exceptions.ConfigurationError, match="colour is unknown"):
        offer([], {"colour": "red"})
