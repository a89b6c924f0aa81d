"""Inventory of this hypervisor: resources in the scheduler's units."""

from __future__ import annotations

import logging
import os
import threading
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from nova_lite.base import exceptions
from nova_lite.base.timing import TIMING, LibvirtTiming
from nova_lite.hardware.traits import CAPABILITY
from nova_lite.objects import HOST_CPU, HostCpu, Inventory, NUMACell, PCIDevice
from nova_lite.operations.states import PowerState
from nova_lite.virt.abilities import DomainInfo
from nova_lite.virt.images import GIB
from nova_lite.virt.libvirt.disks import disk_usage

LOG = logging.getLogger(__name__)

# The record of logged-in users: entries of one size, each starting with its type (man utmp).
UTMP = Path("/run/utmp")
UTMP_ENTRY = 384
USER_PROCESS = 7


class RunningCount:
    """Number of running guests.

    libvirt's list of domains waits for each domain that starts just now. After `LibvirtTiming.list_wait`, the last
    known number counts, so that a slow start of a guest does not look like a hypervisor that does not answer.
    """

    def __init__(self, list_domains: Callable[[], list[DomainInfo]], timing: LibvirtTiming = TIMING.libvirt) -> None:
        self._wait = timing.list_wait
        self._list_domains = list_domains
        self._number = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def get(self) -> int:
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._count, name="running-guests", daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(self._wait)
        return self._number

    def _count(self) -> None:
        try:
            found = self._list_domains()
        except exceptions.VirtDriverError as error:
            LOG.warning("The number of running guests is unknown now: %s", error.message)
        else:
            self._number = sum(info.power_state == PowerState.RUNNING for info in found)


def parse_cpu(capabilities: str) -> dict[str, Any]:
    """Parse architecture, model, vendor, topology and features of the host's CPU from libvirt's capabilities."""
    cpu = ET.fromstring(capabilities).find("./host/cpu")  # noqa: S314 libvirt's own output
    if cpu is None:
        return {}
    topology = cpu.find("topology")
    return {
        "arch": cpu.findtext("arch", ""),
        "model": cpu.findtext("model", ""),
        "vendor": cpu.findtext("vendor", ""),
        "topology": {key: int(value) for key, value in topology.items()} if topology is not None else {},
        "features": sorted(feature.get("name", "") for feature in cpu.findall("feature")),
    }


def build(
    node: str,
    host_ip: str,
    tunnel_ip: str | None,
    networks: list[str],
    instances_path: str,
    virt_type: str,
    version: int,
    cpu_info: dict[str, Any],
    cpu: HostCpu | None,
    running: int,
    metrics: dict[str, float],
    traits: list[str],
    cells: list[NUMACell],
    vcpus: int | None,
    pci: list[PCIDevice],
    pool: tuple[int, int] | None = None,
) -> Inventory:
    """Build the inventory. Memory and CPUs are read from the kernel: libvirt 9.0 ignores memory that was added after
    boot.

    ``cpu``: the largest processor of guests. ``vcpus``: CPUs that guests share, if these are not all. ``pool``:
    bytes of the pool that has the guests' disks, and free bytes there.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if pool is None:
        disk = os.statvfs(instances_path)
        pool = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize - disk_usage.growth(instances_path)
    size, free = pool
    capabilities: dict[str, Any] = {"virt_type": virt_type, CAPABILITY: traits}
    capabilities |= {"metrics": metrics} if metrics else {}
    capabilities |= {} if cpu is None else {HOST_CPU: msgspec.to_builtins(cpu)}
    return Inventory(
        node=node,
        vcpus=os.sysconf("SC_NPROCESSORS_ONLN") if vcpus is None else vcpus,
        memory_mb=memory // 1024**2,
        disk_gb=size // GIB,
        hypervisor_type="QEMU",
        hypervisor_version=version,
        host_ip=host_ip,
        tunnel_ip=tunnel_ip,
        networks=networks,
        cpu_arch=cpu_info.get("arch") or os.uname().machine,
        cpu_info=cpu_info,
        supported_hv_types=["kvm", "qemu"] if virt_type == "kvm" else ["qemu"],
        supported_vm_modes=["hvm"],
        capabilities=capabilities,
        disk_available_least=free // GIB,
        running_vms=running,
        uptime=uptime(),
        numa=cells,
        pci=pci,
    )


def uptime() -> str:
    """Return the uptime in the format of the ``uptime`` program, which clients parse."""
    with open("/proc/uptime") as file:
        seconds = int(float(file.read().split()[0]))
    days, rest = divmod(seconds, 86400)
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    up = f"{days} days, {rest // 3600:2d}:{rest % 3600 // 60:02d}"
    return f"{time.strftime('%H:%M:%S')} up {up},  {logins()} users,  load average: {load}"


def logins() -> int:
    """Return the number of sessions in the machine's record; 0 without a record."""
    try:
        record = UTMP.read_bytes()
    except FileNotFoundError:
        return 0
    entries = (record[start : start + UTMP_ENTRY] for start in range(0, len(record), UTMP_ENTRY))
    return sum(int.from_bytes(entry[:2], "little") == USER_PROCESS for entry in entries)
