"""The guest as libvirt XML, and our metadata in it.

The XML is built as a tree, so all values are escaped.
"""

from __future__ import annotations

import datetime
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable

import msgspec

from nova_lite import hardware as requested
from nova_lite.base.version import VERSION
from nova_lite.hardware import DEFAULT, Hardware, guest
from nova_lite.objects import VIF, NetworkDisk, usable
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.disks import volume_chains
from nova_lite.virt.libvirt.disks.disks import NVRAM, ROOTS, DirectBoot, Disk, DiskSet
from nova_lite.virt.libvirt.domain import (
    consoles,
    hardware_xml,
    hotplug_xml,
    mem_encryption_xml,
    numa_xml,
    pci_xml,
    shares_xml,
)
from nova_lite.virt.libvirt.domain.consoles import Listeners
from nova_lite.virt.libvirt.host import cpu_model, kvm
from nova_lite.virt.libvirt.host.cpu_model import CpuModel
from nova_lite.virt.libvirt.net import names, neutron

#: XML namespace of our metadata in a domain.
NAMESPACE = "urn:nova-lite:instance:1"
PREFIX = "novalite"

CONSOLE_LOG = "console.log"

#: Metadata of a guest whose snapshots need its agent.
QUIESCE = "quiesce"

#: Channel of qemu's guest agent in the guest.
AGENT_CHANNEL = "org.qemu.guest_agent.0"

ET.register_namespace(PREFIX, NAMESPACE)


class Host(msgspec.Struct, frozen=True):
    """Properties of the host that guests depend on.

    ``cpu``: the CPU model; None: libvirt's default of the virtualization type. ``machine``: used if the image names
    none. ``secure_boot``: whether the firmware can enforce signed systems. ``shares_path``: directory of shares.
    ``shared_cpus``: see `nova_lite.virt.topology.shared_cpus`. ``spare_ports``: places for later devices on machines
    with PCI Express.
    """

    cpu: CpuModel | None = None
    machine: str = "pc"
    secure_boot: bool = False
    shares_path: str | None = None
    shared_cpus: dict[str, str] = {}
    spare_ports: int = 0


class Owner(msgspec.Struct, frozen=True):
    """Host, build attempt and project that a domain belongs to."""

    host: str
    generation: int
    project_id: str = ""


def guest_xml(
    spec: SpawnSpec,
    host: str,
    directory: str,
    disks: DiskSet,
    virt_type: str,
    tb_cache_mb: int,
    listeners: Listeners = consoles.NONE,
    hardware: Hardware | None = None,
    given: Host | None = None,
) -> str:
    """Return the XML of a domain.

    ``tb_cache_mb`` limits qemu's cache of translated code (emulation only; 0: its default). ``listeners``: addresses
    of its consoles. ``hardware`` None: what flavor and image request. ``given``: properties of the host.
    """
    instance = spec.instance
    hardware = hardware or requested.resolve(instance.flavor, spec.image)
    given = given or Host()
    if hardware.is_arm:
        virt_type, given = kvm.QEMU, msgspec.structs.replace(given, cpu=cpu_model.AARCH64)
    machine = hardware_xml.machine(hardware, given.machine, hardware_xml.disk_buses(hardware, disks.disks))
    secure = is_secure(hardware, machine, given)
    domain = ET.Element("domain", type=virt_type)
    _text(domain, "name", instance.name)
    _text(domain, "uuid", instance.uuid)
    _metadata(domain, spec, host, hardware)
    _text(domain, "memory", str(instance.flavor.memory_mb), unit="MiB")
    _text(domain, "vcpu", str(instance.flavor.vcpus))
    hardware_xml.cpu_tune(domain, hardware)
    numa_xml.place(domain, instance.numa, given.shared_cpus)
    _sysinfo(domain, instance.uuid)
    _boot(domain, disks, hardware, machine, secure, os.path.join(directory, NVRAM))
    features = ET.SubElement(domain, "features")
    ET.SubElement(features, "acpi")
    if not hardware.is_arm:
        ET.SubElement(features, "apic")
    if virt_type == kvm.QEMU and tb_cache_mb:
        _text(ET.SubElement(features, "tcg"), "tb-cache", str(tb_cache_mb), unit="MiB")
    hardware_xml.features(features, hardware, virt_type, secure)
    hardware_xml.cpu(domain, hardware, given.cpu or cpu_model.default(virt_type), instance.numa)
    hardware_xml.clock(domain, hardware, virt_type)
    _text(domain, "on_poweroff", "destroy")
    _text(domain, "on_reboot", "restart")
    _text(domain, "on_crash", "destroy")
    console_log = os.path.join(directory, CONSOLE_LOG)
    drive_bus = hardware_xml.without_ide(machine) or guest.IDE
    vifs = [vif.with_device(instance.pci) for vif in spec.vifs]
    devices = _devices(domain, vifs, disks.disks, hardware, drive_bus)
    hardware_xml.boot_after_drive(domain, devices)
    consoles.add(devices, listeners, console_log)
    hardware_xml.serial_ports(devices, hardware)
    hardware_xml.video(devices, hardware)
    _more_devices(devices, hardware)
    pci_xml.add(devices, instance.pci or ())
    hardware_xml.tpm(devices, hardware, instance.uuid)
    hotplug_xml.add(domain, instance.flavor, hardware)
    shares_xml.add(domain, usable(instance.shares), given.shares_path)
    if hardware_xml.without_ide(machine):
        hardware_xml.root_ports(devices, given.spare_ports)
    if instance.protected and not hardware.is_arm:
        # A guest without protection has none, as with Nova: it may show its panic, or restart on its own.
        hardware_xml.panic_device(devices)
    mem_encryption_xml.add(domain, hardware)
    return ET.tostring(domain, encoding="unicode")


def is_secure(hardware: Hardware, machine: str, given: Host) -> bool:
    """Check whether the guest's firmware starts signed systems only."""
    can = hardware_xml.is_q35(machine) and given.secure_boot and hardware.mem_encryption is None
    return hardware.secure_boot == requested.REQUIRED or (hardware.secure_boot == requested.OPTIONAL and can)


def _text(parent: ET.Element, tag: str, text: str, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


def _metadata(domain: ET.Element, spec: SpawnSpec, host: str, hardware: Hardware) -> None:
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
    if hardware.quiesce:
        _text(instance, f"{{{NAMESPACE}}}{QUIESCE}", "required")


def parse_owner(metadata: str) -> Owner | None:
    """Parse the metadata element that libvirt returns. Return None if it is not ours."""
    try:
        root = ET.fromstring(metadata)  # noqa: S314 our own element, out of libvirt's parsed tree
        values = {child.tag.rpartition("}")[2]: child.text or "" for child in root}
        return Owner(values["host"], int(values["generation"]), values.get("project", ""))
    except (ET.ParseError, KeyError, ValueError):
        return None


def needs_quiesce(metadata: str) -> bool:
    """Check in the metadata element whether a snapshot needs the guest's agent."""
    root = ET.fromstring(metadata)  # noqa: S314 our own element, out of libvirt's parsed tree
    return root.find(f"{{{NAMESPACE}}}{QUIESCE}") is not None


def has_tpm(xml: str) -> bool:
    """Check in a domain's XML whether the guest has a TPM with an encrypted state."""
    return ET.fromstring(xml).find("devices/tpm/backend/encryption") is not None  # noqa: S314 libvirt's own


def boot_files(xml: str) -> set[str]:
    """Return the names of the files that the hypervisor boots a guest from: kernel and ramdisk."""
    root = ET.fromstring(xml)  # noqa: S314 libvirt's own
    found = (root.findtext(f"os/{tag}") for tag in ("kernel", "initrd"))
    return {os.path.basename(path) for path in found if path}


def _sysinfo(domain: ET.Element, instance_uuid: str) -> None:
    """Add the DMI strings. By the product name cloud-init detects OpenStack, and looks for the config drive."""
    system = ET.SubElement(ET.SubElement(domain, "sysinfo", type="smbios"), "system")
    for name, value in (
        ("manufacturer", "nova_lite"),
        ("product", "OpenStack Compute"),
        ("version", VERSION),
        ("serial", instance_uuid),
        ("uuid", instance_uuid),
    ):
        _text(system, "entry", value, name=name)


def _boot(domain: ET.Element, disks: DiskSet, hardware: Hardware, machine: str, secure: bool, nvram: str) -> None:
    os_element = ET.SubElement(domain, "os")
    _text(os_element, "type", "hvm", arch=hardware.architecture or guest.X86_64, machine=machine)
    hardware_xml.firmware(os_element, hardware, secure, nvram)
    add_boot(os_element, disks.direct_boot, hardware.cdrom)
    hardware_xml.boot_menu(os_element, hardware)
    ET.SubElement(os_element, "smbios", mode="sysinfo")


def add_boot(os_element: ET.Element, direct: DirectBoot | None, cdrom: bool = False) -> None:
    """Add what the guest boots: its first disk (or drive), or a kernel that the hypervisor starts itself."""
    if direct is None:
        ET.SubElement(os_element, "boot", dev="cdrom" if cdrom else "hd")
    else:
        _text(os_element, "kernel", direct.kernel)
        if direct.ramdisk:
            _text(os_element, "initrd", direct.ramdisk)
        _text(os_element, "cmdline", direct.command_line)


def _devices(
    domain: ET.Element,
    vifs: list[VIF],
    disks: list[Disk],
    hardware: Hardware,
    drive_bus: str,
) -> ET.Element:
    devices = ET.SubElement(domain, "devices")
    for disk in disks:
        element = disk_element(disk)
        if disk.serial is None:
            hardware_xml.disk(element, hardware, os.path.basename(disk.path) in ROOTS, drive_bus)
        devices.append(element)
    hardware_xml.name_ide_disks(devices.findall("disk"))
    hardware_xml.address_scsi_disks(devices.findall("disk"), hardware)
    hardware_xml.controllers(devices, hardware)
    hardware_xml.add_controllers(devices, {disk.bus for disk in disks})
    for vif in vifs:
        devices.append(_interface(vif, hardware))
    return devices


def _more_devices(devices: ET.Element, hardware: Hardware) -> None:
    if hardware.agent:
        channel = ET.SubElement(devices, "channel", type="unix")
        ET.SubElement(channel, "target", type="virtio", name=AGENT_CHANNEL)
    balloon = ET.SubElement(devices, "memballoon", model="virtio")
    ET.SubElement(balloon, "stats", period="10")
    hardware_xml.more(devices, hardware)


def disk_element(disk: Disk) -> ET.Element:
    is_block = disk.path.startswith("/dev/")
    kind = "network" if disk.network is not None else "block" if is_block else "file"
    element = ET.Element("disk", type=kind, device="disk")
    driver = ET.SubElement(element, "driver", name="qemu", type=disk.format, discard="unmap")
    if disk.direct:
        driver.set("cache", "none")
        if disk.network is None:
            driver.set("io", "native")
    if disk.network is not None:
        source = _network_source(element, disk.network)
    else:
        source = ET.SubElement(element, "source", {"dev" if is_block else "file": disk.path})
    if disk.secret is not None:
        add_encryption(source, disk.secret)
    ET.SubElement(element, "target", dev=disk.device, bus=disk.bus)
    if disk.serial is not None:
        _text(element, "serial", disk.serial)
    if disk.read_only:
        ET.SubElement(element, "readonly")
    if disk.shareable:
        ET.SubElement(element, "shareable")
    if disk.below is not None or disk.format == "raw":
        add_backing(element, disk.below or ())
    return element


def add_backing(disk: ET.Element, below: Iterable[volume_chains.File]) -> None:
    """Name the files below a disk, down to the last one.

    Otherwise libvirt looks into them: it takes the content of a raw file that begins like LUKS for an encrypted disk.
    """
    store = ET.SubElement(disk, "backingStore")
    for file in below:
        store.set("type", "file")
        ET.SubElement(store, "format", type=file.format)
        ET.SubElement(store, "source", file=file.path)
        store = ET.SubElement(store, "backingStore")


def add_encryption(source: ET.Element, secret: str) -> None:
    """Let qemu decrypt LUKS data with the libvirt secret of this uuid.

    The engine is named, because libvirt 11 copies to a raw file without encryption if it is not.
    """
    encryption = ET.SubElement(source, "encryption", format="luks", engine="qemu")
    ET.SubElement(encryption, "secret", type="passphrase", uuid=secret)


def _network_source(element: ET.Element, where: NetworkDisk) -> ET.Element:
    source = ET.SubElement(element, "source", protocol=where.protocol, name=where.name)
    for name, port in where.hosts:
        ET.SubElement(source, "host", name=name, port=port)
    if where.config is not None:
        ET.SubElement(source, "config", file=where.config)
    if where.secret is not None:
        auth = ET.SubElement(source, "auth", username=str(where.user))
        ET.SubElement(auth, "secret", type="ceph", uuid=where.secret)
    return source


def interface_xml(vif: VIF) -> str:
    """Return the XML of one interface, to attach it to an existing domain."""
    return ET.tostring(_interface(vif), encoding="unicode")


def _interface(vif: VIF, hardware: Hardware = DEFAULT) -> ET.Element:
    """Return a tap device on the network's bridge. `anti_spoofing` guards it by its name.

    Ports of Neutron are filtered by Open vSwitch. A device of the host is not filtered.
    """
    if vif.is_device:
        element = pci_xml.interface(vif)
        if element.get("type") == "direct":
            hardware_xml.interface(element, hardware)
        return element
    if vif.vif_type is not None:
        element = neutron.interface(vif)
        _common(element, vif)
        hardware_xml.interface(element, hardware)
        neutron.turn_off_offloads(element, vif)
        return element
    element = ET.Element("interface", type="bridge")
    ET.SubElement(element, "source", bridge=names.bridge_name(vif.network))
    _common(element, vif)
    hardware_xml.interface(element, hardware)
    return element


def _common(element: ET.Element, vif: VIF) -> None:
    ET.SubElement(element, "mac", address=vif.mac_address)
    ET.SubElement(element, "target", dev=names.tap_name(vif))
    ET.SubElement(element, "model", type="virtio")
    ET.SubElement(element, "mtu", size=str(vif.network.mtu))
