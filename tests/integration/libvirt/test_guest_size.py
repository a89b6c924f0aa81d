"""vCPUs and memory of a running guest, as the guest sees them on its console."""

from __future__ import annotations

import contextlib
import re

import msgspec
import pytest

from nova_lite.base import exceptions
from nova_lite.objects import Flavor, Image
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt.conftest import (
    LONG,
    PATIENCE,
    Images,
    MakeDriver,
    boot,
    guest_lines,
    guest_spec,
    whole_lines,
)
from tests.integration.libvirt.guests import NewVif, user_data
from tests.support.waiting import wait_for

MAXIMA = {"hw:max_vcpus": "4", "hw:max_memory": "1024"}

#: Uses what comes, and prints the size of the guest whenever that changes.
SHOW_SIZE = """
echo "possible CPUs: $(cat /sys/devices/system/cpu/possible)"
echo online_movable >/sys/devices/system/memory/auto_online_blocks
insmod /lib/virtio_mem.ko
while :; do
    for cpu in /sys/devices/system/cpu/cpu[1-9]; do
        [ "$(cat $cpu/online 2>/dev/null)" = 0 ] && echo 1 >$cpu/online
    done
    now="$(grep -c ^processor /proc/cpuinfo) CPUs, $(awk '/MemTotal/ { print $2 }' /proc/meminfo) kB"
    [ "$now" = "$last" ] || echo "size: $now"
    last=$now
    usleep 300000
done
"""


#: Memory that a kernel and its ramdisk keep at most of 320 MB, and how much that varies with the size.
MOST_KEPT_MB, SLACK_MB = 170, 60


def shown(driver: LibvirtDriver, spec: SpawnSpec, starts: int = 1) -> tuple[int, int] | None:
    """Return the CPUs and MB of memory that the guest has printed last, since it started so many times. None: nothing
    yet.
    """
    text = whole_lines(driver, spec.instance.uuid).split("nova-lite-guest: ", starts)[-1]
    found = re.findall(r"size: (\d+) CPUs, (\d+) kB", text)
    return (int(found[-1][0]), int(found[-1][1]) // 1024) if found else None


def resize(driver: LibvirtDriver, spec: SpawnSpec, vcpus: int, memory_mb: int) -> SpawnSpec:
    flavor: Flavor = msgspec.structs.replace(spec.instance.flavor, vcpus=vcpus, memory_mb=memory_mb)
    spec = msgspec.structs.replace(spec, instance=msgspec.structs.replace(spec.instance, flavor=flavor))
    driver.hotplug.resize(spec)
    return spec


def has(driver: LibvirtDriver, spec: SpawnSpec, vcpus: int, memory_mb: int, kept_mb: int, starts: int = 1) -> None:
    """Wait until the guest has these CPUs and memory, of which its kernel keeps about ``kept_mb``."""
    seen = set()

    def is_right() -> bool:
        cpus, memory = size = shown(driver, spec, starts) or (0, 0)
        seen.add(size)
        return cpus == vcpus and -SLACK_MB <= memory_mb - kept_mb - memory <= SLACK_MB

    try:
        wait_for(f"{vcpus} CPUs and {memory_mb} MB in the guest", is_right, PATIENCE)
    except AssertionError as error:
        end = whole_lines(driver, spec.instance.uuid)[-1500:]
        raise AssertionError(f"{error}: {kept_mb} MB were kept at first, then it had {sorted(seen)}\n{end}") from None


@pytest.mark.parametrize("machine", [pytest.param("pc", marks=LONG), "q35"])
def test_running_guest_sees_more_cpus_and_memory_and_releases_them(
    make_driver: MakeDriver, images: Images, new_vif: NewVif, machine: str
) -> None:
    driver = make_driver("one", libvirt__device_detach_timeout=int(PATIENCE))
    image: Image = msgspec.structs.replace(images.ami, properties=images.ami.properties | {"hw_machine_type": machine})
    spec = guest_spec(images, [new_vif()], image, memory_mb=320, config_drive=True, user_data=user_data(SHOW_SIZE))
    spec.instance.flavor = msgspec.structs.replace(spec.instance.flavor, extra_specs=MAXIMA)
    boot(driver, spec)
    guest_lines(driver, spec.instance.uuid)
    cpus, memory = wait_for("the guest shows its size", lambda: shown(driver, spec), PATIENCE)
    assert (cpus, 320 - MOST_KEPT_MB <= memory <= 320) == (1, True), memory
    kept = 320 - memory
    # Debian's Linux 6.12 counts no CPUs that may come, unless it recognizes the hypervisor. It does not know qemu's.
    (possible,) = re.findall(r"possible CPUs: (\S+)", whole_lines(driver, spec.instance.uuid))
    print(f"possible CPUs: {possible}")
    more, rest = (1, 1) if possible == "0" else (3, 2)
    if more == 1:
        driver.conf.set_override("device_detach_timeout", 10, "libvirt")
    spec = resize(driver, spec, 3, 768)
    has(driver, spec, more, 768, kept)
    driver.hotplug.resize(spec)
    spec = resize(driver, spec, 3, 512)
    has(driver, spec, more, 512, kept)
    driver.conf.set_override("device_detach_timeout", 10, "libvirt")
    # qemu 7.2 does not report that an emulated guest has released a vCPU.
    with contextlib.suppress(exceptions.GuestSizeRefused):
        spec = resize(driver, spec, 2, 512)
    has(driver, spec, rest, 512, kept)
    with pytest.raises(exceptions.GuestSizeRefused, match="it has started with 320 MB of memory"):
        resize(driver, spec, 2, 128)
    with contextlib.suppress(exceptions.GuestSizeRefused):
        resize(driver, spec, 2, 512)
    driver.power.reboot(spec.instance.uuid, "SOFT", 60)
    guest_lines(driver, spec.instance.uuid, 2)
    has(driver, spec, 2, 512, kept, starts=2)
    driver.power.off(spec.instance.uuid, 60)
    spec = resize(driver, spec, 1, 256)
    assert driver.guests.get(spec.instance.uuid).power_state == PowerState.SHUTDOWN
    driver.power.on(spec.instance.uuid)
    guest_lines(driver, spec.instance.uuid, 3)
    has(driver, spec, 1, 256, kept, starts=3)
    driver.guests.destroy(spec.instance.uuid)
    driver.networks.unplug(spec.instance.uuid)
