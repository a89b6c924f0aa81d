"""Traits with the names of os-traits. Hosts report them, and the hardware of guests requires some of them."""

from __future__ import annotations

from collections.abc import Iterable

from nova_lite.hardware import guest
from nova_lite.hardware.guest import Hardware

REQUIRED, FORBIDDEN = "required", "forbidden"

#: Key of the traits among a host's capabilities.
CAPABILITY = "traits"

UEFI = "COMPUTE_FIRMWARE_UEFI"
BIOS = "COMPUTE_FIRMWARE_BIOS"
SECURE_BOOT = "COMPUTE_SECURITY_UEFI_SECURE_BOOT"
ADDRESSES = {"emulate": "COMPUTE_ADDRESS_SPACE_EMULATED", "passthrough": "COMPUTE_ADDRESS_SPACE_PASSTHROUGH"}

#: Traits of a host that emulates TPMs, by the version and by the model.
TPM_VERSIONS = {"1.2": "COMPUTE_SECURITY_TPM_1_2", guest.TPM_2: "COMPUTE_SECURITY_TPM_2_0"}
TPM_MODELS = {guest.TPM_TIS: "COMPUTE_SECURITY_TPM_TIS", guest.TPM_CRB: "COMPUTE_SECURITY_TPM_CRB"}
#: Trait of a host that gets the keys of TPMs from the cloud.
TPM_KEYS = "COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT"

#: Traits of a host that encrypts the disks of guests, with keys from the cloud.
DISK_ENCRYPTION = ("COMPUTE_EPHEMERAL_ENCRYPTION", "COMPUTE_EPHEMERAL_ENCRYPTION_LUKS")

#: Traits of a host by the models of the encryption of memory that its guests can have.
MEM_ENCRYPTIONS = {
    guest.SEV: "HW_CPU_X86_AMD_SEV",
    guest.SEV_ES: "HW_CPU_X86_AMD_SEV_ES",
    guest.SEV_SNP: "HW_CPU_X86_AMD_SEV_SNP",
    guest.TDX: "HW_CPU_X86_INTEL_TDX",
}

#: Trait of a host whose guests can have the machine microvm.
MICROVM = "CUSTOM_MACHINE_MICROVM"

#: Trait of a host whose service is disabled.
DISABLED = "COMPUTE_STATUS_DISABLED"
#: Trait of the Placement API's providers of PCI devices.
MANAGED_PCI_DEVICE = "COMPUTE_MANAGED_PCI_DEVICE"

#: Trait of a host whose guests can share a volume with others.
MULTIATTACH = "COMPUTE_VOLUME_MULTI_ATTACH"

#: Trait of a host whose guests can mount directories of it.
VIRTIOFS = "COMPUTE_STORAGE_VIRTIO_FS"

#: Trait of a host that makes snapshot points of guests.
POINTS = "CUSTOM_SNAPSHOT_POINTS"
#: Trait of a host that clones guests.
CLONES = "CUSTOM_INSTANT_CLONES"

#: Trait of a host that keeps networks with equal addresses apart.
REALMS = "CUSTOM_NETWORK_REALMS"

#: Trait of a host whose cores have several threads.
HYPERTHREADING = "HW_CPU_HYPERTHREADING"

#: Traits of a host by the architectures that its guests can have.
ARCHITECTURES = {name: f"COMPUTE_ARCH_{name.upper()}" for name in (guest.X86_64, guest.AARCH64)}

#: Traits that every driver's host has.
ALWAYS = ("COMPUTE_NODE", BIOS, ADDRESSES["emulate"], ARCHITECTURES[guest.X86_64])

VIDEO_MODELS = ("vga", "cirrus", "qxl", "virtio", "bochs", "vmvga", "none")

#: libvirt's names of CPU features to the ends of the traits, after ``HW_CPU_X86_``.
_FEATURES = {
    **{
        name: name.upper()
        for name in (
            "3dnow", "abm", "avx", "avx2", "avx512bw", "avx512cd", "avx512dq", "avx512er", "avx512f", "avx512pf",
            "avx512vl", "avx512vnni", "avx512vbmi", "avx512ifma", "avx512vbmi2", "avx512bitalg", "bmi2", "f16c",
            "fma4", "mmx", "mpx", "pcid", "pdpe1gb", "rtm", "sgx", "sse", "sse2", "sse3", "ssse3", "ssbd", "stibp",
            "svm", "tbm", "vmx", "xop",
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
}  # fmt: skip


def of_features(features: Iterable[str]) -> set[str]:
    """Return the traits of a CPU with these features."""
    return {f"HW_CPU_X86_{_FEATURES[name]}" for name in features if name in _FEATURES}


def of_video(model: str) -> str:
    return f"COMPUTE_GRAPHICS_MODEL_{model.upper()}"


def of_bus(bus: str) -> str:
    return f"COMPUTE_STORAGE_BUS_{bus.upper()}"


def required_by(hardware: Hardware) -> set[str]:
    """Return the traits that a host must have for this hardware, besides the traits that flavor and image name."""
    traits = set()
    if hardware.architecture is not None:
        traits.add(ARCHITECTURES[hardware.architecture])
    if hardware.uefi and not hardware.is_arm:  # an emulated machine has a firmware of its own
        traits.add(UEFI)
    if hardware.machine_type == "microvm":
        traits.add(MICROVM)
    if hardware.secure_boot == guest.REQUIRED:
        traits.add(SECURE_BOOT)
    if hardware.maxphysaddr_mode:
        traits.add(ADDRESSES[hardware.maxphysaddr_mode])
    if hardware.video_model:
        traits.add(of_video(hardware.video_model))
    if hardware.tpm is not None:
        traits |= {TPM_VERSIONS[hardware.tpm.version], TPM_MODELS[hardware.tpm.model], TPM_KEYS}
    if hardware.encrypted_disks:
        traits |= set(DISK_ENCRYPTION)
    if hardware.mem_encryption is not None:
        traits.add(MEM_ENCRYPTIONS[hardware.mem_encryption])
    return traits


#: All traits that `required_by` can return. Drivers that emulate no hardware report all of them.
DERIVED = (
    MICROVM,
    UEFI,
    SECURE_BOOT,
    *ADDRESSES.values(),
    *(of_video(model) for model in VIDEO_MODELS),
    *TPM_VERSIONS.values(),
    *TPM_MODELS.values(),
    TPM_KEYS,
    *DISK_ENCRYPTION,
    *MEM_ENCRYPTIONS.values(),
)


#: All traits that this cloud derives from hardware, features of CPUs, and services.
KNOWN = (
    *ALWAYS,
    MULTIATTACH,
    VIRTIOFS,
    POINTS,
    CLONES,
    REALMS,
    HYPERTHREADING,
    *DERIVED,
    *(of_bus(bus) for bus in guest.DEVICE_PREFIX),
    *ARCHITECTURES.values(),
    *sorted({f"HW_CPU_X86_{end}" for end in _FEATURES.values()}),
    DISABLED,
    MANAGED_PCI_DEVICE,
)


def missing(requested: dict[str, str], present: Iterable[str]) -> list[str]:
    """Return the requested traits that a host lacks, and "not TRAIT" for each forbidden trait of the host."""
    have = set(present)
    lacks = [trait for trait, word in sorted(requested.items()) if word == REQUIRED and trait not in have]
    extra = [f"not {trait}" for trait, word in sorted(requested.items()) if word == FORBIDDEN and trait in have]
    return lacks + extra
