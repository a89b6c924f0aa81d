"""Resolution of a guest's hardware from its flavor and image."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.hardware import aarch64, hotplug, mem_encryption, numa, traits
from nova_lite.hardware.guest import (
    AARCH64,
    DEFAULT,
    DEVICE_PREFIX,
    DISABLED,
    IDE,
    IDE_PLACES,
    REQUIRED,
    RNG_PERIOD,
    SATA,
    SCSI,
    SEV,
    TPM_2,
    TPM_CRB,
    TPM_TIS,
    USB,
    VIRT,
    VIRTIO,
    Hardware,
    RescueDisk,
    Tpm,
)
from nova_lite.hardware.numa import NUMARequest
from nova_lite.hardware.request import HardwareRequest, read
from nova_lite.hardware.topology import Topology, choose
from nova_lite.objects import BlockDevice, Flavor, Image, block_device

MAX_QUEUES = 256

_Q35 = "q35"
#: Buses of disks that machines lack. The firmware of aarch64 does not know SATA.
_LACKING = {_Q35: (IDE,), VIRT: (IDE, SATA)}

_ISO = "iso"

#: MiB that qemu accepts for the graphics card bochs.
_BOCHS_MB = range(4, 257)


def resolve(flavor: Flavor, image: Image | None, strict: bool = True) -> Hardware:
    """Return the hardware of a guest. Raises `HardwareRefused`.

    If not ``strict``, leaves out the settings that are refused: servers of older versions may have them.
    """
    request = read(flavor.extra_specs, {} if image is None else image.properties, strict)
    cdrom = image is not None and image.disk_format == _ISO
    if not cdrom and not request.flavor and not request.image and not request.traits:
        return msgspec.structs.replace(DEFAULT, topology=Topology(flavor.vcpus))
    try:
        _check_combinations(request)
        numa_request = numa.choose(request, flavor.vcpus, flavor.memory_mb)
        hotplug.check(request, flavor, numa_request)
    except exceptions.HardwareRefused:
        if strict:
            raise
        return msgspec.structs.replace(DEFAULT, topology=Topology(flavor.vcpus), cdrom=cdrom, traits=request.traits)
    on_arm = aarch64.is_requested(request)
    firmware = "uefi" if on_arm else request.value("firmware_type")
    tablet, keyboard = _inputs(request)
    guest = Hardware(
        topology=choose(request, request.number(hotplug.VCPUS) or flavor.vcpus, strict),
        architecture=request.value("emulation_architecture"),
        machine_type=request.value("machine_type") or (VIRT if on_arm else None),
        uefi=firmware == "uefi",
        secure_boot=(request.value("secure_boot") or DISABLED) if firmware == "uefi" else DISABLED,
        boot_menu=bool(request.flag("boot_menu")),
        hpet=bool(request.flag("time_hpet")),
        windows=(request.value("os_type") or "").lower() == "windows",
        pmu=request.flag("pmu"),
        hidden=bool(request.flag("hide_hypervisor_id")),
        maxphysaddr_mode=request.value("maxphysaddr_mode"),
        maxphysaddr_bits=request.number("maxphysaddr_bits"),
        disk_bus=request.value("disk_bus") or VIRTIO,
        scsi_model=request.value("scsi_model") or "virtio-scsi",
        cdrom=cdrom,
        cdrom_bus=request.value("cdrom_bus") or (SCSI if on_arm else None) if cdrom else None,
        packed_ring=bool(request.flag("virtio_packed_ring")),
        vif_model=request.value("vif_model") or VIRTIO,
        queues=min(flavor.vcpus, MAX_QUEUES) if request.flag("vif_multiqueue_enabled") else 1,
        video_model=request.value("video_model"),
        video_ram_mb=request.number("video_ram"),
        tablet=tablet,
        keyboard=keyboard,
        rng=request.flag("rng_allowed") is not False,
        rng_bytes=request.number("rng_rate_bytes") or 0,
        rng_period=request.number("rng_rate_period") or RNG_PERIOD,
        watchdog=_none_if(request.value("watchdog_action"), "disabled"),
        serial_ports=request.number("serial_port_count") or 1,
        agent=bool(request.flag("qemu_guest_agent")),
        quiesce=bool(request.flag("require_quiesce")),
        sound_model=request.value("sound_model"),
        usb_model=request.value("usb_model"),
        cpu_tune=_group(request, "cpu_", ("shares", "period", "quota")),
        disk_tune=_disk_tune(request),
        inbound=_group(request, "vif_inbound_", _BANDWIDTH),
        outbound=_group(request, "vif_outbound_", _BANDWIDTH),
        traits=request.traits,
        numa=numa_request,
        tpm=_tpm(request),
        mem_encryption=_mem_encryption(request),
        encrypted_disks=bool(request.flag("ephemeral_encryption")),
        max_vcpus=request.number(hotplug.VCPUS),
        max_memory_mb=request.number(hotplug.MEMORY),
    )
    if required := traits.required_by(guest):
        guest = msgspec.structs.replace(guest, traits=_with_required(request.traits, required, strict))
    return guest


def numa_of(flavor: Flavor, image: Image | None) -> NUMARequest | None:
    """Return the request for CPUs and memory of the host, or None if the guest may be anywhere in its host."""
    keys = (*flavor.extra_specs, *(() if image is None else image.properties))
    if not any(key.startswith(_NUMA_KEYS) for key in keys):
        return None
    return resolve(flavor, image, strict=False).numa


#: Prefixes of keys. Without such a key there is no request for CPUs and memory of the host.
_NUMA_KEYS = tuple(
    f"{prefix}{name}" for prefix in ("hw:", "hw_") for name in ("cpu_policy", "mem_page_size", "numa_nodes")
)


def has_tpm(flavor: Mapping[str, Any], image: Mapping[str, Any] | None) -> bool:
    """Check whether a server of this flavor and image, as they are stored, has a TPM."""
    return "hw:tpm_version" in flavor.get("extra_specs", {}) or "hw_tpm_version" in (image or {}).get("properties", {})


def encrypts_disks(specs: Mapping[str, str], properties: Mapping[str, str]) -> bool:
    """Check whether the disks of a server are encrypted, by its flavor and image.

    No other setting matters, so that no refusal of one ever makes a disk plain.
    """
    values = specs.get("hw:ephemeral_encryption"), properties.get("hw_ephemeral_encryption")
    return any(strutils.bool_from_string(value) for value in values)


def is_arm(image: Image | None) -> bool:
    """Check whether guests of this image have the architecture aarch64."""
    return image is not None and image.properties.get("hw_emulation_architecture") == AARCH64


def root_device(image: Image | None) -> str:
    """Return the name that a guest of this image has for its root disk."""
    properties = {} if image is None else image.properties
    bus = properties.get("hw_disk_bus", VIRTIO)
    if image is not None and image.disk_format == _ISO:
        bus = properties.get("hw_cdrom_bus") or _drive_bus(read({}, properties, strict=False))
    return f"/dev/{DEVICE_PREFIX.get(bus, DEVICE_PREFIX[VIRTIO])}a"


def check_disks(flavor: Flavor, image: Image | None, devices: Collection[BlockDevice]) -> None:
    """Check that the server's machine has room for all its disks. Raises `HardwareRefused`.

    ``devices``: block devices of the server. A config drive is always counted, because hosts may add one.
    """
    request = read(flavor.extra_specs, {} if image is None else image.properties, strict=False)
    on_ide = request.value("disk_bus") == IDE
    needed = block_device.local_count(flavor, devices) if on_ide else 0
    if image is not None and image.disk_format == _ISO and block_device.root_volume(devices) is None:
        needed += ((request.value("cdrom_bus") or _drive_bus(request)) == IDE) - on_ide
    needed += sum(device.is_volume and device.disk_bus == IDE for device in devices)
    _check_buses(request, "disk_bus of a volume", *(device.disk_bus for device in devices if device.is_volume))
    if needed > IDE_PLACES:
        raise exceptions.HardwareRefused(
            reason=f"The server needs {needed} disks on its IDE bus (with a config drive), which has {IDE_PLACES} "
            "places. Use another hw_disk_bus, or fewer disks."
        )


def check_rescue(image: Image | None, server_image: Image | None = None, strict: bool = True) -> RescueDisk:
    """Return the disk of a rescued server with this image. Raises `HardwareRefused`.

    ``server_image``: the image of the server. ``strict``: see `resolve`. The server keeps its architecture.
    """
    properties: Mapping[str, str] = {} if image is None else image.properties
    request = read({}, properties, strict)
    bus, device = request.value("rescue_bus"), request.value("rescue_device")
    cdrom = device == "cdrom" or (device is None and image is not None and image.disk_format == _ISO)
    if cdrom and bus == VIRTIO:
        if strict:
            raise exceptions.HardwareRefused(
                reason="A CD-ROM drive (hw_rescue_device) cannot be on the bus virtio (hw_rescue_bus)."
            )
        bus = None
    if strict and is_arm(image) != is_arm(server_image):
        raise exceptions.HardwareRefused(
            reason="The rescue image has another hw_emulation_architecture than the server's image."
        )
    if strict and server_image is not None:
        _check_buses(read({}, server_image.properties, strict=False), "hw_rescue_bus", bus)
    stable = bus is not None or device is not None
    return RescueDisk(stable=stable, bus=bus if cdrom else bus or request.value("disk_bus") or VIRTIO, cdrom=cdrom)


_BANDWIDTH = ("average", "peak", "burst")
_ACCESSES = ("total", "read", "write")
_DISK_TUNES = (
    *(f"{way}_{unit}_sec{most}" for way in _ACCESSES for unit in ("bytes", "iops") for most in ("", "_max")),
    "size_iops_sec",
)


def _none_if(value: str | None, nothing: str) -> str | None:
    return None if value == nothing else value


def _inputs(request: HardwareRequest) -> tuple[str | None, str | None]:
    """Return the buses of the tablet and of the keyboard, None for a device that the guest does not have."""
    bus = request.value("input_bus")
    if bus is None and aarch64.is_requested(request):
        bus = USB  # it has no keyboard of its own
    if bus is not None:
        return bus, bus
    return (USB if request.value("pointer_model") else None), None


def _tpm(request: HardwareRequest) -> Tpm | None:
    version = request.value("tpm_version")
    return None if version is None else Tpm(version, request.value("tpm_model") or TPM_TIS)


def _mem_encryption(request: HardwareRequest) -> str | None:
    return (request.value("mem_encryption_model") or SEV) if request.flag("mem_encryption") else None


def _group(request: HardwareRequest, prefix: str, names: tuple[str, ...]) -> dict[str, int]:
    if not any(name.startswith(prefix) for name in request.flavor):
        return {}
    return {name: value for name in names if (value := request.number(prefix + name)) is not None}


def _disk_tune(request: HardwareRequest) -> dict[str, int]:
    return _group(request, "disk_", _DISK_TUNES)


def _with_required(chosen: dict[str, str], required: set[str], strict: bool) -> dict[str, str]:
    for trait in sorted(required):
        if strict and chosen.get(trait) == traits.FORBIDDEN:
            raise exceptions.HardwareRefused(reason=f"Trait {trait} is forbidden, and the guest's hardware needs it.")
    return {**chosen, **dict.fromkeys(required, traits.REQUIRED)}


def _check_combinations(request: HardwareRequest) -> None:
    """Check settings that exclude or need each other. Raises `HardwareRefused`."""
    aarch64.check(request)
    _check_firmware(request)
    mem_encryption.check(request)
    _check_tpm(request)
    _check_devices(request)
    _check_tunes(request)


def _check_firmware(request: HardwareRequest) -> None:
    machine = request.value("machine_type") or ""
    if request.value("secure_boot") == REQUIRED:
        if request.value("firmware_type") != "uefi":
            raise exceptions.HardwareRefused(reason="Secure boot needs an image with hw_firmware_type=uefi.")
        if machine and "q35" not in machine:
            raise exceptions.HardwareRefused(reason=f"Secure boot needs a q35 machine, hw_machine_type is {machine}.")
    mode, bits = request.value("maxphysaddr_mode"), request.value("maxphysaddr_bits")
    if (mode == "emulate") != (bits is not None):
        raise exceptions.HardwareRefused(reason="maxphysaddr_bits and maxphysaddr_mode=emulate need each other.")
    _check_buses(request, "hw_disk_bus or hw_cdrom_bus", request.value("disk_bus"), request.value("cdrom_bus"))


def _check_tpm(request: HardwareRequest) -> None:
    version, model = request.value("tpm_version"), request.value("tpm_model")
    if model is not None and version is None:
        raise exceptions.HardwareRefused(reason=f"A TPM of model {model} needs a version: hw:tpm_version is missing.")
    if model == TPM_CRB and version != TPM_2:
        raise exceptions.HardwareRefused(reason=f"TPM model CRB is only valid with TPM version {TPM_2}.")


def _machine(request: HardwareRequest) -> str:
    """Return the kind of the machine. Secure boot and encrypted memory need a q35."""
    if aarch64.is_requested(request):
        return VIRT
    needs_q35 = request.value("secure_boot") == REQUIRED or request.flag("mem_encryption")
    is_q35 = _Q35 in (request.value("machine_type") or "") or needs_q35
    return _Q35 if is_q35 else "pc"


def _drive_bus(request: HardwareRequest) -> str:
    """Return the bus of an ISO image's drive whose image names none."""
    return {VIRT: SCSI, _Q35: SATA}.get(_machine(request), IDE)


def _check_buses(request: HardwareRequest, what: str, *buses: str | None) -> None:
    """Raise `HardwareRefused` for a bus that the machine does not have. ``what``: the names of their settings."""
    for bus in buses:
        if bus in _LACKING.get(_machine(request), ()):
            raise exceptions.HardwareRefused(
                reason=f"A {_machine(request)} machine has no {str(bus).upper()} bus: {what} is {bus}."
            )


def _check_devices(request: HardwareRequest) -> None:
    ram = request.number("video_ram")
    most = request.number("video_ram_max") or 0
    if ram is not None and ram > most:
        raise exceptions.HardwareRefused(
            reason=f"The image requests {ram} MiB of video RAM, and its flavor allows {most} (hw_video:ram_max_mb)."
        )
    if ram is not None and request.value("video_model") == "bochs" and ram not in _BOCHS_MB:
        raise exceptions.HardwareRefused(
            reason=f"A bochs graphics card has {_BOCHS_MB.start} to {_BOCHS_MB.stop - 1} MiB, hw_video_ram is {ram}."
        )
    if request.flag("require_quiesce") and not request.flag("qemu_guest_agent"):
        raise exceptions.HardwareRefused(reason="os_require_quiesce needs a guest agent: hw_qemu_guest_agent=yes.")
    model = request.value("vif_model") or VIRTIO
    if request.flag("vif_multiqueue_enabled") and model != VIRTIO:
        raise exceptions.HardwareRefused(
            reason=f"Only virtio interfaces have multiple queues, hw_vif_model is {model}."
        )
    if request.value("pointer_model") and request.value("input_bus") not in (None, USB):
        raise exceptions.HardwareRefused(reason="hw_pointer_model=usbtablet needs hw_input_bus=usb.")


def _check_tunes(request: HardwareRequest) -> None:
    if not any(name.startswith(("disk_", "vif_")) for name in request.flavor):
        return
    for unit in ("bytes", "iops"):
        for most in ("", "_max"):
            total, *ways = (request.value(f"disk_{way}_{unit}_sec{most}") for way in _ACCESSES)
            if total and any(ways):
                raise exceptions.HardwareRefused(
                    reason=f"quota:disk_total_{unit}_sec{most} excludes limits of reads and of writes."
                )
            for way in _ACCESSES:
                if most and request.value(f"disk_{way}_{unit}_sec_max") and not request.value(f"disk_{way}_{unit}_sec"):
                    raise exceptions.HardwareRefused(
                        reason=f"quota:disk_{way}_{unit}_sec_max needs quota:disk_{way}_{unit}_sec."
                    )
    if request.value("disk_size_iops_sec") and not any(request.value(f"disk_{way}_iops_sec") for way in _ACCESSES):
        raise exceptions.HardwareRefused(reason="quota:disk_size_iops_sec needs a limit of requests per second.")
    for way in ("inbound", "outbound"):
        more = any(request.value(f"vif_{way}_{kind}") for kind in ("peak", "burst"))
        if more and not request.value(f"vif_{way}_average"):
            raise exceptions.HardwareRefused(reason=f"quota:vif_{way}_peak and _burst need quota:vif_{way}_average.")
