"""Encryption of guests' memory by the processor: SEV, SEV-ES and SEV-SNP of AMD, and TDX of Intel.

A host of AMD has a number of contexts, the places for keys in its processor. A guest claims one, as it claims devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from oslo_utils import strutils

from nova_lite.base import exceptions
from nova_lite.hardware.guest import REQUIRED, SEV, SEV_ES, SEV_SNP
from nova_lite.hardware.request import HardwareRequest
from nova_lite.objects import Flavor, Image
from nova_lite.objects.pci import MEM_ENCRYPTION_CONTEXT, NUMA_PREFERRED, PCIDevice, PCIKind, PCIRequest

_SPEC, _PROPERTY = "hw:mem_encryption", "hw_mem_encryption"

#: Pools of contexts, by the models whose guests take them. libvirt counts none of TDX.
POOLS = {SEV: "sev", SEV_ES: "sev-es", SEV_SNP: "sev-es"}

#: Most contexts of a pool that a host reports.
MOST = 256

#: Settings that a guest with encrypted memory cannot have: vCPUs and memory are measured when it starts.
_FIXED = ("max_vcpus", "max_memory")


def model(specs: Mapping[str, str], properties: Mapping[str, str]) -> str | None:
    """Return the model of the encryption that a flavor and an image request. None: the memory is plain."""
    requested = any(strutils.bool_from_string(value) for value in (specs.get(_SPEC), properties.get(_PROPERTY)))
    if not requested:
        return None
    return specs.get(f"{_SPEC}_model") or properties.get(f"{_PROPERTY}_model") or SEV


def model_of(flavor: Mapping[str, Any], image: Mapping[str, Any] | None) -> str | None:
    """Return `model` of a server, whose flavor and image are as they are stored."""
    return model(flavor.get("extra_specs", {}), (image or {}).get("properties", {}))


def check(request: HardwareRequest) -> None:
    """Raise `HardwareRefused` for hardware that a guest with encrypted memory cannot have."""
    if not request.flag("mem_encryption"):
        if request.value("mem_encryption_model"):
            raise exceptions.HardwareRefused(reason="hw:mem_encryption_model needs hw:mem_encryption=yes.")
        return
    if request.value("firmware_type") != "uefi":
        raise exceptions.HardwareRefused(reason="Encrypted memory needs an image with hw_firmware_type=uefi.")
    machine = request.value("machine_type") or ""
    if machine and "q35" not in machine:
        raise exceptions.HardwareRefused(reason=f"Encrypted memory needs a q35 machine, hw_machine_type is {machine}.")
    if request.value("secure_boot") == REQUIRED:
        raise exceptions.HardwareRefused(reason="The firmware of a guest with encrypted memory has no secure boot.")
    for name in _FIXED:
        if request.value(name):
            raise exceptions.HardwareRefused(reason=f"A guest with encrypted memory cannot have hw:{name}.")


def require_same(flavor: Flavor, old: Image | None, new: Image) -> None:
    """Raise `HardwareRefused` if a rebuild with this image needs another context than the server has."""
    before = model(flavor.extra_specs, {} if old is None else old.properties)
    if model(flavor.extra_specs, new.properties) != before:
        raise exceptions.HardwareRefused(
            reason="The image requests another encryption of memory (hw_mem_encryption, hw_mem_encryption_model) than "
            "the server has: a rebuild cannot change that."
        )


def requests(flavor: Flavor, image: Image | None) -> list[PCIRequest]:
    """Return the request for a context of the host."""
    pool = POOLS.get(model(flavor.extra_specs, {} if image is None else image.properties) or "")
    if pool is None:
        return []
    kind = PCIKind(vendor_id="", product_id=pool, resource_class=MEM_ENCRYPTION_CONTEXT)
    return [PCIRequest(alias=_SPEC, count=1, kinds=[kind], numa_policy=NUMA_PREFERRED)]


def contexts(counts: Iterable[tuple[str, int]]) -> list[PCIDevice]:
    """Return the contexts of a host. ``counts``: by pool."""
    return [
        PCIDevice(
            address=f"{pool}#{number}",
            vendor_id="",
            product_id=pool,
            parent=pool,
            resource_class=MEM_ENCRYPTION_CONTEXT,
        )
        for pool, count in counts
        for number in range(min(count, MOST))
    ]
