"""Machines, buses and devices that the API accepts together, in the real libvirt and qemu.

The rows of the matrix have every two values together, unless the API refuses them. The test command defines all rows,
and starts each 24th one. `NOVA_LITE_LONG=1` starts all of them, and defines every three values together.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import libvirt
import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import Hardware, table, traits
from nova_lite.objects import Image, ShareMapping, ShareState
from nova_lite.virt.libvirt.disks.disks import CONFIG_DRIVE, ROOT, Disk, DiskSet
from nova_lite.virt.libvirt.domain import consoles, guest_xml
from nova_lite.virt.libvirt.host import host_traits, kvm
from tests.integration.libvirt.conftest import IS_LONG, define
from tests.support.guests import make_flavor, make_instance, make_network, make_spec, make_vif

#: Numbers of values that are defined together, and every how many rows one is started.
STRENGTHS, STEP = ([2, 3], 1) if IS_LONG else ([2], 24)

Settings = dict[str, str]
#: The chosen settings by their factors.
Row = dict[str, Settings]


def every(name: str, **others: str) -> list[Settings]:
    """Return no value and every one of a property's table entry, each with the others."""
    definition = table.find_image_property(name)
    assert definition is not None
    words = re.findall("`([^`]+)`", definition.values.description)
    return [{}, *({name: word, **others} for word in words)]


def with_uefi(secure_boot: Settings) -> Settings:
    return {"hw_firmware_type": "uefi", **secure_boot}


#: Values by factor. Names with a colon are extra specs, those with ``host`` are the host's, the others are properties.
FACTORS: dict[str, list[Settings]] = {
    "machine": [{}, *({"hw_machine_type": kind} for kind in ("pc", "q35", "pc-i440fx-6.2", "pc-q35-6.2"))],
    "default": [{"host machine": "pc"}, {"host machine": "q35"}],
    "firmware": [{}, {"hw_firmware_type": "bios"}, *map(with_uefi, every("os_secure_boot"))],
    "disk": [*every("hw_disk_bus"), *every("hw_scsi_model", hw_disk_bus="scsi")[1:]],
    "drive": [{}, *({"disk_format": "iso", **bus} for bus in every("hw_cdrom_bus"))],
    "video": every("hw_video_model"),
    "video memory": [
        {},
        *({"hw_video:ram_max_mb": "2048", "hw_video_ram": size} for size in ("1", "16", "100", "1024", "2048")),
    ],
    "screen": [{"host screen": "vnc"}, {"host screen": "spice"}, {"host screen": ""}],
    "interface": [*every("hw_vif_model"), {"hw_vif_multiqueue_enabled": "yes"}],
    "packed": every("hw_virtio_packed_ring"),
    "pointer": [*every("hw_input_bus"), *every("hw_pointer_model")[1:]],
    "sound": every("hw_sound_model"),
    "usb": every("hw_usb_model"),
    "watchdog": every("hw_watchdog_action"),
    "tpm": [*every("hw_tpm_version"), *every("hw_tpm_model", hw_tpm_version="2.0")[1:]],
    "random": [{}, {"hw_rng:allowed": "no"}, {"hw_rng:rate_bytes": "2048"}],
    "ports": [{}, {"hw_serial_port_count": "4"}],
    "menu": every("hw_boot_menu"),
    "timer": every("hw_time_hpet"),
    "system": [{}, {"os_type": "windows"}],
    "agent": every("hw_qemu_guest_agent"),
    "counters": every("hw_pmu"),
    "hidden": every("img_hide_hypervisor_id"),
    "addresses": [{}, {"hw_maxphysaddr_mode": "emulate", "hw_maxphysaddr_bits": "40"}],
    "limits": [{}, {"quota:disk_total_iops_sec": "100"}],
    "vcpus": [{}, {"hw:max_vcpus": "8"}],
    "memory": [{}, {"hw:max_memory": "256"}],
    "protected": [{}, {"host protected": "yes"}],
    "share": [{}, {"host share": "yes"}],
}

Item = tuple[str, int]


class Matrix:
    """Rows that have every ``strength`` accepted values together. ``refused``: why others are refused."""

    def __init__(self, factors: dict[str, list[Settings]], strength: int) -> None:
        self.refused: list[str] = []
        self.rows: list[Row] = []
        self._factors = factors
        self._strength = strength
        self._left = {
            frozenset(zip(names, numbers, strict=True))
            for names in itertools.combinations(factors, strength)
            for numbers in itertools.product(*(range(len(factors[name])) for name in names))
        }
        for combination in sorted(self._left, key=sorted):
            if combination in self._left:
                self._add(dict(sorted(combination)))

    def _add(self, chosen: dict[str, int]) -> None:
        self._left.discard(frozenset(chosen.items()))
        if reason := self._refusal(chosen):
            self.refused.append(reason)
            return
        for name, values in self._factors.items():
            if name in chosen:
                continue
            numbers = sorted(range(len(values)), key=lambda number: (-self._gain(chosen, (name, number)), number))
            chosen[name] = next(number for number in numbers if not self._refusal(chosen | {name: number}))
        self._left.difference_update(map(frozenset, itertools.combinations(chosen.items(), self._strength)))
        self.rows.append(self._row(chosen))

    def _gain(self, chosen: dict[str, int], item: Item) -> int:
        others = itertools.combinations(chosen.items(), self._strength - 1)
        return sum(frozenset((*some, item)) in self._left for some in others)

    def _row(self, chosen: dict[str, int]) -> Row:
        return {name: self._factors[name][number] for name, number in chosen.items()}

    def _refusal(self, chosen: dict[str, int]) -> str:
        try:
            request(self._row(chosen))
        except exceptions.HardwareRefused as error:
            return error.message
        return ""


def settings(row: Row) -> Settings:
    return {name: value for chosen in row.values() for name, value in chosen.items()}


def request(row: Row) -> tuple[Any, Image, Hardware]:
    """Return flavor, image and hardware. Raises `HardwareRefused`, as a create does."""
    values = settings(row)
    flavor = make_flavor(vcpus=2, memory_mb=64, extra_specs={key: values[key] for key in values if ":" in key})
    others = {key: values[key] for key in values if ":" not in key and not key.startswith("host ")}
    image = Image(id="i", name="i", disk_format=others.pop("disk_format", "raw"), properties=others)
    found = hardware.resolve(flavor, image)
    hardware.check_disks(flavor, image, [])
    return flavor, image, found


@pytest.fixture(scope="module")
def files(directory: Path) -> Path:
    path = directory / "matrix"
    (path / "shares" / "directory" / SHARE.uuid).mkdir(parents=True)
    path.chmod(0o755)
    for name in (ROOT, CONFIG_DRIVE):
        (path / name).write_bytes(bytes(1024**2))
    return path


SHARE_ID = str(uuid.uuid4())
SHARE = ShareMapping(
    uuid=SHARE_ID, share_id=SHARE_ID, tag="data", location=f"directory/{SHARE_ID}", state=ShareState.ATTACHED
)


def domain_xml(row: Row, files: Path, virt_type: str) -> str:
    values = settings(row)
    flavor, image, found = request(row)
    instance = make_instance(flavor=flavor, protected="host protected" in values)
    instance.shares = [SHARE] if "host share" in values else []
    spec = make_spec(instance=instance, image=image, vifs=[make_vif(network=make_network(bridge="unused"))])
    disks = [
        Disk(path=str(files / ROOT), device="vda", format="raw"),
        Disk(path=str(files / CONFIG_DRIVE), device="vdb", format="raw", read_only=True),
    ]
    screen = values["host screen"]
    listeners = consoles.Listeners(
        vnc="127.0.0.1" if screen else None, spice=consoles.SpiceListener("127.0.0.1") if screen == "spice" else None
    )
    host = guest_xml.Host(
        machine=values["host machine"], secure_boot=True, shares_path=str(files / "shares"), spare_ports=4
    )
    given = DiskSet(disks=disks, direct_boot=None)
    xml = ET.fromstring(guest_xml.guest_xml(spec, "h", str(files), given, virt_type, 32, listeners, found, host))
    interface = xml.find("devices/interface")
    assert interface is not None
    interface.set("type", "ethernet")  # a tap device without a bridge
    for element in interface.findall("source"):
        interface.remove(element)
    return ET.tostring(xml, encoding="unicode")


@pytest.fixture(scope="module")
def factors(connection: Any) -> dict[str, list[Settings]]:
    """Provide the values that this host can have."""
    described = [
        connection.getDomainCapabilities(None, "x86_64", machine, kvm.QEMU, 0) for machine in host_traits.MACHINES
    ]
    found = host_traits.domain_traits(described) | host_traits.tpm_traits(described)
    lacking = ["spice"] if not host_traits.has_spice(described) else []
    lacking += ["share"] if not host_traits.has_virtiofs(described) else []

    def has(value: Settings) -> bool:
        return not any(f"host {word}" in value or word in value.values() for word in lacking) and not traits.missing(
            request({"": value})[2].traits, found
        )

    return {name: [value for value in values if has(value)] for name, values in FACTORS.items()}


@contextlib.contextmanager
def tpm_key(connection: Any, xml: str) -> Iterator[None]:
    """Let libvirt know the key of the guest's TPM, if it has one."""
    encryption = ET.fromstring(xml).find("devices/tpm/backend/encryption")
    if encryption is None:
        yield
        return
    name = encryption.get("secret", "")
    usage = f"<usage type='vtpm'><name>{name}</name></usage>"
    secret = connection.secretDefineXML(f"<secret ephemeral='yes' private='yes'><uuid>{name}</uuid>{usage}</secret>")
    try:
        secret.setValue(b"key")
        yield
    finally:
        secret.undefine()


def failures(rows: list[Row], attempt: Callable[[Row], None]) -> list[str]:
    """Return the rows that libvirt or qemu refuses, and why."""
    found = []
    for row in rows:
        try:
            attempt(row)
        except libvirt.libvirtError as error:
            found.append(f"{settings(row)}: {error}")
    return found


@pytest.mark.parametrize("strength", STRENGTHS)
def test_accepted_values_are_defined_together(
    connection: Any, files: Path, factors: dict[str, list[Settings]], strength: int
) -> None:
    types = [name for name in (kvm.QEMU, kvm.KVM) if f"<domain type='{name}'" in connection.getCapabilities()]

    def define_only(row: Row) -> None:
        for virt_type in types:
            domain = connection.defineXMLFlags(domain_xml(row, files, virt_type), libvirt.VIR_DOMAIN_DEFINE_VALIDATE)
            domain.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM)

    assert failures(Matrix(factors, strength).rows, define_only) == []


def test_guests_of_accepted_values_start(connection: Any, files: Path, factors: dict[str, list[Settings]]) -> None:
    def start(row: Row) -> None:
        xml = domain_xml(row, files, kvm.QEMU)
        with tpm_key(connection, xml):
            define(connection, xml)

    assert failures(Matrix(factors, 2).rows[::STEP], start) == []


def test_accepted_values_are_refused_together_for_three_reasons(
    factors: dict[str, list[Settings]],
) -> None:
    reasons = {re.sub(r"[,:] hw_.*", "", reason) for reason in Matrix(factors, 2).refused}
    assert reasons == {
        "A q35 machine has no IDE bus",
        "Secure boot needs a q35 machine",
        "A bochs graphics card has 4 to 256 MiB",
    }
