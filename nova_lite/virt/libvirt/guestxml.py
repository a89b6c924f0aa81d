"""The guest as libvirt's XML, and what we write into and read from its metadata.

All of it is built as a tree, so whatever a value holds is escaped.
"""

from __future__ import annotations

import datetime
import os
import xml.etree.ElementTree as ET
from collections.abc import Collection

import msgspec
from oslo_utils import strutils

from nova_lite.objects import VIF, Image
from nova_lite.objects.image import GUEST_AGENT
from nova_lite.version import VERSION
from nova_lite.virt.driver import SpawnSpec
from nova_lite.virt.libvirt import consoles, kvm, names
from nova_lite.virt.libvirt.consoles import Listeners
from nova_lite.virt.libvirt.disks import DirectBoot, Disk, DiskSet

#: Our namespace in a domain's metadata.
NAMESPACE = "urn:nova-lite:instance:1"
PREFIX = "novalite"

CONSOLE_LOG = "console.log"

#: Where qemu's guest agent listens in the guest.
AGENT_CHANNEL = "org.qemu.guest_agent.0"

#: libvirt's names of the models in `kvm.CPU_MODELS`.
CPU_MODES = {kvm.KVM: "host-passthrough", kvm.QEMU: "maximum"}

ET.register_namespace(PREFIX, NAMESPACE)


class Owner(msgspec.Struct, frozen=True):
    """Whose a domain is, and of which build attempt."""

    host: str
    generation: int


def guest_xml(
    spec: SpawnSpec,
    host: str,
    directory: str,
    disks: DiskSet,
    virt_type: str,
    tb_cache_mb: int,
    libvirt_networks: Collection[str] = (),
    listeners: Listeners = consoles.NONE,
) -> str:
    """The whole domain. ``tb_cache_mb`` bounds qemu's cache of translated code (emulation only; 0: its default).
    ``libvirt_networks``: ids of the networks that libvirt runs; the bridges of others are the operator's.
    ``listeners``: where its consoles listen."""
    instance = spec.instance
    domain = ET.Element("domain", type=virt_type)
    _text(domain, "name", instance.name)
    _text(domain, "uuid", instance.uuid)
    _metadata(domain, spec, host)
    _text(domain, "memory", str(instance.flavor.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(instance.flavor.vcpus))
    _sysinfo(domain, instance.uuid)
    _boot(domain, disks)
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    ET.SubElement(features, "apic")
    if virt_type == kvm.QEMU and tb_cache_mb:
        _text(ET.SubElement(features, "tcg"), "tb-cache", str(tb_cache_mb), unit="MiB")
    cpu = ET.SubElement(domain, "cpu", mode=CPU_MODES[virt_type])
    ET.SubElement(cpu, "topology", sockets=str(instance.flavor.vcpus), cores="1", threads="1")
    _clock(domain, virt_type)
    _text(domain, "on_poweroff", "destroy")
    _text(domain, "on_reboot", "restart")
    _text(domain, "on_crash", "destroy")
    console_log = os.path.join(directory, CONSOLE_LOG)
    devices = _devices(domain, spec.vifs, libvirt_networks, disks.disks)
    consoles.add(devices, listeners, console_log)
    _more_devices(devices, _has_agent(spec.image))
    return ET.tostring(domain, encoding="unicode")


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _metadata(domain: ET.Element, spec: SpawnSpec, host: str) -> None:
    metadata = ET.SubElement(domain, "metadata")
    instance = ET.SubElement(metadata, f"{{{NAMESPACE}}}instance")
    created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for tag, text in (
        ("host", host),
        ("generation", str(spec.generation)),
        ("project", spec.instance.project_id),
        ("created", created),
    ):
        _text(instance, f"{{{NAMESPACE}}}{tag}", text)


def parse_owner(metadata: str) -> Owner | None:
    """From the metadata element as libvirt returns it; None if it is not of the form that we write."""
    try:
        root = ET.fromstring(metadata)  # noqa: S314 our own element, out of libvirt's parsed tree
        values = {child.tag.rpartition("}")[2]: child.text or "" for child in root}
        return Owner(host=values["host"], generation=int(values["generation"]))
    except (ET.ParseError, KeyError, ValueError):
        return None


def _sysinfo(domain: ET.Element, instance_uuid: str) -> None:
    """DMI strings; by the product's name cloud-init knows an OpenStack cloud, and looks for its config drive."""
    system = ET.SubElement(ET.SubElement(domain, "sysinfo", type="smbios"), "system")
    for name, value in (
        ("manufacturer", "nova_lite"),
        ("product", "OpenStack Compute"),
        ("version", VERSION),
        ("serial", instance_uuid),
        ("uuid", instance_uuid),
    ):
        _text(system, "entry", value, name=name)


def _boot(domain: ET.Element, disks: DiskSet) -> None:
    os_element = ET.SubElement(domain, "os")
    _text(os_element, "type", "hvm", arch="x86_64", machine="pc")
    add_boot(os_element, disks.direct_boot)
    ET.SubElement(os_element, "smbios", mode="sysinfo")


def add_boot(os_element: ET.Element, direct: DirectBoot | None) -> None:
    """What the guest boots: its first disk, or a kernel that the hypervisor starts itself."""
    if direct is None:
        ET.SubElement(os_element, "boot", dev="hd")
    else:
        _text(os_element, "kernel", direct.kernel)
        if direct.ramdisk:
            _text(os_element, "initrd", direct.ramdisk)
        _text(os_element, "cmdline", direct.command_line)


def _clock(domain: ET.Element, virt_type: str) -> None:
    clock = ET.SubElement(domain, "clock", offset="utc")
    if virt_type == kvm.KVM:
        ET.SubElement(clock, "timer", name="pit", tickpolicy="delay")
        ET.SubElement(clock, "timer", name="rtc", tickpolicy="catchup")
    ET.SubElement(clock, "timer", name="hpet", present="no")


def _has_agent(image: Image | None) -> bool:
    return image is not None and strutils.bool_from_string(image.properties.get(GUEST_AGENT))


def _devices(
    domain: ET.Element,
    vifs: list[VIF],
    libvirt_networks: Collection[str],
    disks: list[Disk],
) -> ET.Element:
    devices = ET.SubElement(domain, "devices")
    for disk in disks:
        devices.append(disk_element(disk))
    ET.SubElement(devices, "controller", type="usb", model="none")
    for vif in vifs:
        _interface(devices, vif, vif.network.id in libvirt_networks)
    return devices


def _more_devices(devices: ET.Element, with_agent: bool) -> None:
    if with_agent:
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name=AGENT_CHANNEL)
    balloon = ET.SubElement(devices, "memballoon", model="virtio")
    ET.SubElement(balloon, "stats", period="10")
    rng = ET.SubElement(devices, "rng", model="virtio")
    _text(rng, "backend", "/dev/urandom", model="random")


def disk_element(disk: Disk) -> ET.Element:
    element = ET.Element("disk", type="file", device="disk")
    ET.SubElement(element, "driver", name="qemu", type=disk.format, discard="unmap")
    ET.SubElement(element, "source", file=disk.path)
    ET.SubElement(element, "target", dev=disk.device, bus="virtio")
    if disk.read_only:
        ET.SubElement(element, "readonly")
    return element


def _interface(devices: ET.Element, vif: VIF, on_libvirt_network: bool) -> None:
    """A tap on the network's bridge that lets through only frames of the VIF's own MAC and IP address.

    A libvirt network is named as such, so that libvirt knows who is on it and plugs guests in again when it restarts.
    """
    kind = "network" if on_libvirt_network else "bridge"
    source = names.network_name(vif.network) if on_libvirt_network else names.bridge_name(vif.network)
    element = ET.SubElement(devices, "interface", type=kind)
    ET.SubElement(element, "mac", address=vif.mac_address)
    ET.SubElement(element, "source", {kind: source})
    ET.SubElement(element, "target", dev=names.tap_name(vif))
    ET.SubElement(element, "model", type="virtio")
    ET.SubElement(element, "mtu", size=str(vif.network.mtu))
    filterref = ET.SubElement(element, "filterref", filter="clean-traffic")
    ET.SubElement(filterref, "parameter", name="IP", value=vif.address)
