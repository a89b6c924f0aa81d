"""Mediated devices by libvirt's node devices, as its documentation and hosts with vGPUs describe them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from nova_lite.base import exceptions
from nova_lite.virt import vgpus
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.host.mediated_devices import MediatedDevices
from tests.support import make
from tests.unit.virt.libvirt.scripted import failure

GPU = """<device>
  <name>pci_0000_84_{slot}_{function}</name>
  <path>/sys/devices/pci0000:80/0000:80:02.0/0000:84:{slot}.{function}</path>
  <parent>pci_0000_80_02_0</parent>
  <driver><name>nvidia</name></driver>
  <capability type='pci'>
    <class>0x030000</class>
    <domain>0</domain><bus>132</bus><slot>{slot}</slot><function>{function}</function>
    <product id='0x13f2'>GM204GL [Tesla M60]</product>
    <vendor id='0x10de'>NVIDIA Corporation</vendor>
    <capability type='mdev_types'>
      <type id='nvidia-11'>
        <name>GRID M60-0B</name>
        <deviceAPI>vfio-pci</deviceAPI>
        <availableInstances>0</availableInstances>
      </type>
      <type id='nvidia-35'>
        <name>GRID M60-1Q</name>
        <deviceAPI>vfio-pci</deviceAPI>
        <availableInstances>{available}</availableInstances>
      </type>
    </capability>
    <iommuGroup number='20'><address domain='0x0000' bus='0x84' slot='0x{slot}' function='0x{function}'/></iommuGroup>
    <numa node='1'/>
  </capability>
</device>"""

#: Virtual function of a GPU with MIG, and a network card, which has no types.
FUNCTION = GPU.replace(
    "<capability type='mdev_types'>",
    "<capability type='phys_function'><address domain='0x0000' bus='0x84' slot='0x00' function='0x0'/></capability>"
    "<capability type='mdev_types'>",
)
CARD = """<device><name>pci_0000_04_00_1</name><capability type='pci'><class>0x020000</class>
<domain>0</domain><bus>4</bus><slot>0</slot><function>1</function></capability></device>"""

MDEV = """<device>
  <name>mdev_{name}_{parent}</name>
  <path>/sys/devices/pci0000:80/0000:80:02.0/0000:84:00.0/{uuid}</path>
  <parent>{parent}</parent>
  <driver><name>vfio_mdev</name></driver>
  <capability type='mdev'>
    <type id='{kind}'/>
    <uuid>{uuid}</uuid>
    <parent_addr>0000:84:00.0</parent_addr>
    <iommuGroup number='71'/>
  </capability>
</device>"""

FIRST = vgpus.uuid_of("0000:84:00.0#0")
THIRD = vgpus.uuid_of("0000:84:00.0#2")
MOST = 4


class Host:
    """libvirt on a host with a GPU of four places. ``made``: type by uuid. ``busy``: uuids that guests use."""

    def __init__(self, gpu: str = GPU) -> None:
        self.made: dict[str, str] = {}
        self.busy: set[str] = set()
        self.calls: list[str] = []
        self._gpu = gpu

    def connect_call(self, name: str, flags: int) -> list[Any]:
        assert name == "listAllDevices"
        found = []
        if flags & libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES:
            gpu = self._gpu.format(slot="00", function="0", available=MOST - len(self.made))
            found += [SimpleNamespace(XMLDesc=text) for text in (gpu, CARD)]
        if flags & libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV:
            found += [self._mdev(uuid) for uuid in self.made]
        return found

    def _mdev(self, uuid: str) -> Any:
        def destroy() -> None:
            if uuid in self.busy:
                raise LibvirtFailure(failure(libvirt.VIR_ERR_INTERNAL_ERROR, message="device in use"))
            self.calls.append(f"remove {uuid}")
            del self.made[uuid]

        name = uuid.replace("-", "_")
        text = MDEV.format(name=name, uuid=uuid, parent="pci_0000_84_00_0", kind=self.made[uuid])
        return SimpleNamespace(XMLDesc=text, destroy=destroy)

    def call_unless(self, codes: tuple[int, ...], method: Any, *arguments: Any) -> Any:
        return method if isinstance(method, str) else method(*arguments)

    def get(self) -> Host:
        return self

    def nodeDeviceCreateXML(self, xml: str, flags: int) -> None:
        element = ET.fromstring(xml)
        assert (element.findtext("parent"), flags) == ("pci_0000_84_00_0", 0)
        kind, uuid = element.find("capability[@type='mdev']/type"), element.findtext("capability/uuid", "")
        assert kind is not None
        self.calls.append(f"make {uuid}")
        self.made[uuid] = kind.get("id", "")

    def call_checked(self, done: Any, method: Any, *arguments: Any) -> None:
        """Lose the response of a call, whose effect `done` sees."""
        method(*arguments)
        assert done()


def devices(host: Any, enabled: str = "nvidia-35") -> MediatedDevices:
    conf = make.conf("sqlite://")
    conf.set_override("enabled_mdev_types", enabled.split(",") if enabled else [], "devices")
    return MediatedDevices(conf, host, host)


def addresses(found: MediatedDevices) -> list[str]:
    return [place.address for place in found.places()]


def test_places_are_those_of_the_enabled_type() -> None:
    found = devices(Host()).places()
    assert [place.address for place in found] == [f"0000:84:00.0#{number}" for number in range(MOST)]
    assert {(place.parent, place.numa_cell, place.resource_class) for place in found} == {("0000:84:00.0", 1, "VGPU")}
    assert devices(Host(), "nvidia-11").places() == []


def test_virtual_function_of_a_gpu_with_mig_has_places() -> None:
    assert addresses(devices(Host(FUNCTION))) == [f"0000:84:00.0#{number}" for number in range(MOST)]


def test_places_without_enabled_types_ask_libvirt_nothing() -> None:
    assert devices(None, "").places() == []


def test_guest_that_starts_gets_new_devices_and_the_number_of_places_stays() -> None:
    host = Host()
    found = devices(host)
    found.make([FIRST, THIRD])
    assert host.made == {FIRST: "nvidia-35", THIRD: "nvidia-35"}
    assert len(addresses(found)) == MOST
    host.calls.clear()
    found.make([FIRST])
    assert host.calls == [f"remove {FIRST}", f"make {FIRST}"]


def test_devices_of_a_removed_guest_are_removed_and_missing_ones_passed_over() -> None:
    host = Host()
    found = devices(host)
    found.make([FIRST, THIRD])
    found.remove([FIRST, vgpus.uuid_of("0000:84:00.0#3")])
    assert host.made == {THIRD: "nvidia-35"}


def test_guest_without_vgpus_causes_no_calls() -> None:
    devices(None).make([])
    devices(None).remove([])


def test_device_that_another_guest_uses_is_not_replaced() -> None:
    host = Host()
    host.made, host.busy = {FIRST: "nvidia-35"}, {FIRST}
    with pytest.raises(LibvirtFailure, match="device in use"):
        devices(host).make([FIRST])
    assert host.calls == []


@pytest.mark.parametrize(("uuid", "enabled"), [(vgpus.uuid_of("0000:99:00.0#0"), "nvidia-35"), (FIRST, "nvidia-7")])
def test_vgpu_that_the_options_do_not_offer_any_more_is_one_clear_line(uuid: str, enabled: str) -> None:
    with pytest.raises(exceptions.VirtDriverError, match=r"it is no GPU with a type of \[devices\] enabled_mdev_types"):
        devices(Host(), enabled).make([uuid])


def test_device_that_is_removed_during_a_report_takes_no_place_away() -> None:
    """The GPU is described before, and its devices after the removal, or the other way round."""
    host = Host()
    found = devices(host)
    found.make([FIRST])
    listed = host.connect_call

    def removing(name: str, flags: int) -> list[Any]:
        result = listed(name, flags)
        if flags & libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES:
            host.made.clear()
        return result

    host.connect_call = removing  # type: ignore[method-assign]
    assert len(addresses(found)) == MOST
