"""XML of the hardware that a guest's flavor and image request."""

from __future__ import annotations

import string
import xml.etree.ElementTree as ET
from collections.abc import Collection, Mapping

from nova_lite.hardware import guest
from nova_lite.hardware.guest import DEFAULT, Hardware
from nova_lite.objects import InstanceNUMATopology
from nova_lite.virt.libvirt.disks.disks import Disk
from nova_lite.virt.libvirt.domain import numa_xml
from nova_lite.virt.libvirt.host import kvm
from nova_lite.virt.libvirt.host.cpu_model import CpuModel

#: The USB controller of guests that need one.
USB_MODEL = "qemu-xhci"

#: Parts of Hyper-V's interface that a Windows guest has, as in Nova.
_ENLIGHTENMENTS = (
    "relaxed", "vapic", "spinlocks", "vpindex", "runtime", "synic", "reset", "frequencies", "tlbflush", "ipi",
)  # fmt: skip
#: Attempts of a Windows guest to take a spin lock before it notifies the hypervisor.
_SPIN_RETRIES = "8191"


#: Model of a SCSI controller whose targets have one unit.
ONE_UNIT = "lsisas1068"

#: Buses on which qemu has no read-only disks, but read-only CD-ROM drives.
WITHOUT_READ_ONLY_DISKS = (guest.IDE, guest.SATA)


def machine(hardware: Hardware, default: str = "pc", buses: Collection[str] = ()) -> str:
    """Return the machine type. Secure boot and encrypted memory require q35, and an IDE bus requires pc.

    ``buses``: of all disks.
    """
    if hardware.machine_type:
        return hardware.machine_type
    if hardware.secure_boot == guest.REQUIRED or hardware.mem_encryption is not None:
        return default if is_q35(default) else "q35"
    return "pc" if guest.IDE in buses and is_q35(default) else default


def disk_buses(hardware: Hardware, disks: Collection[Disk]) -> set[str]:
    """Return the buses of a guest's disks. Each machine has the default bus of a drive."""
    local = {hardware.disk_bus} | ({hardware.cdrom_bus} if hardware.cdrom_bus else set())
    return local | {disk.bus for disk in disks if disk.serial is not None}


def is_q35(machine_type: str) -> bool:
    return "q35" in machine_type


def without_ide(machine_type: str) -> str | None:
    """Return the bus that drives have instead of IDE. None: the machine has an IDE bus."""
    if machine_type.startswith(guest.VIRT):
        return guest.SCSI
    return guest.SATA if is_q35(machine_type) else None


def firmware(os_element: ET.Element, hardware: Hardware, secure: bool, nvram: str) -> None:
    """Add the firmware. libvirt selects it by its features. Call it right after the machine type.

    ``nvram``: the file of its variables. ``secure``: start signed systems only.
    """
    if not hardware.uefi:
        return
    os_element.set("firmware", "efi")
    features = ET.SubElement(os_element, "firmware")
    ET.SubElement(features, "feature", enabled=_yes(secure), name="enrolled-keys")
    ET.SubElement(features, "feature", enabled=_yes(secure), name="secure-boot")
    if secure:
        ET.SubElement(os_element, "loader", secure="yes")
    ET.SubElement(os_element, "nvram").text = nvram


def boot_after_drive(domain: ET.Element, devices: ET.Element) -> None:
    """Boot the first volume if the drive of an ISO image starts nothing, as that of an installer after its first part.

    Devices have orders of their own then: "hd" would be the first local disk, such as the config drive.
    """
    os_element = domain.find("os")
    assert os_element is not None
    drive = os_element.find("boot[@dev='cdrom']")
    volume = devices.find("disk/serial/..")
    if drive is None or volume is None:
        return
    os_element.remove(drive)
    root = devices.find("disk[@device='cdrom']")
    assert root is not None
    for order, disk in enumerate((root, volume), 1):
        ET.SubElement(disk, "boot", order=str(order))


def boot_menu(os_element: ET.Element, hardware: Hardware) -> None:
    if hardware.boot_menu:
        ET.SubElement(os_element, "bootmenu", enable="yes")


def cpu_tune(domain: ET.Element, hardware: Hardware) -> None:
    if hardware.cpu_tune:
        tune = ET.SubElement(domain, "cputune")
        for name, value in hardware.cpu_tune.items():
            ET.SubElement(tune, name).text = str(value)


def features(element: ET.Element, hardware: Hardware, virt_type: str, secure: bool) -> None:
    if hardware.windows and virt_type == kvm.KVM:
        hyperv = ET.SubElement(element, "hyperv")
        for name in _ENLIGHTENMENTS:
            enlightenment = ET.SubElement(hyperv, name, state="on")
            if name == "spinlocks":
                enlightenment.set("retries", _SPIN_RETRIES)
    if hardware.hidden:
        ET.SubElement(ET.SubElement(element, "kvm"), "hidden", state="on")
    if hardware.pmu is not None:
        ET.SubElement(element, "pmu", state="on" if hardware.pmu else "off")
    if secure:
        ET.SubElement(element, "smm", state="on")


def cpu(domain: ET.Element, hardware: Hardware, model: CpuModel, numa: InstanceNUMATopology | None = None) -> None:
    element = model.element()
    sockets, cores, threads = (str(number) for number in hardware.topology)
    ET.SubElement(element, "topology", sockets=sockets, cores=cores, threads=threads)
    if hardware.maxphysaddr_mode:
        bounds = ET.SubElement(element, "maxphysaddr", mode=hardware.maxphysaddr_mode)
        if hardware.maxphysaddr_bits:
            bounds.set("bits", str(hardware.maxphysaddr_bits))
    numa_xml.guest_nodes(element, numa)
    model.add_features(element, {"hypervisor": "disable"} if hardware.hidden else {})
    domain.append(element)


def clock(domain: ET.Element, hardware: Hardware, virt_type: str) -> None:
    element = ET.SubElement(domain, "clock", offset="localtime" if hardware.windows else "utc")
    if virt_type == kvm.KVM:
        ET.SubElement(element, "timer", name="pit", tickpolicy="delay")
        ET.SubElement(element, "timer", name="rtc", tickpolicy="catchup")
        if hardware.windows:
            ET.SubElement(element, "timer", name="hypervclock", present="yes")
    if not hardware.is_arm:
        ET.SubElement(element, "timer", name="hpet", present=_yes(hardware.hpet))


def disk(element: ET.Element, hardware: Hardware, first: bool, drive_bus: str) -> None:
    """Adapt ``element``, a virtio disk, to the hardware. ``first``: it is the root disk."""
    target, driver = element.find("target"), element.find("driver")
    assert target is not None and driver is not None
    bus = hardware.disk_bus
    if first and hardware.cdrom:
        bus = hardware.cdrom_bus or drive_bus
        make_drive(element)
    set_bus(element, bus)
    target.set("dev", device(target.get("dev", ""), bus))
    if hardware.packed_ring and bus == guest.VIRTIO:
        driver.set("packed", "on")
    if hardware.disk_tune and element.get("device") == "disk":
        tune = ET.SubElement(element, "iotune")
        for name, value in hardware.disk_tune.items():
            ET.SubElement(tune, name).text = str(value)


def set_bus(element: ET.Element, bus: str) -> None:
    """Set the bus of a disk. A read-only disk, as a config drive, becomes a CD-ROM drive where it has to be one."""
    target = element.find("target")
    assert target is not None
    target.set("bus", bus)
    if bus in WITHOUT_READ_ONLY_DISKS and element.find("readonly") is not None:
        make_drive(element)


def name_ide_disks(disks: Collection[ET.Element]) -> None:
    """Give local disks free names of the IDE bus, which has few places, if they have others."""
    ide = [disk for disk in disks if disk.find("target[@bus='ide']") is not None]
    places = [device(f"vd{letter}", guest.IDE) for letter in string.ascii_lowercase[: guest.IDE_PLACES]]
    names = [_target(disk).get("dev", "") for disk in ide]
    if set(names) <= set(places):
        return
    kept = {name for disk, name in zip(ide, names, strict=True) if disk.find("serial") is not None}
    free = iter([place for place in places if place not in kept])
    for disk in ide:
        if disk.find("serial") is None:
            _target(disk).set("dev", next(free, _target(disk).get("dev", "")))


def address_scsi_disks(disks: Collection[ET.Element], hardware: Hardware) -> None:
    """Give each SCSI disk a target of its own at a controller with one unit for each. libvirt counts units."""
    if hardware.scsi_model != ONE_UNIT:
        return
    for disk in disks:
        if disk.find("target[@bus='scsi']") is not None:
            target = string.ascii_lowercase.index(_target(disk).get("dev", "")[-1])
            ET.SubElement(disk, "address", type="drive", controller="0", bus="0", target=str(target), unit="0")


def _target(disk: ET.Element) -> ET.Element:
    target = disk.find("target")
    assert target is not None
    return target


def make_drive(element: ET.Element) -> None:
    """Make a disk a CD-ROM drive."""
    driver = element.find("driver")
    assert driver is not None
    element.set("device", "cdrom")
    driver.attrib.pop("discard", None)
    if element.find("readonly") is None:
        ET.SubElement(element, "readonly")


def device(name: str, bus: str) -> str:
    """Return the device name on another bus for a name such as ``vda``."""
    return guest.DEVICE_PREFIX[bus] + name[2:]


def interface(element: ET.Element, hardware: Hardware) -> None:
    """Adapt ``element``, a virtio interface without limits, to the hardware."""
    model = element.find("model")
    assert model is not None
    model.set("type", hardware.vif_model)
    if hardware.vif_model == guest.VIRTIO:
        driver = ({"queues": str(hardware.queues)} if hardware.queues > 1 else {}) | (
            {"packed": "on"} if hardware.packed_ring else {}
        )
        if driver:
            ET.SubElement(element, "driver", driver)
    if hardware.inbound or hardware.outbound:
        bandwidth = ET.SubElement(element, "bandwidth")
        for way, limits in (("inbound", hardware.inbound), ("outbound", hardware.outbound)):
            if limits:
                ET.SubElement(bandwidth, way, _texts(limits))


def controllers(devices: ET.Element, hardware: Hardware) -> None:
    if guest.SCSI in (hardware.disk_bus, hardware.cdrom_bus):
        ET.SubElement(devices, "controller", type="scsi", index="0", model=hardware.scsi_model)
    usb = (hardware.usb_model or USB_MODEL) if hardware.needs_usb else "none"
    ET.SubElement(devices, "controller", type="usb", model=usb)


def root_ports(devices: ET.Element, spare: int) -> None:
    """Add root ports of PCI Express: for the devices that need one, and ``spare`` ones for devices that come later.

    libvirt alone leaves one, and a running machine gets no others.
    """
    if not spare:
        return
    others = ("interface", "hostdev", "filesystem", "memballoon", "memory", "rng", "controller[@type='scsi']")
    places = ("disk/target[@bus='virtio']", "input[@bus='virtio']", *others)
    needed = sum(len(devices.findall(path)) for path in places)
    needed += any(controller.get("model") != "none" for controller in devices.findall("controller[@type='usb']"))
    needed += any(devices.find(name) is not None for name in ("sound", "watchdog"))  # behind one bridge
    needed += devices.find("channel") is not None  # all behind one controller
    ET.SubElement(devices, "controller", type="pci", index="0", model="pcie-root")
    for index in range(1, needed + spare + 1):
        ET.SubElement(devices, "controller", type="pci", index=str(index), model="pcie-root-port")


def add_controllers(devices: ET.Element, buses: set[str]) -> None:
    """Add controllers that disks need when they are attached later. libvirt adds controllers of other buses itself."""
    if guest.SCSI in buses and devices.find("controller[@type='scsi']") is None:
        ET.SubElement(devices, "controller", type="scsi", index="0", model=DEFAULT.scsi_model)
    none = devices.find("controller[@type='usb'][@model='none']")
    if guest.USB in buses and none is not None:
        none.set("model", USB_MODEL)


def video(devices: ET.Element, hardware: Hardware) -> None:
    """Add the graphics card. A guest with a screen always has one."""
    element = devices.find("video/model")
    if element is None:
        if hardware.video_model is None:
            return
        element = ET.SubElement(ET.SubElement(devices, "video"), "model")
    if model := hardware.video_model or ("virtio" if hardware.is_arm else None):
        element.set("type", model)
    if hardware.video_ram_mb and hardware.video_model != "none":
        element.set("vram", str(hardware.video_ram_mb * 1024))


def serial_ports(devices: ET.Element, hardware: Hardware) -> None:
    """Add the serial ports after the first one, which is the console."""
    for port in range(1, hardware.serial_ports):
        ET.SubElement(ET.SubElement(devices, "serial", type="pty"), "target", port=str(port))


def more(devices: ET.Element, hardware: Hardware) -> None:
    for kind, bus in (("tablet", hardware.tablet), ("keyboard", hardware.keyboard)):
        if bus is not None:
            ET.SubElement(devices, "input", type=kind, bus=bus)
    if hardware.sound_model is not None:
        ET.SubElement(devices, "sound", model=hardware.sound_model)
    if hardware.watchdog is not None:
        ET.SubElement(devices, "watchdog", model="i6300esb", action=hardware.watchdog)
    if hardware.rng:
        rng = ET.SubElement(devices, "rng", model="virtio")
        if hardware.rng_bytes:
            ET.SubElement(rng, "rate", bytes=str(hardware.rng_bytes), period=str(hardware.rng_period))
        ET.SubElement(rng, "backend", model="random").text = "/dev/urandom"


def tpm(devices: ET.Element, hardware: Hardware, instance_uuid: str) -> None:
    """Add the TPM. libvirt encrypts its state with the secret that has the guest's uuid.

    The state stays when the guest is defined again.
    """
    if hardware.tpm is not None:
        element = ET.SubElement(devices, "tpm", model=hardware.tpm.model)
        version = {"version": hardware.tpm.version, "persistent_state": "yes"}
        backend = ET.SubElement(element, "backend", {"type": "emulator", **version})
        ET.SubElement(backend, "encryption", secret=instance_uuid)


def panic_device(devices: ET.Element) -> None:
    """Add the device by which a guest's kernel reports its panic. Then libvirt switches the guest off."""
    ET.SubElement(devices, "panic", model="isa")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _texts(values: Mapping[str, int]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
