"""vCPUs and memory that a running guest can get by a resize, up to the maximum of its flavor."""

from __future__ import annotations

from nova_lite.base import exceptions
from nova_lite.hardware.numa import NUMARequest
from nova_lite.hardware.request import HardwareRequest
from nova_lite.objects import Flavor

#: Names of the definitions.
VCPUS, MEMORY = "max_vcpus", "max_memory"

#: MB of memory that a guest gets or releases at least.
BLOCK_MB = 2


def check(request: HardwareRequest, flavor: Flavor, numa: NUMARequest | None) -> None:
    """Raise `HardwareRefused` for a maximum that the flavor exceeds, or that its guests cannot have."""
    for name, has, unit in ((VCPUS, flavor.vcpus, "vCPUs"), (MEMORY, flavor.memory_mb, "MB of memory")):
        most = request.number(name)
        if most is None:
            continue
        if most < has:
            raise exceptions.HardwareRefused(reason=f"hw:{name} is {most}, and the flavor has {has} {unit}.")
        if numa is not None:
            raise exceptions.HardwareRefused(
                reason=f"hw:{name} excludes NUMA nodes, dedicated CPUs and page sizes, which give guests a place in "
                "the host's CPUs and memory."
            )


def can_change(old: Flavor, new: Flavor) -> bool:
    """Check whether a running guest can get the new flavor.

    Only vCPUs and memory may differ, up to the maximum. Both grow, or both shrink, so that a change can be undone.
    """
    if any(getattr(old, name) != getattr(new, name) for name in ("root_gb", "ephemeral_gb", "swap", "extra_specs")):
        return False
    vcpus, memory_mb = new.vcpus - old.vcpus, new.memory_mb - old.memory_mb
    return (
        (vcpus != 0 or memory_mb != 0)
        and vcpus * memory_mb >= 0
        and (vcpus == 0 or new.vcpus <= _most(new, VCPUS))
        and (memory_mb == 0 or new.memory_mb <= _most(new, MEMORY))
        and memory_mb % BLOCK_MB == 0
    )


def _most(flavor: Flavor, name: str) -> int:
    return int(flavor.extra_specs.get(f"hw:{name}", 0))
