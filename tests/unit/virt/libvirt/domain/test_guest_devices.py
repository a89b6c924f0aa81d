"""Places of devices in libvirt's description of a domain, and the number of free ones."""

from __future__ import annotations

import pytest

from nova_lite.objects import GuestDevice
from nova_lite.virt.libvirt.domain import guest_devices

VOLUME = "7f0c3d4e-0b1a-4c5d-8e9f-001122334455"


def pci(bus: int, slot: int, function: int = 0) -> str:
    return f"<address type='pci' domain='0x0000' bus='{bus:#04x}' slot='{slot:#04x}' function='{function:#x}'/>"


def domain(*devices: str) -> str:
    return f"<domain><devices>{''.join(devices)}</devices></domain>"


def disk(name: str, bus: str, address: str = "", serial: str = "") -> str:
    return (
        f"<disk><source file='/i/{name}'/><target dev='vda' bus='{bus}'/>"
        f"{f'<serial>{serial}</serial>' if serial else ''}{address}</disk>"
    )


DRIVE = "<address type='drive' controller='0' bus='0' target='2' unit='1'/>"


@pytest.mark.parametrize("root", ["disk", "disk.raw"])
def test_devices_have_the_buses_and_addresses_that_nova_names(root: str) -> None:
    found = guest_devices.describe(
        domain(
            disk(root, "virtio", pci(3, 0)),
            disk("disk.eph1", "scsi", DRIVE),
            disk("disk.swap", "sata", DRIVE),
            disk("disk.config", "ide", DRIVE),
            disk(VOLUME, "usb", "<address type='usb' bus='0' port='1'/>", VOLUME),
            f"<interface><mac address='FA:16:3E:00:00:01'/>{pci(0, 18, 1)}</interface>",
        )
    )
    assert found.devices == [
        GuestDevice("root", "pci", "0000:03:00.0"),
        GuestDevice("ephemeral1", "scsi", "0:0:2:1"),
        GuestDevice("swap", "none", "none"),
        GuestDevice(VOLUME, "usb", "none"),
        GuestDevice("fa:16:3e:00:00:01", "pci", "0000:00:12.1"),
    ]


def test_disks_in_a_pool_have_the_roles_of_their_names() -> None:
    names = [f"a-pool/server-{VOLUME}-1-{name}" for name in ("disk", "disk.swap", "disk.config")]
    disks = [f"<disk type='network'><source protocol='rbd' name='{name}'/><target dev='vda'/></disk>" for name in names]
    assert guest_devices.describe(domain(*disks)).devices == [GuestDevice("root"), GuestDevice("swap")]


def controller(index: int, model: str, address: str = "") -> str:
    return f"<controller type='pci' index='{index}' model='{model}'>{address}</controller>"


def test_machine_with_pci_express_has_as_many_places_as_free_root_ports() -> None:
    ports = [controller(index, "pcie-root-port", pci(0, 2, index)) for index in (1, 2, 3)]
    taken = f"<interface><mac address='a:b'/>{pci(2, 0)}</interface>"
    xml = domain(controller(0, "pcie-root"), *ports, taken, disk("disk", "virtio", pci(3, 0)))
    assert guest_devices.describe(xml).free_ports == 1


@pytest.mark.parametrize(("bridges", "free"), [(0, 27), (1, 57)])
def test_other_machine_has_the_free_slots_of_its_buses(bridges: int, free: int) -> None:
    """Functions of one slot take one place. Slots 1 and 2 are the chipset's and a graphics card's."""
    more = [controller(1, "pci-bridge", pci(0, 5))] * bridges
    usb = f"<controller type='usb'>{pci(0, 1, 2)}</controller>"
    xml = domain(
        controller(0, "pci-root"), *more, usb, disk("a", "virtio", pci(0, 3)), disk("b", "virtio", pci(0, 4)),
        f"<interface>{pci(0, 4, 1)}</interface>",
    )  # fmt: skip
    assert guest_devices.describe(xml).free_ports == free


def test_machine_without_pci_has_an_unknown_number_of_places() -> None:
    assert guest_devices.describe(domain()).free_ports is None
