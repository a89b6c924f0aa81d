"""Encryption of guests' memory: what it needs and excludes, and the contexts of hosts."""

from __future__ import annotations

from typing import Any

import pytest

from nova_lite import hardware
from nova_lite.base import exceptions
from nova_lite.hardware import mem_encryption, pci
from nova_lite.hardware.fitting import FitError
from nova_lite.objects import Flavor, Image, PCIDevice
from tests.support import make

UEFI = {"hw_firmware_type": "uefi"}
ENCRYPTED = {"hw:mem_encryption": "yes"}


def flavor(**specs: str) -> Flavor:
    return Flavor(flavorid="1", name="f", vcpus=2, memory_mb=512, root_gb=1, extra_specs=specs)


def image(**properties: str) -> Image:
    return Image(id="i", name="i", properties=properties)


@pytest.mark.parametrize(
    ("model", "trait"),
    [
        (None, "HW_CPU_X86_AMD_SEV"),
        ("amd-sev", "HW_CPU_X86_AMD_SEV"),
        ("amd-sev-es", "HW_CPU_X86_AMD_SEV_ES"),
        ("amd-sev-snp", "HW_CPU_X86_AMD_SEV_SNP"),
        ("intel-tdx", "HW_CPU_X86_INTEL_TDX"),
    ],
)
def test_model_needs_hosts_with_its_trait(model: str | None, trait: str) -> None:
    specs = ENCRYPTED | ({} if model is None else {"hw:mem_encryption_model": model})
    made = hardware.resolve(flavor(**specs), image(**UEFI))
    assert made.mem_encryption == (model or "amd-sev")
    assert set(made.traits) == {trait, "COMPUTE_FIRMWARE_UEFI"}
    of_image = {"hw_mem_encryption": "yes", **({} if model is None else {"hw_mem_encryption_model": model})}
    assert hardware.resolve(flavor(), image(**UEFI, **of_image)) == made


@pytest.mark.parametrize(
    ("specs", "properties", "message"),
    [
        (ENCRYPTED, {}, "needs an image with hw_firmware_type=uefi"),
        (ENCRYPTED, {"hw_firmware_type": "bios"}, "needs an image with hw_firmware_type=uefi"),
        (ENCRYPTED, {**UEFI, "hw_machine_type": "pc"}, "needs a q35 machine, hw_machine_type is pc"),
        (ENCRYPTED, {**UEFI, "os_secure_boot": "required"}, "has no secure boot"),
        (ENCRYPTED, {**UEFI, "hw_disk_bus": "ide"}, "A q35 machine has no IDE bus"),
        ({**ENCRYPTED, "hw:max_vcpus": "4"}, UEFI, "cannot have hw:max_vcpus"),
        ({**ENCRYPTED, "hw:max_memory": "4096"}, UEFI, "cannot have hw:max_memory"),
        ({"hw:mem_encryption_model": "amd-sev"}, UEFI, "needs hw:mem_encryption=yes"),
        ({**ENCRYPTED, "hw:mem_encryption_model": "sgx"}, UEFI, "it takes amd-sev, amd-sev-es, amd-sev-snp, intel-tdx"),
        (ENCRYPTED, {**UEFI, "hw_mem_encryption": "no"}, "contradict each other"),
        (ENCRYPTED, {"hw_emulation_architecture": "aarch64"}, "cannot have hw:mem_encryption=yes"),
    ],
)
def test_hardware_that_encrypted_memory_excludes_is_refused(
    specs: dict[str, str], properties: dict[str, str], message: str
) -> None:
    with pytest.raises(exceptions.HardwareRefused, match=message) as refusal:
        hardware.resolve(flavor(**specs), image(**properties))
    assert refusal.value.code == 400


CONTEXTS = mem_encryption.contexts([("sev", 2), ("sev-es", 1)])


def place(used: set[str], **specs: str) -> list[PCIDevice]:
    wanted = pci.requests(make.conf("sqlite://"), flavor(**specs), None, strict=True)
    return pci.choose(wanted, pci.unused(CONTEXTS, used), None)


def test_guest_claims_a_context_of_its_models_pool() -> None:
    assert [device.address for device in CONTEXTS] == ["sev#0", "sev#1", "sev-es#0"]
    assert {device.resource_class for device in CONTEXTS} == {"MEM_ENCRYPTION_CONTEXT"}
    for model, used, address in (
        ("amd-sev", {"sev#0"}, "sev#1"),
        ("amd-sev-es", {"sev#0"}, "sev-es#0"),
        ("amd-sev-snp", set[str](), "sev-es#0"),
    ):
        (device,) = place(used, **ENCRYPTED, **{"hw:mem_encryption_model": model})
        assert (device.address, device.alias) == (address, "hw:mem_encryption")
    with pytest.raises(FitError, match="1 MEM_ENCRYPTION_CONTEXT requested, 0 free"):
        place({"sev-es#0"}, **ENCRYPTED, **{"hw:mem_encryption_model": "amd-sev-snp"})
    assert place(set(), **ENCRYPTED, **{"hw:mem_encryption_model": "intel-tdx"}) == []
    assert place(set(), **{"hw:mem_encryption": "no"}) == []


def test_host_reports_a_limited_number_of_contexts_whose_addresses_the_database_can_have() -> None:
    many = mem_encryption.contexts([("sev", 509), ("sev-es", 1000)])
    assert len(many) == 2 * mem_encryption.MOST
    assert max(len(device.address) for device in many) <= 16


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ({}, {}, True),
        ({}, {"hw_mem_encryption": "yes"}, False),
        ({"hw_mem_encryption": "yes"}, {"hw_mem_encryption": "yes", "hw_mem_encryption_model": "amd-sev"}, True),
        ({"hw_mem_encryption": "yes"}, {"hw_mem_encryption": "yes", "hw_mem_encryption_model": "amd-sev-es"}, False),
    ],
)
def test_rebuild_keeps_the_encryption_of_memory(old: dict[str, str], new: dict[str, str], fits: bool) -> None:
    def rebuild() -> None:
        mem_encryption.require_same(flavor(), image(**old), image(**new))

    if fits:
        rebuild()
        return
    with pytest.raises(exceptions.HardwareRefused, match="a rebuild cannot change that"):
        rebuild()


def test_stored_server_has_its_model() -> None:
    assert mem_encryption.model_of({"extra_specs": ENCRYPTED}, None) == "amd-sev"
    stored: dict[str, Any] = {"properties": {"hw_mem_encryption": "1", "hw_mem_encryption_model": "intel-tdx"}}
    assert mem_encryption.model_of({}, stored) == "intel-tdx"
    assert mem_encryption.model_of({}, {"properties": {"hw_mem_encryption": "no"}}) is None
