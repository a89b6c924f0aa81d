"""Arguments of a guest's qemu.

Devices are JSON objects, the same that QMP takes, so no value is parsed twice. The few options that qemu has no JSON
for get numbers, addresses of options, and paths with their commas doubled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from nova_lite.base.version import VERSION
from nova_lite.objects import VIF
from nova_lite.virt.libvirt.disks.disks import Disk
from nova_lite.virt.libvirt.host import kvm
from nova_lite.virt.qemu.guest import Guest, disk_id, vif_id

#: Ports for devices that a running guest gets later.
SPARE_PORTS = 8

#: Further screens that qemu tries until the port of a screen is free.
SCREENS = 9999

_SANDBOX = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"


class Setting(NamedTuple):
    """Settings of the host. ``vnc``, ``serial``: listen address, None without that console; ``serial_ports``: first and
    last port."""

    virt_type: str
    tb_cache_mb: int = 0
    vnc: str | None = None
    serial: str | None = None
    serial_ports: tuple[int, int] = (10000, 20000)


def arguments(guest: Guest, setting: Setting, console_log: str) -> list[str]:
    """Return the arguments of a guest that starts paused, without those of its monitor."""
    sockets, cores, threads = guest.topology
    machine = f"{guest.machine},pcie=on,acpi=on" if guest.is_microvm else f"{guest.machine},vmport=off,usb=off"
    tcg = f"tcg,tb-size={setting.tb_cache_mb}" if setting.tb_cache_mb else "tcg"
    found = ["-no-user-config", "-nodefaults", "-S", "-no-shutdown", "-sandbox", _SANDBOX, "-uuid", guest.uuid]
    found += ["-name", f"guest={guest.uuid}", "-machine", machine, "-rtc", "base=utc", "-boot", "strict=on"]
    found += ["-accel", "kvm" if setting.virt_type == kvm.KVM else tcg, "-cpu", kvm.CPU_MODELS[setting.virt_type]]
    found += ["-m", str(guest.memory_mb)]
    found += ["-smp", f"{sockets * cores * threads},sockets={sockets},cores={cores},threads={threads}"]
    found += _boot(guest)
    found += _consoles(guest, setting, console_log)
    for device in _devices(guest):
        found += device
    return found


def _boot(guest: Guest) -> list[str]:
    found = []
    if guest.direct_boot is not None:
        found = ["-kernel", guest.direct_boot.kernel, "-append", guest.direct_boot.command_line]
        if guest.direct_boot.ramdisk:
            found += ["-initrd", guest.direct_boot.ramdisk]
    if not guest.is_microvm:
        # cloud-init detects OpenStack by the product's name.
        system = f"manufacturer=nova_lite,product=OpenStack Compute,version={VERSION},serial={guest.uuid}"
        found += ["-smbios", f"type=1,{system},uuid={guest.uuid}"]
    return found


def _consoles(guest: Guest, setting: Setting, console_log: str) -> list[str]:
    """Return the first serial port, whose output is always logged, and the screen. A microvm has no graphics card."""
    kind = "null,id=serial0"
    if setting.serial is not None:
        first, last = setting.serial_ports
        kind = f"socket,id=serial0,host={setting.serial},port={first},to={last},server=on,wait=off"
    found = ["-chardev", f"{kind},logfile={console_log.replace(',', ',,')},logappend=on", "-serial", "chardev:serial0"]
    if setting.vnc is None or guest.is_microvm:
        return [*found, "-display", "none"]
    address = f"[{setting.vnc}]" if ":" in setting.vnc else setting.vnc
    return [*found, "-vnc", f"{address}:0,to={SCREENS}", *_option("-device", {"driver": "VGA", "id": "video0"})]


def _devices(guest: Guest) -> list[list[str]]:
    found = []
    if not guest.is_microvm:
        for number in range(max(guest.ports.values(), default=-1) + 1 + SPARE_PORTS):
            found.append(_option("-device", _port(number)))
    for number, disk in enumerate(guest.disks):
        device = disk_device(guest, disk)
        if guest.direct_boot is None:
            device["bootindex"] = number + 1
        found += [_option("-blockdev", disk_node(disk)), _option("-device", device)]
    for vif in guest.vifs:
        found += [_option("-netdev", netdev(vif)), _option("-device", vif_device(guest, vif))]
    if guest.rng:
        found.append(_option("-object", {"qom-type": "rng-random", "id": "random", "filename": "/dev/urandom"}))
        found.append(_option("-device", {"driver": "virtio-rng-pci", "id": "rng0", "rng": "random"}))
    found.append(_option("-device", {"driver": "virtio-balloon-pci", "id": "balloon0"}))
    return found


def _port(number: int) -> dict[str, Any]:
    """Return a port of the PCI Express bus. Eight share a slot, so that slots remain for other devices."""
    port: dict[str, Any] = {"driver": "pcie-root-port", "id": f"port{number}", "chassis": number + 1, "bus": "pcie.0"}
    return port | {"addr": f"{16 + number // 8:x}.{number % 8:x}", "multifunction": number % 8 == 0}


def _option(name: str, value: dict[str, Any]) -> list[str]:
    return [name, msgspec.json.encode(value).decode()]


def disk_node(disk: Disk) -> dict[str, Any]:
    """Return the block node of a disk, with the nodes below it."""
    node = _node(disk.path, disk.format, disk.read_only, disk.direct) | {"node-name": disk_id(disk)}
    if disk.format == "qcow2":
        backing: dict[str, Any] | None = None
        for file in reversed(disk.below or ()):
            node_below = _node(file.path, file.format, True, disk.direct)
            backing = node_below | ({"backing": backing} if file.format == "qcow2" else {})
        node["backing"] = backing
    return node


def _node(path: str, disk_format: str, read_only: bool, direct: bool) -> dict[str, Any]:
    common = {"read-only": read_only, "cache": {"direct": direct, "no-flush": False}, "discard": "unmap"}
    file = {
        "driver": "host_device" if path.startswith("/dev/") else "file",
        "filename": path,
        "aio": "native" if direct else "threads",
    }
    return {"driver": disk_format, "file": common | file} | common


def disk_device(guest: Guest, disk: Disk) -> dict[str, Any]:
    device: dict[str, Any] = {"driver": "virtio-blk-pci", "id": disk_id(disk), "drive": disk_id(disk)}
    if disk.serial is not None:
        device |= {"serial": disk.serial, "share-rw": disk.shareable} | _bus(guest, disk_id(disk))
    return device


def netdev(vif: VIF) -> dict[str, Any]:
    """Return the host's side of an interface: the tap device, which exists already."""
    return {"type": "tap", "id": vif_id(vif), "ifname": vif_id(vif), "script": "no", "downscript": "no"}


def vif_device(guest: Guest, vif: VIF) -> dict[str, Any]:
    device: dict[str, Any] = {"driver": "virtio-net-pci", "id": vif_id(vif), "netdev": vif_id(vif)}
    device |= {"mac": vif.mac_address, "host_mtu": vif.network.mtu, "romfile": ""}
    return device | _bus(guest, vif_id(vif))


def _bus(guest: Guest, device_id: str) -> dict[str, str]:
    """Return the place of a device that can be detached."""
    return {} if guest.is_microvm else {"bus": f"port{guest.ports[device_id]}"}
