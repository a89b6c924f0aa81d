"""A PCI device of this machine in a guest. ``devstack/passthrough.sh`` runs it in an emulated machine with an IOMMU."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.integration import scripts
from tests.integration.libvirt.conftest import Images, MakeDriver, guest_spec
from tests.integration.libvirt.guests import console_line

#: Files of the test guest.
GUEST = os.environ.get("NOVA_LITE_PASSTHROUGH", "")
pytestmark = pytest.mark.skipif(not GUEST, reason="devstack/passthrough.sh runs it in a machine of its own")

OPTIONS = {
    "libvirt__virt_type": "qemu",
    "network__security_groups": False,
    "pci__device_spec": ['{"vendor_id": "1b36", "product_id": "0010"}'],
}

DISK = Path("/dev/nvme0n1")
BY_HOST, BY_GUEST = b"written-by-the-host", b"written-by-the-guest"
#: Bytes before the mark of the guest.
OFFSET = 4096

#: Shows the disk's controller and its mark, and writes another mark.
SCRIPT = f"""
cd /sys/class/nvme/nvme0
echo nvme: $(cat device/vendor device/device serial)
echo "first sector: $(head -c {len(BY_HOST)} {DISK})"
echo {BY_GUEST.decode()} | dd of={DISK} bs={OFFSET} seek=1 conv=notrunc,sync 2>/dev/null
sync
echo "disk: written"
"""


def driver_of(address: str) -> str:
    return Path(f"/sys/bus/pci/devices/{address}/driver").resolve().name


def test_guest_reads_and_writes_the_nvme_disk_of_its_host_and_the_host_has_it_back(
    connection: Any, make_driver: MakeDriver
) -> None:
    with DISK.open("r+b") as disk:
        disk.write(BY_HOST)
    address = Path("/sys/class/nvme/nvme0/address").read_text().strip()
    images = Images(Path(GUEST))
    driver = make_driver("passthrough", **OPTIONS)
    (device,) = driver.machine.inventory().pci
    assert (device.address, driver_of(address)) == (address, "nvme")

    spec = guest_spec(images, [], config_drive=True, user_data=scripts.user_data(SCRIPT))
    spec.instance.pci = [device]
    instance_uuid = spec.instance.uuid
    driver.guests.spawn(spec)
    assert driver_of(address) == "vfio-pci"
    assert not DISK.exists()
    domain = ET.fromstring(connection.lookupByUUIDString(instance_uuid).XMLDesc())
    assert len(domain.findall("devices/hostdev[@type='pci'][@managed='yes']")) == 1
    assert console_line(driver, instance_uuid, "nvme: ") == "nvme: 0x1b36 0x0010 passthrough"
    assert console_line(driver, instance_uuid, "first sector: ") == f"first sector: {BY_HOST.decode()}"
    assert console_line(driver, instance_uuid, "disk: ") == "disk: written"
    assert driver.machine.inventory().pci == [device]

    driver.guests.destroy(instance_uuid)
    assert driver_of(address) == "nvme"
    with DISK.open("rb") as disk:
        disk.seek(OFFSET)
        assert disk.read(len(BY_GUEST)) == BY_GUEST
