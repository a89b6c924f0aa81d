"""Traits of hosts, by the names of os-traits: those that guests' hardware needs, and those of CPU features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nova_lite.hardware.settings import Hardware

REQUIRED, FORBIDDEN = "required", "forbidden"

#: Key of a host's capabilities.
CAPABILITY = "traits"

UEFI = "COMPUTE_FIRMWARE_UEFI"
BIOS = "COMPUTE_FIRMWARE_BIOS"
SECURE_BOOT = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
ADDRESSES = {"emulate": "COMPUTE_ADDRESS_SPACE_EMULATED", "passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"}

#: Of every host that a driver of ours runs.
ALWAYS = ("COMPUTE_NODE", BIOS, ADDRESSES["emulate"])

VIDEO_MODELS = ("vga", "cirrus", "qxl", "virtio", "bochs", "vmvga", "none")

#: Features of CPUs, as libvirt names them, to what follows HW_CPU_X86_.
_FEATURES = {
    **{
        name: name.upper()
        for name in (
            *("3dnow", "abm", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512er", "avx512f", "avx512pf"),
            *("avx512vl", "avx512vnni", "avx512vbmi", "avx512ifma", "avx512vbmi2", "avx512bitalg"),
            *("bmi2", "f16c", "fma4", "mmx", "mpx", "pcid", "pdpe1gb", "rtm", "sgx", "sse", "sse2", "sse3", "ssse3"),
            *("ssbd", "stibp", "svm", "tbm", "vmx", "xop"),
        )
    },
    "aes": "AESNI",
    "avx512-vpopcntdq": "AVX512VPOPCNTDQ",
    "bmi1": "BMI",
    "fma": "FMA3",
    "gfni": "AVX512GFNI",
    "pclmuldq": "CLMUL",
    "pclmulqdq": "CLMUL",
    "pni": "SSE3",
    "sha-ni": "SHA",
    "sse4.1": "SSE41",
    "sse4.2": "SSE42",
    "sse4a": "SSE4A",
    "vaes": "AVX512VAES",
    "vpclmulqdq": "AVX512VPCLMULQDQ",
    "md-clear": "MDCLEAR",
    "amd-ssbd": "AMD_SSBD",
    "virt-ssbd": "AMD_VIRT_SSBD",
    "ibpb": "AMD_IBPB",
    "spec-ctrl": "INTEL_SPEC_CTRL",
}


def of_features(features: Iterable[str]) -> set[str]:
    """Of a CPU that has these."""
    return {f"HW_CPU_X86_{_FEATURES[name]}" for name in features if name in _FEATURES}


def of_video(model: str) -> str:
    return f"COMPUTE_GRAPHICS_MODEL_{model.upper()}"


def of_bus(bus: str) -> str:
    return f"COMPUTE_STORAGE_BUS_{bus.upper()}"


def needed(hardware: Hardware) -> set[str]:
    """What a host has to have for a guest like that, beside what is asked of it by name."""
    found = set()
    if hardware.uefi:
        found.add(UEFI)
    if hardware.secure_boot == REQUIRED:
        found.add(SECURE_BOOT)
    if hardware.maxphysaddr_mode:
        found.add(ADDRESSES[hardware.maxphysaddr_mode])
    if hardware.video_model:
        found.add(of_video(hardware.video_model))
    return found


#: All that `needed` can say, for drivers whose guests have no hardware.
DERIVED = (UEFI, SECURE_BOOT, *ADDRESSES.values(), *(of_video(model) for model in VIDEO_MODELS))


def missing(wanted: dict[str, str], has: Iterable[str]) -> list[str]:
    """In words, what a host with these traits lacks of ``wanted``, or has too much."""
    have = set(has)
    lacks = [trait for trait, word in sorted(wanted.items()) if word == REQUIRED and trait not in have]
    extra = [f"not {trait}" for trait, word in sorted(wanted.items()) if word == FORBIDDEN and trait in have]
    return lacks + extra
