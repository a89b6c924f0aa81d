"""vCPUs and memory of running guests in libvirt. The guest is scripted; its XML is as libvirt shows it."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ET
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import libvirt
import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.objects import Flavor
from nova_lite.virt.libvirt.connection import LibvirtFailure
from nova_lite.virt.libvirt.domain import hotplug, hotplug_xml
from tests.unit.virt.libvirt.scripted import failure

MAXIMA = {"hw:max_vcpus": "4", "hw:max_memory": "1024"}


def flavor(vcpus: int, memory_mb: int, specs: dict[str, str] | None = None) -> Flavor:
    extra_specs = MAXIMA if specs is None else specs
    return Flavor(flavorid="1", name="f", vcpus=vcpus, memory_mb=memory_mb, root_gb=1, extra_specs=extra_specs)


def domain(given: Flavor) -> str:
    """Return a definition, with the sums that libvirt adds."""
    root = ET.fromstring("<domain><memory/><vcpu/><cpu/><devices/></domain>")
    root.find("memory").text = str(given.memory_mb * 1024)  # type: ignore[union-attr]
    root.find("vcpu").text = str(given.vcpus)  # type: ignore[union-attr]
    hotplug_xml.add(root, given, hardware.resolve(given, None))
    most = root.find("maxMemory")
    if most is not None:
        most.text, most.attrib["unit"] = str(int(most.text or 0) * 1024), "KiB"
    return ET.tostring(root, encoding="unicode")


def kib(*megabytes: int) -> tuple[int, ...]:
    return tuple(number * 1024 for number in megabytes)


class Guest:
    """A running guest: libvirt's object of its domain, its connection and its definition.

    ``memory_most``: KiB of the device that it takes at most. ``keeps_kb``: KiB that it does not release.
    ``keeps_vcpus``: it releases none.
    """

    def __init__(self, given: Flavor) -> None:
        self.live = self.config = domain(given)
        self.active = True
        self.memory_most, self.keeps_kb, self.keeps_vcpus = 1 << 40, 0, False

    def isActive(self) -> bool:
        return self.active

    def XMLDesc(self, flags: int) -> str:
        return self.live

    def updateDeviceFlags(self, xml: str, flags: int) -> None:
        assert flags == libvirt.VIR_DOMAIN_AFFECT_LIVE
        root, device = ET.fromstring(self.live), ET.fromstring(xml)
        target = device.find("target")
        assert target is not None
        requested = int(target.findtext("requested", "0"))
        current = target.find("current")
        if current is None:
            current = ET.SubElement(target, "current")
        current.text = str(max(min(requested, self.memory_most), self.keeps_kb))
        devices = root.find("devices")
        assert devices is not None
        devices[:] = [device]
        self.live = ET.tostring(root, encoding="unicode")

    def setVcpusFlags(self, number: int, flags: int) -> None:
        assert flags == libvirt.VIR_DOMAIN_AFFECT_LIVE
        if number < hotplug_xml.size(self.live).vcpus and self.keeps_vcpus:
            raise LibvirtFailure(failure(libvirt.VIR_ERR_OPERATION_FAILED, message="unplug request timed out"))
        root = ET.fromstring(self.live)
        root.find("vcpu").set("current", str(number))  # type: ignore[union-attr]
        self.live = ET.tostring(root, encoding="unicode")

    # --- of the connection and of the domains

    def call(self, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    def call_checked(self, done: Any, method: Any, *arguments: Any) -> Any:
        return method(*arguments)

    def get(self, instance_uuid: str) -> tuple[Guest, None]:
        return self, None

    def description(self, found: Guest) -> str:
        return self.config

    def define(self, xml: str) -> None:
        self.config = xml

    def renew(self, spec: Any) -> None:
        self.config = domain(spec.instance.flavor)

    # --- what a test does

    def resize(self, given: Flavor, still_wanted: Callable[[], None] = lambda: None) -> None:
        conf = SimpleNamespace(libvirt=SimpleNamespace(device_detach_timeout=5))
        context = SimpleNamespace(conf=conf, host="h", connection=self, domains=self, records=None)
        spec = SimpleNamespace(instance=SimpleNamespace(uuid="u", flavor=given), still_wanted=still_wanted)
        hotplug.GuestHotplug(context, self).resize(spec)  # type: ignore[arg-type]

    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return vCPUs and MB of memory of the guest, and of its next start."""
        live, config = hotplug_xml.size(self.live), hotplug_xml.size(self.config)
        return (
            (live.vcpus, (live.base_kb + live.current_kb) // 1024),
            (config.vcpus, (config.base_kb + config.requested_kb) // 1024),
        )


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each look at the clock take a second."""
    seconds = itertools.count()
    monkeypatch.setattr(hotplug.time, "monotonic", lambda: float(next(seconds)))
    monkeypatch.setattr(hotplug.time, "sleep", lambda pause: None)


def test_guest_takes_vcpus_and_memory_and_releases_them() -> None:
    guest = Guest(flavor(2, 512))
    for size in ((4, 1024), (1, 512), (3, 768)):
        guest.resize(flavor(*size))
        assert guest.sizes() == (size, size)


def test_memory_that_the_guest_can_only_take_in_parts_is_enough() -> None:
    guest = Guest(flavor(2, 512))
    guest.memory_most = 254 * 1024
    guest.resize(flavor(2, 768))
    assert guest.sizes() == ((2, 766), (2, 768))


def test_guest_that_keeps_memory_and_vcpus_is_named_with_both() -> None:
    guest = Guest(flavor(1, 512))
    guest.resize(flavor(3, 1024))
    guest.keeps_kb, guest.keeps_vcpus = 300 * 1024, True
    with pytest.raises(exceptions.GuestSizeRefused) as refusal:
        guest.resize(flavor(1, 512))
    assert "it has 812 of 512 MB of memory; it has 3 of 1 vCPUs (unplug request timed out)" in refusal.value.message
    assert guest.sizes()[1] == (1, 512), "its next start has what was requested last"


def test_guest_that_takes_no_memory_gets_its_vcpus() -> None:
    guest = Guest(flavor(1, 512))
    guest.memory_most = 0
    with pytest.raises(exceptions.GuestSizeRefused, match=r"it has 512 of 768 MB of memory$"):
        guest.resize(flavor(2, 768))
    assert guest.sizes() == ((2, 512), (2, 768))


def test_deleted_guest_is_not_waited_for() -> None:
    def fenced() -> None:
        raise exceptions.Fenced(instance_uuid="u", generation=1)

    guest = Guest(flavor(3, 1024))
    guest.keeps_vcpus = True
    with pytest.raises(exceptions.Fenced):
        guest.resize(flavor(1, 1024), fenced)


@pytest.mark.parametrize("memory_mb", [1024, 768])
def test_memory_of_the_start_stays_until_the_next_start(memory_mb: int) -> None:
    guest = Guest(flavor(1, memory_mb))
    before = guest.config
    reason = f"it has started with {memory_mb} MB of memory, and can have 1024"
    with pytest.raises(exceptions.GuestSizeRefused, match=reason):
        guest.resize(flavor(1, 512))
    assert guest.sizes() == ((1, memory_mb), (1, 512))
    guest.resize(flavor(1, memory_mb))
    assert hotplug_xml.size(guest.config)[:4] == hotplug_xml.size(before)[:4]


def test_guest_that_is_off_is_defined_again() -> None:
    guest = Guest(flavor(1, 1024))
    guest.active = False
    guest.resize(flavor(2, 512))
    assert guest.sizes()[1] == (2, 512)
    assert hotplug_xml.size(guest.config)[1:3] == kib(512, 1024)


def test_definition_never_has_more_than_the_maximum() -> None:
    (base_kb,) = kib(768)
    config = hotplug_xml.resized(domain(flavor(2, 768)), flavor(2, 512), base_kb)
    assert hotplug_xml.size(config)[1:4] == kib(512, 1024, 0)
    assert hotplug_xml.size(hotplug_xml.resized(config, flavor(2, 1024), base_kb))[1:4] == kib(768, 1024, 256)


def test_first_vcpu_stays_and_the_others_can_be_unplugged() -> None:
    root = ET.fromstring(domain(flavor(2, 512)))
    assert [(vcpu.get("enabled"), vcpu.get("hotpluggable")) for vcpu in root.iterfind("vcpus/vcpu")] == [
        ("yes", "no"), ("yes", "yes"), ("no", "yes"), ("no", "yes"),
    ]  # fmt: skip


@pytest.mark.parametrize("specs", [{"hw:max_vcpus": "4"}, {}])
def test_guest_without_a_maximum_of_memory_has_no_device(specs: dict[str, str]) -> None:
    root = ET.fromstring(domain(flavor(2, 512, specs)))
    assert root.find("maxMemory") is None
    assert root.find("devices/memory") is None
    assert hotplug_xml.size(domain(flavor(2, 512, specs))).vcpus == 2
