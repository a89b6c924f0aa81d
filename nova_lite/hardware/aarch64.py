"""Settings of guests of the architecture aarch64, which x86_64 hosts emulate: their machine lacks some hardware.

libvirt and qemu have started each value that is left. `settings` refuses buses of disks, as for other machines.
"""

from __future__ import annotations

from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.hardware.definition import Values, matching, number, one_of
from nova_lite.hardware.guest import AARCH64, TPM_2, TPM_TIS, VIRT
from nova_lite.hardware.request import BY_NAME, HardwareRequest

_NO = Values("no", lambda value: not strutils.bool_from_string(value))

#: Accepted values by the names of settings. None: no value.
_VALUES: dict[str, Values | None] = {
    "machine_type": matching(f"{VIRT} or one of its versions", rf"{VIRT}(-.+)?"),
    "firmware_type": one_of("uefi"),
    "secure_boot": one_of("disabled", "optional"),
    "time_hpet": _NO,
    "hide_hypervisor_id": _NO,
    "maxphysaddr_mode": None,
    "scsi_model": one_of("virtio-scsi"),
    "video_model": one_of("vga", "cirrus", "virtio", "bochs", "vmvga", "none"),
    "sound_model": one_of("es1370", "ac97", "ich6", "ich9", "usb"),
    "serial_port_count": number(0, 1),
    "tpm_version": one_of(TPM_2),
    "tpm_model": one_of(TPM_TIS),
    "mem_encryption": _NO,
    "max_vcpus": None,
    "max_memory": None,
}


def is_requested(request: HardwareRequest) -> bool:
    return request.value("emulation_architecture") == AARCH64


def check(request: HardwareRequest) -> None:
    """Raise `HardwareRefused` for hardware of the other architecture."""
    if not is_requested(request):
        if (request.value("machine_type") or "").startswith(VIRT):
            raise exceptions.HardwareRefused(reason=f"A {VIRT} machine needs hw_emulation_architecture={AARCH64}.")
        return
    for name, values in _VALUES.items():
        value = request.value(name)
        if value is not None and (values is None or not values.accepts(value)):
            key = BY_NAME[name].image if name in request.image else BY_NAME[name].flavor
            others = "" if values is None else f", only {values.description.replace('`', '')}"
            raise exceptions.HardwareRefused(
                reason=f"A guest with hw_emulation_architecture={AARCH64} cannot have {key}={value}{others}."
            )
