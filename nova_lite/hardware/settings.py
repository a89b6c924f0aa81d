"""The hardware that a guest is given: what flavor and image ask for, settled."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nova_lite.base import exceptions
from nova_lite.hardware import numa, traits
from nova_lite.hardware.numa import NUMARequest
from nova_lite.hardware.request import HardwareRequest, read
from nova_lite.hardware.topology import Topology, choose
from nova_lite.objects import Flavor, Image

VIRTIO, SCSI, SATA, IDE, USB = "virtio", "scsi", "sata", "ide", "usb"
OPTIONAL, REQUIRED, DISABLED = "optional", "required", "disabled"

#: How guests name the disks of a bus.
DEVICE_PREFIX = {VIRTIO: "vd", SCSI: "sd", SATA: "sd", USB: "sd", IDE: "hd"}

MAX_QUEUES = 256
RNG_PERIOD = 1000

_ISO = "iso"


class Hardware(msgspec.Struct, frozen=True, kw_only=True):
    """``None`` or empty: the driver's own choice. ``topology``: of the vCPUs. ``serial_ports``: at least one.
    ``cpu_tune``: shares, period, quota. ``disk_tune``: libvirt's names in ``iotune``. ``inbound``, ``outbound``:
    average, peak, burst of each interface, KiB (per second). ``queues``: of each interface. ``rng_bytes``: 0 is no
    limit. ``cdrom``: the root disk is an ISO image. ``traits``: ``required`` or ``forbidden`` of hosts, those that
    follow from the rest included. ``numa``: what it asks of its host's CPUs and memory."""

    topology: Topology
    machine_type: str | None = None
    uefi: bool = False
    secure_boot: str = DISABLED
    boot_menu: bool = False
    hpet: bool = False
    windows: bool = False
    pmu: bool | None = None
    hidden: bool = False
    maxphysaddr_mode: str | None = None
    maxphysaddr_bits: int | None = None
    disk_bus: str = VIRTIO
    scsi_model: str = "virtio-scsi"
    cdrom: bool = False
    cdrom_bus: str | None = None
    packed_ring: bool = False
    vif_model: str = VIRTIO
    queues: int = 1
    video_model: str | None = None
    video_ram_mb: int | None = None
    tablet: str | None = None
    keyboard: str | None = None
    rng: bool = True
    rng_bytes: int = 0
    rng_period: int = RNG_PERIOD
    watchdog: str | None = None
    serial_ports: int = 1
    agent: bool = False
    quiesce: bool = False
    sound_model: str | None = None
    usb_model: str | None = None
    cpu_tune: dict[str, int] = {}
    disk_tune: dict[str, int] = {}
    inbound: dict[str, int] = {}
    outbound: dict[str, int] = {}
    traits: dict[str, str] = {}
    numa: NUMARequest | None = None

    @property
    def needs_usb(self) -> bool:
        return bool(self.usb_model) or USB in (self.disk_bus, self.cdrom_bus, self.tablet, self.sound_model)


#: Of a guest whose flavor and image say nothing, but for its vCPUs.
DEFAULT = Hardware(topology=Topology(1))


def check(flavor: Flavor, image: Image | None) -> None:
    """Raises `HardwareRefused` unless a server of this flavor and image can have all that they say."""
    resolve(flavor, image)


def resolve(flavor: Flavor, image: Image | None, strict: bool = True) -> Hardware:
    """Not ``strict``: what cannot be had is left out, as for servers that were made when it was not looked at."""
    asked = read(flavor.extra_specs, {} if image is None else image.properties, strict)
    cdrom = image is not None and image.disk_format == _ISO
    if not cdrom and not asked.flavor and not asked.image and not asked.traits:
        return msgspec.structs.replace(DEFAULT, topology=Topology(flavor.vcpus))
    try:
        _check_combinations(asked)
        wanted = numa.choose(asked, flavor.vcpus, flavor.memory_mb)
    except exceptions.HardwareRefused:
        if strict:
            raise
        return msgspec.structs.replace(DEFAULT, topology=Topology(flavor.vcpus), cdrom=cdrom, traits=asked.traits)
    machine = asked.value("machine_type")
    firmware = asked.value("firmware_type")
    tablet, keyboard = _inputs(asked)
    found = Hardware(
        topology=choose(asked, flavor.vcpus, strict),
        machine_type=machine,
        uefi=firmware == "uefi",
        secure_boot=(asked.value("secure_boot") or DISABLED) if firmware == "uefi" else DISABLED,
        boot_menu=bool(asked.flag("boot_menu")),
        hpet=bool(asked.flag("time_hpet")),
        windows=(asked.value("os_type") or "").lower() == "windows",
        pmu=asked.flag("pmu"),
        hidden=bool(asked.flag("hide_hypervisor_id")),
        maxphysaddr_mode=asked.value("maxphysaddr_mode"),
        maxphysaddr_bits=asked.number("maxphysaddr_bits"),
        disk_bus=asked.value("disk_bus") or VIRTIO,
        scsi_model=asked.value("scsi_model") or "virtio-scsi",
        cdrom=cdrom,
        cdrom_bus=asked.value("cdrom_bus") if cdrom else None,
        packed_ring=bool(asked.flag("virtio_packed_ring")),
        vif_model=asked.value("vif_model") or VIRTIO,
        queues=min(flavor.vcpus, MAX_QUEUES) if asked.flag("vif_multiqueue_enabled") else 1,
        video_model=asked.value("video_model"),
        video_ram_mb=asked.number("video_ram"),
        tablet=tablet,
        keyboard=keyboard,
        rng=asked.flag("rng_allowed") is not False,
        rng_bytes=asked.number("rng_rate_bytes") or 0,
        rng_period=asked.number("rng_rate_period") or RNG_PERIOD,
        watchdog=_unless(asked.value("watchdog_action"), "disabled"),
        serial_ports=asked.number("serial_port_count") or 1,
        agent=bool(asked.flag("qemu_guest_agent")),
        quiesce=bool(asked.flag("require_quiesce")),
        sound_model=asked.value("sound_model"),
        usb_model=asked.value("usb_model"),
        cpu_tune=_group(asked, "cpu_", ("shares", "period", "quota")),
        disk_tune=_disk_tune(asked),
        inbound=_group(asked, "vif_inbound_", _BANDWIDTH),
        outbound=_group(asked, "vif_outbound_", _BANDWIDTH),
        traits=asked.traits,
        numa=wanted,
    )
    if needed := traits.needed(found):
        found = msgspec.structs.replace(found, traits=_with_needed(asked.traits, needed, strict))
    return found


def numa_of(flavor: Flavor, image: Image | None) -> NUMARequest | None:
    """What a server of this flavor and image asks of its host's CPUs and memory; None: nothing in particular."""
    keys = (*flavor.extra_specs, *(() if image is None else image.properties))
    if not any(key.startswith(_NUMA_KEYS) for key in keys):
        return None
    return resolve(flavor, image, strict=False).numa


#: Beginnings of the keys without which nothing is asked of CPUs and memory.
_NUMA_KEYS = tuple(
    f"{prefix}{name}" for prefix in ("hw:", "hw_") for name in ("cpu_policy", "mem_page_size", "numa_nodes")
)


def root_device(image: Image | None) -> str:
    """What a guest of this image calls its root disk."""
    properties = {} if image is None else image.properties
    bus = properties.get("hw_disk_bus", VIRTIO)
    if image is not None and image.disk_format == _ISO:
        bus = properties.get("hw_cdrom_bus", SATA if "q35" in properties.get("hw_machine_type", "") else IDE)
    return f"/dev/{DEVICE_PREFIX.get(bus, DEVICE_PREFIX[VIRTIO])}a"


class RescueDisk(msgspec.Struct, frozen=True):
    """What an image that servers are rescued with says of its disk; ``stable``: the server's own disks keep their
    places before it. ``bus`` None: that of drives in the server's machine."""

    stable: bool
    bus: str | None
    cdrom: bool


def check_rescue(image: Image | None, strict: bool = True) -> RescueDisk:
    """Raises `HardwareRefused` unless a server can be rescued with the image; not ``strict``: see `resolve`."""
    properties: Mapping[str, str] = {} if image is None else image.properties
    asked = read({}, properties, strict)
    bus, device = asked.value("rescue_bus"), asked.value("rescue_device")
    cdrom = device == "cdrom" or (device is None and image is not None and image.disk_format == _ISO)
    if cdrom and bus == VIRTIO:
        if strict:
            raise exceptions.HardwareRefused(
                reason="A drive (hw_rescue_device) cannot be on the bus virtio (hw_rescue_bus)."
            )
        bus = None
    stable = bus is not None or device is not None
    return RescueDisk(stable=stable, bus=bus if cdrom else bus or asked.value("disk_bus") or VIRTIO, cdrom=cdrom)


_BANDWIDTH = ("average", "peak", "burst")
_DIRECTIONS = ("total", "read", "write")
_DISK_TUNES = (
    *(f"{way}_{unit}_sec{most}" for way in _DIRECTIONS for unit in ("bytes", "iops") for most in ("", "_max")),
    "size_iops_sec",
)


def _unless(value: str | None, nothing: str) -> str | None:
    return None if value == nothing else value


def _inputs(asked: HardwareRequest) -> tuple[str | None, str | None]:
    """The buses of a tablet and of a keyboard."""
    bus = asked.value("input_bus")
    if bus is not None:
        return bus, bus
    return (USB if asked.value("pointer_model") else None), None


def _group(asked: HardwareRequest, prefix: str, names: tuple[str, ...]) -> dict[str, int]:
    if not any(said.startswith(prefix) for said in asked.flavor):
        return {}
    return {name: value for name in names if (value := asked.number(prefix + name)) is not None}


def _disk_tune(asked: HardwareRequest) -> dict[str, int]:
    return _group(asked, "disk_", _DISK_TUNES)


def _with_needed(said: dict[str, str], needed: set[str], strict: bool) -> dict[str, str]:
    for trait in sorted(needed):
        if strict and said.get(trait) == traits.FORBIDDEN:
            raise exceptions.HardwareRefused(reason=f"Trait {trait} is forbidden, and the guest's hardware needs it.")
    return {**said, **dict.fromkeys(needed, traits.REQUIRED)}


def _check_combinations(asked: HardwareRequest) -> None:
    """What each takes alone and cannot be had together."""
    _check_firmware(asked)
    _check_devices(asked)
    _check_tunes(asked)


def _check_firmware(asked: HardwareRequest) -> None:
    machine = asked.value("machine_type") or ""
    if asked.value("secure_boot") == REQUIRED:
        if asked.value("firmware_type") != "uefi":
            raise exceptions.HardwareRefused(reason="Secure boot takes an image with hw_firmware_type=uefi.")
        if machine and "q35" not in machine:
            raise exceptions.HardwareRefused(reason=f"Secure boot takes a q35 machine, hw_machine_type is {machine}.")
    mode, bits = asked.value("maxphysaddr_mode"), asked.value("maxphysaddr_bits")
    if (mode == "emulate") != (bits is not None):
        raise exceptions.HardwareRefused(reason="maxphysaddr_bits goes with maxphysaddr_mode=emulate, which needs it.")
    if "q35" in machine and IDE in (asked.value("disk_bus"), asked.value("cdrom_bus")):
        raise exceptions.HardwareRefused(reason="A q35 machine has no IDE bus: hw_disk_bus or hw_cdrom_bus is ide.")


def _check_devices(asked: HardwareRequest) -> None:
    ram = asked.number("video_ram")
    most = asked.number("video_ram_max") or 0
    if ram is not None and ram > most:
        raise exceptions.HardwareRefused(
            reason=f"The image asks for {ram} MiB of video RAM, and its flavor allows {most} (hw_video:ram_max_mb)."
        )
    if asked.flag("require_quiesce") and not asked.flag("qemu_guest_agent"):
        raise exceptions.HardwareRefused(reason="os_require_quiesce takes a guest agent: hw_qemu_guest_agent=yes.")
    model = asked.value("vif_model") or VIRTIO
    if asked.flag("vif_multiqueue_enabled") and model != VIRTIO:
        raise exceptions.HardwareRefused(reason=f"Only virtio interfaces have several queues, hw_vif_model is {model}.")
    if asked.value("pointer_model") and asked.value("input_bus") not in (None, USB):
        raise exceptions.HardwareRefused(reason="hw_pointer_model=usbtablet is on the bus usb, hw_input_bus is not.")


def _check_tunes(asked: HardwareRequest) -> None:
    if not any(name.startswith(("disk_", "vif_")) for name in asked.flavor):
        return
    for unit in ("bytes", "iops"):
        for most in ("", "_max"):
            total, *ways = (asked.value(f"disk_{way}_{unit}_sec{most}") for way in _DIRECTIONS)
            if total and any(ways):
                raise exceptions.HardwareRefused(
                    reason=f"quota:disk_total_{unit}_sec{most} goes with neither of read and write."
                )
            for way in _DIRECTIONS:
                if most and asked.value(f"disk_{way}_{unit}_sec_max") and not asked.value(f"disk_{way}_{unit}_sec"):
                    raise exceptions.HardwareRefused(
                        reason=f"quota:disk_{way}_{unit}_sec_max goes with quota:disk_{way}_{unit}_sec."
                    )
    if asked.value("disk_size_iops_sec") and not any(asked.value(f"disk_{way}_iops_sec") for way in _DIRECTIONS):
        raise exceptions.HardwareRefused(reason="quota:disk_size_iops_sec goes with a limit of requests per second.")
    for way in ("inbound", "outbound"):
        beside = any(asked.value(f"vif_{way}_{kind}") for kind in ("peak", "burst"))
        if beside and not asked.value(f"vif_{way}_average"):
            raise exceptions.HardwareRefused(reason=f"quota:vif_{way}_peak and _burst go with quota:vif_{way}_average.")
