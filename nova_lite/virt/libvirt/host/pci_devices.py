"""PCI devices of this machine, by libvirt's node devices, and those among them that guests may have."""

from __future__ import annotations

import logging
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping

import libvirt
import msgspec
from oslo_config import cfg

from nova_lite.base import files
from nova_lite.objects import PCIDevice
from nova_lite.objects.pci import TYPE_PCI, TYPE_PF, TYPE_VF
from nova_lite.virt import device_specs
from nova_lite.virt.device_specs import FoundDevice
from nova_lite.virt.libvirt.connection import Connection

LOG = logging.getLogger(__name__)

#: First byte of the class of bridges, which no guest can have.
_BRIDGE = 0x06
_MOST_DOMAINS = 0xFFFF


class Offer:
    """The offered devices. Without ``[pci] device_spec`` libvirt is not asked. Raises `ConfigurationError`.

    A device has no interface while a guest has it. So a file keeps the last names of interfaces.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Connection) -> None:
        self._specs = device_specs.parse(conf)
        self._names = os.path.join(conf.state_path, "pci-names.json")
        self._connection = connection
        self._warned: set[str] = set()

    def devices(self) -> list[PCIDevice]:
        """Return the devices that guests may have now. Raises `LibvirtFailure`."""
        if not self._specs:
            return []
        found = parse(self._descriptions())
        machine = found.devices
        if any(spec.devname is not None for spec in self._specs):
            machine = self._named(machine)
        offered = device_specs.offered(self._specs, machine)
        for device in offered:
            if device.address not in found.isolated and device.address not in self._warned:
                self._warned.add(device.address)
                LOG.warning(
                    "PCI device %s is not offered to guests: it is in no IOMMU group, so the IOMMU of this machine is "
                    "off or missing",
                    device.address,
                )
        return [device for device in offered if device.address in found.isolated]

    def _named(self, machine: list[FoundDevice]) -> list[FoundDevice]:
        """Return the devices with the names that they have, or had last."""
        try:
            with open(self._names, "rb") as file:
                stored = msgspec.json.decode(file.read(), type=dict[str, tuple[str, ...]])
        except (FileNotFoundError, msgspec.MsgspecError):
            stored = {}
        names = stored | {item.device.address: item.names for item in machine if item.names}
        if names != stored:
            files.write_atomically(self._names, msgspec.json.encode(names))
        return [msgspec.structs.replace(item, names=names.get(item.device.address, ())) for item in machine]

    def _descriptions(self) -> list[str]:
        """Return the XML of PCI devices and network interfaces. A device that vanishes meanwhile is left out."""
        kinds = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_NET
        gone = (libvirt.VIR_ERR_NO_NODE_DEVICE,)
        texts = [
            self._connection.call_unless(gone, device.XMLDesc, 0)
            for device in self._connection.connect_call("listAllDevices", kinds)
        ]
        return [text for text in texts if text is not None]


class Machine(msgspec.Struct, frozen=True):
    """Devices of a machine. ``isolated``: addresses of the devices in IOMMU groups."""

    devices: list[FoundDevice]
    isolated: frozenset[str]


def parse(descriptions: Iterable[str]) -> Machine:
    """Return the devices of node device descriptions. Bridges are left out."""
    elements = [ET.fromstring(text) for text in descriptions]  # noqa: S314 libvirt's own
    interfaces = {
        element.findtext("parent", ""): element.findtext("capability/interface", "")
        for element in elements
        if element.find("capability[@type='net']") is not None
    }
    pci = {
        element.findtext("name", ""): capability
        for element in elements
        if (capability := element.find("capability[@type='pci']")) is not None
    }
    names = {address(capability): interfaces[name] for name, capability in pci.items() if interfaces.get(name)}
    usable = [capability for capability in pci.values() if is_usable(capability)]
    isolated = frozenset(address(item) for item in usable if item.find("iommuGroup") is not None)
    return Machine([_found(capability, names) for capability in usable], isolated)


def is_usable(capability: ET.Element) -> bool:
    """Check whether guests can have a device. They cannot have bridges, and devices of domains beyond four digits."""
    is_bridge = int(capability.findtext("class", "0"), 0) >> 16 == _BRIDGE
    return not is_bridge and int(capability.findtext("domain", "0")) <= _MOST_DOMAINS


def _found(capability: ET.Element, names: Mapping[str, str]) -> FoundDevice:
    physical = capability.find("capability[@type='phys_function']/address")
    numa = capability.find("numa")
    device = PCIDevice(
        address=address(capability),
        vendor_id=_id(capability, "vendor"),
        product_id=_id(capability, "product"),
        dev_type=_type(capability),
        numa_cell=None if numa is None else int(numa.get("node", "0")),
        parent=None if physical is None else address(physical),
    )
    return FoundDevice(device, tuple(names[item] for item in (device.address, device.parent or "") if item in names))


def _type(capability: ET.Element) -> str:
    kinds = {inner.get("type") for inner in capability.findall("capability")}
    return TYPE_VF if "phys_function" in kinds else TYPE_PF if "virt_functions" in kinds else TYPE_PCI


def _id(capability: ET.Element, kind: str) -> str:
    element = capability.find(kind)
    return "" if element is None else f"{int(element.get('id', '0'), 16):04x}"


def address(element: ET.Element) -> str:
    """Return the address that the children or the attributes of an element give."""
    parts = ("domain", "bus", "slot", "function")
    domain, bus, slot, function = (int(element.get(part) or element.findtext(part) or "0", 0) for part in parts)
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function:x}"
