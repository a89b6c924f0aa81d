"""Claims: resources of this host that its instances hold, in memory.

The conductor's allocations are authoritative. Claims are a last check on the host itself. Its capacity may be smaller
than reported, or it may hold more than the conductor knew. A build that does not fit is rescheduled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import msgspec

from nova_lite.base import exceptions
from nova_lite.objects import Flavor, InstanceNUMATopology

UNITS = {"vcpus": "vCPUs", "memory_mb": "MB of memory", "disk_gb": "GB of disk"}


class Resources(msgspec.Struct, frozen=True):
    """Amount of a host's resources: memory in MB, disk in GB.

    ``vcpus``: vCPUs that share CPUs. ``cpus``: CPUs that are dedicated to one vCPU each.
    """

    vcpus: int = 0
    memory_mb: int = 0
    disk_gb: int = 0
    cpus: tuple[int, ...] = ()

    @classmethod
    def of(cls, flavor: Flavor, numa: InstanceNUMATopology | None) -> Resources:
        """Return the resources of an instance. ``numa``: its placement in the host's NUMA cells."""
        cpus = () if numa is None else tuple(numa.host_cpus)
        vcpus = 0 if numa is not None and numa.dedicated else flavor.vcpus
        return cls(vcpus=vcpus, memory_mb=flavor.memory_mb, disk_gb=flavor.disk_gb, cpus=cpus)


class Claims:
    """Claims by instance uuid. ``capacity()`` returns the current capacity of this host."""

    def __init__(self, capacity: Callable[[], Resources]) -> None:
        self._capacity = capacity
        self._held: dict[str, Resources] = {}
        self._mutex = threading.Lock()

    def instance_claim(self, instance_uuid: str, resources: Resources, limits: Mapping[str, int]) -> None:
        """Claim ``resources`` for the instance until `release`, or raise `ComputeResourcesUnavailable` with the missing
        resource.

        ``limits`` is the capacity that the scheduler used; the smaller of ``limits`` and `capacity` counts. A new claim
        of an instance replaces its old one.
        """
        capacity = self._capacity()
        with self._mutex:
            others = [held for uuid, held in self._held.items() if uuid != instance_uuid]
            for name, unit in UNITS.items():
                used = sum(getattr(held, name) for held in others)
                total = min(getattr(capacity, name), limits.get(name, getattr(capacity, name)))
                need = getattr(resources, name)
                if used + need > total:
                    raise exceptions.ComputeResourcesUnavailable(
                        reason=f"{need} {unit} requested, {max(0, total - used)} of {total} left on this host"
                    )
            self._check_cpus(resources, others, capacity)
            self._held[instance_uuid] = resources

    @staticmethod
    def _check_cpus(resources: Resources, others: list[Resources], capacity: Resources) -> None:
        """Raise `ComputeResourcesUnavailable` unless each CPU is in cpu_dedicated_set and free."""
        taken = {cpu for held in others for cpu in held.cpus}
        for cpu in resources.cpus:
            if cpu not in capacity.cpus or cpu in taken:
                why = "another guest has it" if cpu in capacity.cpus else "it is not in cpu_dedicated_set"
                raise exceptions.ComputeResourcesUnavailable(reason=f"CPU {cpu} requested, but on this host {why}")

    def restore(self, held: Mapping[str, Resources]) -> None:
        """Take over the claims of domains that existed before this daemon started."""
        with self._mutex:
            self._held.update(held)

    def release(self, instance_uuid: str) -> None:
        """Release the instance's claim. May be called repeatedly."""
        with self._mutex:
            self._held.pop(instance_uuid, None)

    def used(self) -> Resources:
        with self._mutex:
            held = list(self._held.values())
        return Resources(**{name: sum(getattr(item, name) for item in held) for name in UNITS})
