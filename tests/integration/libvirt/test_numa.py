"""Guests with dedicated CPUs and memory, verified by libvirt and the kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libvirt
import msgspec
import pytest

from nova_lite import hardware
from nova_lite.base import cpu_sets
from nova_lite.hardware import fitting
from nova_lite.objects import InstanceNUMATopology
from nova_lite.virt.abilities import SpawnSpec
from nova_lite.virt.libvirt.driver import LibvirtDriver
from tests.integration.libvirt import hosts
from tests.integration.libvirt.conftest import (
    Images,
    MakeDriver,
    MakeHost,
    assert_nothing_left,
    boot,
    guest_lines,
    guest_spec,
)
from tests.integration.libvirt.moves import arriving, migrate
from tests.support.guests import make_flavor

PAGES_MOUNT = "/dev/hugepages"
PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")


@pytest.fixture
def cpus(make_driver: MakeDriver) -> list[int]:
    """CPUs of the first cell, two or more."""
    found = sorted(cpu_sets.parse(make_driver("cpus").machine.inventory().numa[0].shared_cpus))
    if len(found) < 2:
        pytest.skip("this machine has one CPU")
    return found


def place(driver: LibvirtDriver, spec: SpawnSpec) -> InstanceNUMATopology:
    """Return the placement that the conductor's claim would choose on an empty host."""
    requested = hardware.numa_of(spec.instance.flavor, spec.image)
    assert requested is not None
    return fitting.fit(requested, driver.machine.inventory().numa, {}, fitting.Ratios(cpu=4.0))


def pinned(images: Images, driver: LibvirtDriver, vcpus: int = 1, **specs: str) -> SpawnSpec:
    spec = guest_spec(images, [], hostname="pinned")
    named = {f"hw:{name}": value for name, value in specs.items()}
    spec.instance.flavor = make_flavor(vcpus=vcpus, memory_mb=128, extra_specs=named)
    spec.instance.numa = place(driver, spec)
    return spec


def may_run_on(domain: Any) -> dict[str, str]:
    """Return the allowed CPUs of guest thread of the emulator, from the kernel: by vCPU number, and all others
    together."""
    found: dict[str, str] = {}
    for task in Path(f"/proc/{_pid(domain)}/task").iterdir():
        name = (task / "comm").read_text().strip()
        allowed = re.search(r"^Cpus_allowed_list:\s*(\S+)", (task / "status").read_text(), re.MULTILINE)
        assert allowed is not None
        vcpu = re.fullmatch(r"CPU (\d+)/\w+", name)
        found[vcpu[1] if vcpu else "emulator"] = allowed[1]
    return found


def _pid(domain: Any, run: Path = Path("/run/libvirt")) -> int:
    return int((run / "qemu" / f"{domain.name()}.pid").read_text())


def test_guest_runs_on_its_dedicated_cpus(
    connection: Any, make_driver: MakeDriver, images: Images, cpus: list[int]
) -> None:
    """Another guest runs on the shared CPUs. Both are unchanged after they are recreated."""
    shared, own = str(cpus[0]), str(cpus[1])
    driver = make_driver("one", compute__cpu_dedicated_set=own, compute__cpu_shared_set=shared)
    inventory = driver.machine.inventory()
    assert inventory.vcpus == 1
    assert [cell.dedicated_cpus for cell in inventory.numa][:1] == [own]
    spec = pinned(images, driver, cpu_policy="dedicated")
    floating = guest_spec(images, [], hostname="floating")
    for guest in (spec, floating):
        boot(driver, guest)
    domain = connection.lookupByUUIDString(spec.instance.uuid)
    other = connection.lookupByUUIDString(floating.instance.uuid)
    assert may_run_on(domain) == {"0": own, "emulator": own}
    assert may_run_on(other) == {"0": shared, "emulator": shared}
    assert guest_lines(driver, spec.instance.uuid) == [(spec.instance.uuid, "pinned", "none")]
    driver.definitions.renew(spec)
    driver.power.reboot(spec.instance.uuid, "HARD", 0)
    assert may_run_on(domain) == {"0": own, "emulator": own}
    assert len(guest_lines(driver, spec.instance.uuid, 2)) == 2
    for guest in (spec, floating):
        driver.guests.destroy(guest.instance.uuid)
        assert_nothing_left(connection, driver, guest)


def test_migrated_guest_runs_on_the_destinations_cpus(
    make_host: MakeHost,
    images: Images,
    cpus: list[int],
) -> None:
    """The guest moves while it runs."""
    here = make_host("here", hosts.HERE, live_migration_uri=hosts.URI, compute__cpu_dedicated_set=str(cpus[0]))
    there = make_host("there", hosts.THERE, live_migration_uri=hosts.URI, compute__cpu_dedicated_set=str(cpus[1]))
    spec = pinned(images, here, cpu_policy="dedicated")
    here.guests.spawn(spec)
    moved = arriving(spec, 2)
    moved.instance = msgspec.structs.replace(spec.instance, numa=place(there, spec))
    migrate(here, there, moved)
    connection = libvirt.open(there.conf.libvirt.connection_uri)
    try:
        domain = connection.lookupByUUIDString(spec.instance.uuid)
        pins = [cpuset.index(True) for cpuset in domain.vcpus()[1]]
        assert pins == [cpus[1]]
        tree = ET.fromstring(domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
        assert [pin.get("cpuset") for pin in tree.iterfind("cputune/*")] == [str(cpus[1])] * 2
    finally:
        connection.close()


@pytest.fixture
def large_pages() -> Iterator[None]:
    """Large pages for a guest of 128 MB during the test, and their file system."""
    if not PAGES.exists():
        pytest.skip("this machine has no pages of 2 MiB")
    before, mounted = int(PAGES.read_text()), os.path.ismount(PAGES_MOUNT)
    try:
        PAGES.write_text(str(before + 96))
    except OSError as error:
        pytest.skip(f"this machine is a container without large pages of its own: {error.strerror}")
    try:
        if int(PAGES.read_text()) < before + 64:
            pytest.skip("this machine has not enough memory in one piece for large pages")
        if not mounted:
            os.makedirs(PAGES_MOUNT, exist_ok=True)
            subprocess.run(["mount", "-t", "hugetlbfs", "hugetlbfs", PAGES_MOUNT], check=True, timeout=30)
        yield
    finally:
        if not mounted and os.path.ismount(PAGES_MOUNT):
            subprocess.run(["umount", PAGES_MOUNT], check=True, timeout=30)
        PAGES.write_text(str(before))


def test_guest_uses_large_pages(connection: Any, directory: Path, images: Images, large_pages: None) -> None:
    """The libvirtd was started after the pages were reserved."""
    with hosts.third_host() as run:
        driver = hosts.make_driver(directory / "paged", "paged", hosts.THIRD)
        spec = pinned(images, driver, vcpus=1, mem_page_size="2MB")
        instance_uuid = spec.instance.uuid
        boot(driver, spec)
        there = libvirt.open(driver.conf.libvirt.connection_uri)
        try:
            domain = there.lookupByUUIDString(instance_uuid)
            status = Path(f"/proc/{_pid(domain, run)}/status").read_text()
            size = re.search(r"^HugetlbPages:\s*(\d+) kB", status, re.MULTILINE)
            assert size is not None
            assert int(size[1]) >= 64 * 1024
            assert guest_lines(driver, instance_uuid) == [(instance_uuid, "pinned", "none")]
            driver.guests.destroy(instance_uuid)
            assert_nothing_left(there, driver, spec)
        finally:
            there.close()
            shutil.rmtree(driver.conf.state_path, ignore_errors=True)
