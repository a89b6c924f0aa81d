"""The traits of this host: hardware that its libvirt and qemu can give to guests."""

from __future__ import annotations

import logging
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Any

import libvirt

from nova_lite.hardware import guest, traits
from nova_lite.virt.libvirt.connection import Connection, LibvirtFailure
from nova_lite.virt.libvirt.host.cpu_model import CUSTOM, PASSTHROUGH, CpuModel

LOG = logging.getLogger(__name__)

ARCHITECTURE = "x86_64"
#: Machine types whose capabilities are queried. Each has features that the other lacks.
MACHINES = ("pc", "q35")


def domain_traits(capabilities: Iterable[str]) -> set[str]:
    """Return the traits of devices and firmware, from libvirt's domain capabilities of each machine type."""
    found = {*traits.ALWAYS, traits.MULTIATTACH}
    for text in capabilities:
        described = ET.fromstring(text)  # noqa: S314 libvirt's own
        models = _values(described, "devices/video/enum[@name='modelType']")
        found |= {traits.of_video(model) for model in models if model in traits.VIDEO_MODELS}
        buses = _values(described, "devices/disk/enum[@name='bus']")
        found |= {traits.of_bus(bus) for bus in buses if bus in guest.DEVICE_PREFIX}
        if "efi" in _values(described, "os/enum[@name='firmware']"):
            found.add(traits.UEFI)
            if "yes" in _values(described, "os/loader/enum[@name='secure']"):
                found.add(traits.SECURE_BOOT)
    return found


def _values(described: ET.Element, path: str) -> list[str]:
    return [element.text or "" for element in described.iterfind(f"{path}/value")]


def cpu_traits(connection: Connection, virt_type: str, model: CpuModel, capabilities: str) -> set[str]:
    """Return the traits of the CPU that guests see. ``capabilities``: of domains. If libvirt cannot expand the model:
    none."""
    described = ET.fromstring(capabilities)  # noqa: S314 libvirt's own
    try:
        text = connection.connect_call(
            "baselineHypervisorCPU",
            None,
            ARCHITECTURE,
            None,
            virt_type,
            [_model(described, model)],
            libvirt.VIR_CONNECT_BASELINE_CPU_EXPAND_FEATURES,
        )
    except LibvirtFailure as error:
        LOG.warning("The features of guests' CPUs are unknown, so no trait names them: %s", error.message)
        return set()
    return traits.of_features(features(text, model.flags)) | _of_addresses(model)


def _of_addresses(model: CpuModel) -> set[str]:
    return {traits.ADDRESSES["passthrough"]} if model.mode == PASSTHROUGH else set()


def _model(described: ET.Element, model: CpuModel) -> str:
    """Return the XML of the model for libvirt to expand: a named model, or the host's."""
    cpu = ET.Element("cpu")
    ET.SubElement(cpu, "arch").text = ARCHITECTURE
    if model.mode == CUSTOM:
        ET.SubElement(cpu, "model").text = model.model
        return ET.tostring(cpu, encoding="unicode")
    found = described.find("cpu/mode[@name='host-model']")
    for element in () if found is None else found:
        ET.SubElement(cpu, element.tag, element.attrib if element.tag == "feature" else {}).text = element.text
    return ET.tostring(cpu, encoding="unicode")


def features(cpu: str, flags: dict[str, str]) -> set[str]:
    """Return the features of an expanded CPU, with the operator's changes."""
    root: Any = ET.fromstring(cpu)  # noqa: S314 libvirt's own
    found = {
        element.get("name", "") for element in root.iterfind("feature") if element.get("policy", "require") != "disable"
    }
    for name, policy in flags.items():
        (found.add if policy == "require" else found.discard)(name)
    return found
