"""Mediated devices of this machine, the vGPUs of its guests: they are counted, made and removed by libvirt."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

import libvirt
from oslo_config import cfg

from nova_lite.base import exceptions
from nova_lite.objects import PCIDevice
from nova_lite.virt import vgpus
from nova_lite.virt.libvirt.connection import Connection
from nova_lite.virt.libvirt.host import pci_devices
from nova_lite.virt.vgpus import GPU

_GPUS = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV_TYPES
_MDEVS = libvirt.VIR_CONNECT_LIST_NODE_DEVICES_CAP_MDEV | libvirt.VIR_CONNECT_LIST_NODE_DEVICES_ACTIVE
_GONE = (libvirt.VIR_ERR_NO_NODE_DEVICE,)


class MediatedDevices:
    """The mediated devices. ``reports``: a connection for `places`, which does not wait for other calls.

    A device is made for each start of its guest: a machine that restarts has lost it, and no guest sees the data of
    another one. Raises `ConfigurationError`.
    """

    def __init__(self, conf: cfg.ConfigOpts, connection: Connection, reports: Connection) -> None:
        self._types = vgpus.parse(conf)
        self._connection = connection
        self._reports = reports

    def places(self) -> list[PCIDevice]:
        """Return the places for vGPUs now. Without enabled types libvirt is not asked. Raises `LibvirtFailure`."""
        if not self._types:
            return []
        return vgpus.places(self._types, _gpus(self._reports))

    def make(self, uuids: list[str]) -> None:
        """Make the devices of a guest that is about to start, without anything of an earlier start."""
        if not uuids:
            return
        self.remove(uuids)
        gpus = {gpu.address: gpu for gpu in _gpus(self._connection)}
        for uuid in uuids:
            address = (vgpus.place_of(uuid) or uuid).partition("#")[0]
            gpu = gpus.get(address)
            kind = None if gpu is None else vgpus.type_of(self._types, gpu)
            if gpu is None or kind is None:
                raise exceptions.VirtDriverError(
                    reason=f"the vGPU of {address} cannot be made: it is no GPU with a type of [devices] "
                    "enabled_mdev_types"
                )
            self._make(uuid, description(gpu.node_device, kind.name, uuid))

    def _make(self, uuid: str, xml: str) -> None:
        create = self._connection.get().nodeDeviceCreateXML
        self._connection.call_checked(lambda: uuid in self._present(), create, xml, 0)

    def remove(self, uuids: Iterable[str]) -> None:
        """Remove devices, as far as they exist. libvirt refuses to remove a device that a guest uses."""
        if not (wanted := set(uuids)):
            return
        for uuid, device in self._present().items():
            if uuid in wanted:
                self._connection.call_unless(_GONE, device.destroy)

    def _present(self) -> dict[str, libvirt.virNodeDevice]:
        """Return the present devices by uuid."""
        return {
            capability.findtext("uuid", ""): device
            for device, element in _described(self._connection, _MDEVS)
            if (capability := element.find("capability[@type='mdev']")) is not None
        }


def description(parent: str, kind: str, uuid: str) -> str:
    """Return the XML by which libvirt makes a mediated device."""
    device = ET.Element("device")
    ET.SubElement(device, "parent").text = parent
    capability = ET.SubElement(device, "capability", type="mdev")
    ET.SubElement(capability, "type", id=kind)
    ET.SubElement(capability, "uuid").text = uuid
    return ET.tostring(device, encoding="unicode")


def _gpus(connection: Connection) -> list[GPU]:
    """Return the GPUs. A mediated device that is made or removed meanwhile counts, so that no place seems to vanish."""
    return parse(element for kinds in (_MDEVS, _GPUS, _MDEVS) for _, element in _described(connection, kinds))


def _described(connection: Connection, kinds: int) -> list[tuple[libvirt.virNodeDevice, ET.Element]]:
    """Return node devices with their descriptions. A device that vanishes meanwhile is left out."""
    devices = connection.connect_call("listAllDevices", kinds)
    texts = [(device, connection.call_unless(_GONE, device.XMLDesc, 0)) for device in devices]
    return [(device, ET.fromstring(text)) for device, text in texts if text is not None]  # noqa: S314 libvirt's own


def parse(elements: Iterable[ET.Element]) -> list[GPU]:
    """Return the GPUs among node devices, with the mediated devices that they have."""
    described = list(elements)
    present: dict[str, dict[str, str]] = {}
    for element in described:
        if (mdev := element.find("capability[@type='mdev']")) is not None:
            kind = mdev.find("type")
            of_parent = present.setdefault(element.findtext("parent", ""), {})
            of_parent[mdev.findtext("uuid", "")] = "" if kind is None else kind.get("id", "")
    gpus = []
    for element in described:
        pci = element.find("capability[@type='pci']")
        if pci is None or not pci_devices.is_usable(pci):
            continue
        if (types := pci.find("capability[@type='mdev_types']")) is None:
            continue
        name, numa = element.findtext("name", ""), pci.find("numa")
        gpus.append(
            GPU(
                address=pci_devices.address(pci),
                available={
                    kind.get("id", ""): int(kind.findtext("availableInstances", "0")) for kind in types.findall("type")
                },
                present=present.get(name, {}),
                numa_cell=None if numa is None else int(numa.get("node", "0")),
                node_device=name,
            )
        )
    return gpus
