"""What the instances of this host hold of it, in memory.

The conductor's allocations are the truth of what is given out. This is a last check on the host itself: it may be
smaller than it was reported, or hold more than the conductor knew. What does not fit is sent back (rescheduled).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import Flavor, InstanceNUMATopology

UNITS = {"vcpus": "vCPUs", "memory_mb": "MB of memory", "disk_gb": "GB of disk"}


class Resources(msgspec.Struct, frozen=True):
    """An amount of a host. Memory MB, disk GB. ``vcpus``: those that share CPUs; ``cpus``: CPUs for one vCPU each."""

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    cpus: tuple[int, ...] = ()

    @classmethod
    def of(cls, flavor: Flavor, numa: InstanceNUMATopology | None) -> Resources:
        """``numa``: where the instance is in the host's NUMA cells."""
        cpus = () if numa is None else tuple(numa.host_cpus)
        vcpus = 0 if numa is not None and numa.dedicated else flavor.vcpus
        return cls(vcpus=vcpus, memory_mb=flavor.memory_mb, disk_gb=flavor.disk_gb, cpus=cpus)


class Claims:
    """Claims by instance uuid. ``capacity()`` says what this host may give out now."""

    def __init__(self, capacity: Callable[[], Resources]) -> None:
        self._capacity = capacity
        self._held: dict[str, Resources] = {}
        self._mutex = threading.Lock()

    def instance_claim(self, instance_uuid: str, wanted: Resources, limits: Mapping[str, int]) -> None:
        """Hold ``wanted`` for the instance until `release`, or raise `ComputeResourcesUnavailable` saying what lacks.

        ``limits`` are the scheduler's idea of the host's capacity; the smaller of it and `capacity` counts. An
        instance that already has a claim gets the new one in its place.
        """
        capacity = self._capacity()
        with self._mutex:
            others = [held for uuid, held in self._held.items() if uuid != instance_uuid]
            for name, unit in UNITS.items():
                used = sum(getattr(held, name) for held in others)
                total = min(getattr(capacity, name), limits.get(name, getattr(capacity, name)))
                need = getattr(wanted, name)
                if used + need > total:
                    raise exceptions.ComputeResourcesUnavailable(
                        reason=f"{need} {unit} asked for, {max(0, total - used)} of {total} left on this host"
                    )
            self._check_cpus(wanted, others, capacity)
            self._held[instance_uuid] = wanted

    @staticmethod
    def _check_cpus(wanted: Resources, others: list[Resources], capacity: Resources) -> None:
        """Each of the CPUs is one that this host gives out so, and is nobody else's."""
        taken = {cpu for held in others for cpu in held.cpus}
        for cpu in wanted.cpus:
            if cpu not in capacity.cpus or cpu in taken:
                why = "another guest has it" if cpu in capacity.cpus else "it is not in cpu_dedicated_set"
                raise exceptions.ComputeResourcesUnavailable(reason=f"CPU {cpu} asked for, {why} on this host")

    def restore(self, held: Mapping[str, Resources]) -> None:
        """Take over what domains hold that were here before this daemon started."""
        with self._mutex:
            self._held.update(held)

    def release(self, instance_uuid: str) -> None:
        """The instance holds nothing here any more; may be called again."""
        with self._mutex:
            self._held.pop(instance_uuid, None)

    def used(self) -> Resources:
        with self._mutex:
            held = list(self._held.values())
        return Resources(**{name: sum(getattr(item, name) for item in held) for name in UNITS})
